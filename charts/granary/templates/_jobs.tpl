{{/* The annotations of what runs before an upgrade, and leaves nothing behind if it succeeds: root, weight. */}}
{{- define "granary.hookAnnotations" -}}
{{- if and .root.Release.IsUpgrade .root.Values.migrations.useHelmHooks }}
helm.sh/hook: pre-upgrade
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
{{- end }}

{{/* Migrations and topics: at the install Jobs, pods wait; at an upgrade hooks before it, whose failure ends it. */}}
{{- define "granary.jobMetadata" -}}
{{- $root := .root }}
{{- $annotations := include "granary.hookAnnotations" (dict "root" $root "weight" "0") | fromYaml }}
{{- /* A Job cannot be changed, and without Helm's releases the revision is always 1. */}}
{{- $hash := printf "%s %s %s" $root.Chart.Version (include "granary.image" $root) (toJson $root.Values) | sha256sum | trunc 6 }}
{{- include "granary.metadata" (dict "root" $root "name" (printf "%s-%d-%s" .name (int $root.Release.Revision) $hash) "component" "jobs" "annotations" $annotations) }}
{{- end }}

{{- define "granary.jobSpec" -}}
backoffLimit: {{ .Values.migrations.backoffLimit }}
activeDeadlineSeconds: {{ int .Values.migrations.activeDeadlineSeconds }}
{{- $migrations := .Values.migrations }}
{{- /* Helm removes hooks that succeed: what is left is the Job of an upgrade that failed. */}}
{{- $ttl := ternary $migrations.hookTtlSecondsAfterFinished $migrations.ttlSecondsAfterFinished (and .Release.IsUpgrade $migrations.useHelmHooks) }}
{{- if not (kindIs "invalid" $ttl) }}
ttlSecondsAfterFinished: {{ int $ttl }}
{{- end }}
{{- end }}

{{- define "granary.jobPodMetadata" -}}
labels:
  {{- include "granary.labels" (dict "root" . "name" "jobs") | nindent 2 }}
{{- with merge (dict) .Values.jobs.podAnnotations .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What the pods of Jobs and of the test have: root, name. They are placed as the services are, unless `jobs` says otherwise. */}}
{{- define "granary.jobPodBase" -}}
{{- include "granary.podBase" . }}
{{- range $key := list "priorityClassName" "runtimeClassName" "nodeSelector" "tolerations" "affinity" }}
{{- $own := index $.root.Values.jobs $key }}
{{- with ternary (get $.root.Values.defaults $key) $own (kindIs "invalid" $own) }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the migration of payments stores for all copies: prices and rates. */}}
{{- define "granary.storedEnv" }}
{{- range $key := keys .env | sortAlpha }}
{{- if has $key (list "RETENTION_UTIA_PER_GIB_DAY" "RETENTION_FREE_DAYS" "X402_PAY_TO" "X402_RATES") }}
- name: {{ $key }}
  value: {{ get $.env $key | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Runs a script with the databases and the dumps: root, name (backup or restore), env (entries of its own). */}}
{{- define "granary.backupContainer" -}}
{{- $root := .root }}{{ $postgres := .root.Values.postgres }}{{ $backup := .root.Values.backup -}}
name: {{ .name }}
image: {{ include "granary.imageOf" (dict "root" $root "image" $backup.image) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [sh, /etc/granary/scripts/{{ .name }}.sh]
env:
  - { name: PGHOST, value: {{ $postgres.host | quote }} }
  - { name: PGPORT, value: {{ $postgres.port | quote }} }
  - { name: PGSSLMODE, value: {{ $postgres.tls.mode | quote }} }
  {{- if $postgres.tls.caSecret }}
  - { name: PGSSLROOTCERT, value: /etc/granary/postgres-data/ca.crt }
  {{- else if eq $postgres.tls.mode "verify-full" }}
  - { name: PGSSLROOTCERT, value: system }
  {{- end }}
  - { name: PREFIX, value: {{ $postgres.prefix | quote }} }
  {{- if $root.Values.kafka.enabled }}
  - { name: TOPIC_PREFIX, value: {{ $root.Values.kafka.topicPrefix | quote }} }
  {{- end }}
  - { name: HOME, value: /tmp }
  {{- toYaml .env | nindent 2 }}
resources:
  {{- toYaml $backup.resources | nindent 2 }}
securityContext:
  {{- include "granary.containerSecurity" $root | nindent 2 }}
volumeMounts:
  - { name: tmp, mountPath: /tmp }
  - { name: scripts, mountPath: /etc/granary/scripts, readOnly: true }
  - { name: backups, mountPath: /backups }
  {{- range $service := list "data" "blobs" "finance" "payments" "tasks" }}
  - { name: postgres-{{ $service }}, mountPath: /etc/granary/postgres-{{ $service }}, readOnly: true }
  {{- end }}
{{- end }}

{{/* The volumes of these containers. */}}
{{- define "granary.backupVolumes" -}}
- name: scripts
  configMap: { name: {{ include "granary.fullname" . }}-backup }
- name: backups
  persistentVolumeClaim: { claimName: {{ .Values.backup.existingClaim }} }
{{- end }}

{{/* The volumes with the passwords of the owners of the databases. */}}
{{- define "granary.ownerVolumes" }}
{{- range $service := list "data" "blobs" "finance" "payments" "tasks" }}
{{- include "granary.postgresVolume" (dict "root" $ "volume" (printf "postgres-%s" $service) "key" (printf "%s-owner" $service)) }}
{{- end }}
{{- end }}
