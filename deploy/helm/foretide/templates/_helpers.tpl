{{/* The labels of the controller's objects. */}}
{{- define "foretide.labels" -}}
app.kubernetes.io/name: foretide
app.kubernetes.io/part-of: foretide
{{- end }}

{{/* The image, by digest if there is one. */}}
{{- define "foretide.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
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
