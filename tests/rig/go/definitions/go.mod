// Modules whose files are used: the definitions of other projects' kinds.
module foretide/rig/definitions

go 1.26.4

require github.com/prometheus-operator/prometheus-operator v0.85.0
