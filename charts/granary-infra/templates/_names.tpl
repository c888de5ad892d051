{{- define "infra.metadata" -}}
name: {{ .root.Release.Name }}-{{ .name }}
namespace: {{ .root.Release.Namespace }}
{{- include "infra.labels" .root | nindent 0 }}
{{- end }}

{{- define "infra.labels" -}}
labels:
  app.kubernetes.io/name: {{ .Chart.Name }}
  app.kubernetes.io/instance: {{ .Release.Name }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "infra.password" -}}
{{- if lt (len .root.Values.passwordSeed) 32 }}{{ fail "passwordSeed is required, with at least 32 characters: all passwords are derived from it" }}{{ end }}
{{- printf "%s/%s/%s" .root.Values.passwordSeed .root.Release.Name .of | sha256sum | trunc 40 }}
{{- end }}

{{- define "infra.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "infra.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: { drop: [ALL] }
{{- end }}
