{{/* The labels of the controller's objects. */}}
{{- define "foretide.labels" -}}
app.kubernetes.io/name: foretide
app.kubernetes.io/part-of: foretide
{{- end }}

{{/* The image, by digest if there is one. Without a registry, a node that lacks it would pull what docker.io has under that name. */}}
{{- define "foretide.image" -}}
{{- with .Values.image -}}
{{- if not (regexMatch "^(localhost|[^/@]*[.:][^/@]*)/[^:@]*[^:@/]$" .repository) }}
{{- fail (printf "image.repository is %q: expected REGISTRY/NAME, such as registry.example.org/foretide (docs/installation.md#the-image)" .repository) }}
{{- end }}
{{- if not (or .digest .tag) }}
{{- fail (printf "image.digest and image.tag are empty: expected the digest of %s, such as sha256:0123..., or a tag" .repository) }}
{{- end }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* A manifest of deploy/ that does not depend on values, in the namespace of the release. */}}
{{- define "foretide.manifest" -}}
{{- $content := required (printf "the chart lacks %s" .path) (.root.Files.Get .path) -}}
{{ $content | replace "namespace: foretide-system" (printf "namespace: %q" .root.Release.Namespace) }}
{{- end }}

{{/* The configuration file. */}}
{{- define "foretide.config" -}}
{{- $header := dict "apiVersion" "foretide.io/v1alpha1" "kind" "ControllerConfig" -}}
{{- toYaml (mustMerge $header .Values.config) -}}
{{- end }}

{{/* The objects of a manifest of deploy/ as a list. */}}
{{- define "foretide.objects" -}}
{{- $objects := list }}
{{- range regexSplit "(?m)^---$" (include "foretide.manifest" .) -1 }}
{{- $objects = append $objects (fromYaml .) }}
{{- end }}
{{- toYaml $objects }}
{{- end }}

{{/*
The Deployment, PodDisruptionBudget and Service of a server (`path`), with its `values`. `args` are further arguments, and
`without` one of the manifest that is left out; `secrets` has the Secrets to mount, by folder below /etc/foretide.
*/}}
{{- define "foretide.server" -}}
{{- $server := . }}
{{- range $object := include "foretide.objects" . | fromYamlArray }}
{{- if eq $object.kind "Deployment" }}
{{- include "foretide.serverDeployment" (dict "server" $server "object" $object) }}
{{- else if or (ne $object.kind "PodDisruptionBudget") (and $server.root.Values.podDisruptionBudget.enabled (gt (int $server.values.replicas) 1)) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{- define "foretide.serverDeployment" -}}
{{- $root := .server.root.Values }}
{{- $values := .server.values }}
{{- $spec := .object.spec }}
{{- $pod := $spec.template.spec }}
{{- $container := first $pod.containers }}
{{- $_ := set $spec "replicas" (int $values.replicas) }}
{{- $_ := set $spec.template.metadata "labels" (mustMerge $spec.template.metadata.labels $values.podLabels) }}
{{- with $values.podAnnotations }}
{{- $_ := set $spec.template.metadata "annotations" . }}
{{- end }}
{{- range $field := list "imagePullSecrets" "priorityClassName" "nodeSelector" "tolerations" }}
{{- with get $root $field }}
{{- $_ := set $pod $field . }}
{{- end }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
{{- $_ := set $pod "topologySpreadConstraints" . }}
{{- end }}
{{- $_ := set $container "image" (include "foretide.image" .server.root) }}
{{- $_ := set $container "imagePullPolicy" $root.image.pullPolicy }}
{{- $_ := set $container "args" (concat (without $container.args (.server.without | default "")) .server.args $values.extraArgs) }}
{{- $_ := set $container "resources" $values.resources }}
{{- $mounts := list }}
{{- $volumes := list }}
{{- range $folder, $secret := .server.secrets }}
{{- $mounts = append $mounts (dict "name" $folder "mountPath" (printf "/etc/foretide/%s" $folder) "readOnly" true) }}
{{- $volumes = append $volumes (dict "name" $folder "secret" (dict "secretName" $secret)) }}
{{- end }}
{{- if $volumes }}
{{- $_ := set $container "volumeMounts" $mounts }}
{{- $_ := set $pod "volumes" $volumes }}
{{- end }}
---
{{ toYaml .object }}
{{- end }}

{{/* The network policy of a server (`path`), with its `connections`. */}}
{{- define "foretide.serverPolicy" -}}
{{- $policy := include "foretide.manifest" . | fromYaml }}
{{- with .connections.clients }}
{{- $_ := set (first $policy.spec.ingress) "from" . }}
{{- end }}
{{- with .connections.egress }}
{{- $_ := set $policy.spec "egress" . }}
{{- end }}
---
{{ toYaml $policy }}
{{- end }}
