#!/bin/sh
# The values of KEDA's annotations that pause a ScaledObject, asked of KEDA's own method.
#
# Version: KEDA 2.21.0 (Go module github.com/kedacore/keda/v2 v2.21.0), built with Go 1.26 or later.
#
# Behavior: ScaledObject.NeedToBePausedByAnnotation reads `autoscaling.keda.sh/paused` as Go's strconv.ParseBool does,
# and takes what is no boolean for true. Of the values below, "false", "False", "FALSE", "f" and "0" leave the object
# running; "no", "off" and the empty text pause it. So does `autoscaling.keda.sh/paused-replicas` with a count,
# even beside `paused: "false"`.
#
# Seen on 2026-11-29 with Go 1.26.8, and compared with what is printed now:
#
#     no annotation: runs
#     paused: "true": is paused
#     paused: "True": is paused
#     paused: "1": is paused
#     paused: "yes": is paused
#     paused: "on": is paused
#     paused: "false": runs
#     paused: "False": runs
#     paused: "FALSE": runs
#     paused: "f": runs
#     paused: "0": runs
#     paused: "no": is paused
#     paused: "off": is paused
#     paused: "": is paused
#     paused-replicas: "3": is paused
#     paused: "false", paused-replicas: "3": is paused
#
# Exit status: 0 for this output, 1 for another one, 2 if the program could not be built or run.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 2' HUP INT TERM
sed -n 's/^#     //p' "$0" >"$folder/expected"
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"fmt"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
)

func main() {
	show("no annotation", nil)
	for _, value := range []string{
		"true", "True", "1", "yes", "on",
		"false", "False", "FALSE", "f", "0",
		"no", "off", "",
	} {
		show(fmt.Sprintf("paused: %q", value), map[string]string{keda.PausedAnnotation: value})
	}
	show(`paused-replicas: "3"`, map[string]string{keda.PausedReplicasAnnotation: "3"})
	show(`paused: "false", paused-replicas: "3"`, map[string]string{
		keda.PausedAnnotation:         "false",
		keda.PausedReplicasAnnotation: "3",
	})
}

func show(name string, annotations map[string]string) {
	object := keda.ScaledObject{}
	object.SetAnnotations(annotations)
	state := "runs"
	if object.NeedToBePausedByAnnotation() {
		state = "is paused"
	}
	fmt.Printf("%s: %s\n", name, state)
}
GO

# `-mod=mod` lets Go add each further module, at the version that KEDA's own go.mod requires.
{
    export GOWORK=off GOFLAGS=-mod=mod
    go mod init example.com/finding && go mod edit -require=github.com/kedacore/keda/v2@v2.21.0 &&
        go build -o finding . && ./finding >seen
} >log 2>&1 || {
    cat log >&2
    exit 2
}

cat seen
diff expected seen >&2 || {
    echo "the output differs from the one in the header of $0" >&2
    exit 1
}
