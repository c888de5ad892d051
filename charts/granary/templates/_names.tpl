{{- define "granary.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}{{ $name := default .Chart.Name .Values.nameOverride }}{{ ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "granary.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "granary.labels" -}}
{{ include "granary.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name, namespace, labels and annotations of a resource: root, name, component, annotations. */}}
{{- define "granary.metadata" -}}
name: {{ include "granary.fullname" .root }}{{ with .name }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "granary.labels" (dict "root" .root "name" (default .name .component)) | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "granary.serviceAccount" -}}
{{ include "granary.fullname" .root }}-{{ .name }}
{{- end }}

{{/* An image with the global registry before its own: root, image. */}}
{{- define "granary.imageOf" -}}
{{ default .image.registry .root.Values.global.imageRegistry }}/{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .root.Chart.AppVersion .image.tag }}{{ end }}
{{- end }}

{{- define "granary.image" -}}
{{ include "granary.imageOf" (dict "root" . "image" .Values.image) }}
{{- end }}

{{/* The callers of each service, from files/callers.yaml. */}}
{{- define "granary.callers" -}}
{{ .Files.Get "files/callers.yaml" }}
{{- end }}

{{- define "granary.certificate" -}}
{{ $tls := .root.Values.tls }}{{ default (printf "%s-%s-tls" (include "granary.fullname" .root) .name) (get $tls.existingSecrets .name) }}
{{- end }}
