{{/* The settings that the chart decides, as a map: root, name, c (defaults merged with those of the component). */}}
{{- define "granary.ownEnv" -}}
{{- $root := .root }}{{ $name := .name }}{{ $values := .root.Values }}{{ $full := include "granary.fullname" .root }}
{{- $host := ternary "[::]" "0.0.0.0" (eq $values.listenHost "::") }}
METRICS_LISTEN: {{ printf "%s:9464" $host | quote }}
DRAIN_DELAY_MS: {{ int64 .c.drain.delayMs | quote }}
DRAIN_TIMEOUT_MS: {{ int64 .c.drain.timeoutMs | quote }}
{{- range $callee, $callers := include "granary.callers" $root | fromYaml }}
{{- if has $name $callers }}
{{ upper $callee }}_ADDRESS: {{ printf "dns:///%s-%s:5000" $full $callee | quote }}
{{- end }}
{{- end }}
CONNECTION_AGE_MS: {{ int64 .c.connectionAgeMs | quote }}
{{- if eq $name "gateway" }}
HOST: {{ $values.listenHost | quote }}
PORT: "8080"
BLOBS_HTTP_ADDRESS: {{ printf "%s-blobs:5001" $full | quote }}
OPERATOR_KEY_FILE: /etc/granary/operator/key
{{- else }}
LISTEN: {{ printf "%s:5000" $host | quote }}
MIGRATIONS: wait
{{- include "granary.databaseEnv" (dict "root" $root "name" $name "role" (printf "%s_%s" $values.postgres.prefix $name)) }}
{{- include "granary.busEnv" $root }}
{{- end }}
{{- if or (eq $name "gateway") (eq $name "blobs") }}
MAX_BLOB_BYTES: {{ int64 $values.maxBlobBytes | quote }}
{{- end }}
{{- if or (eq $name "gateway") (eq $name "data") }}
{{- with $values.publicUrl }}
PUBLIC_URL: {{ . | quote }}
{{- end }}
{{- end }}
{{- include "granary.trustEnv" . }}
{{- if eq $name "data" }}
SKILLS_DIRECTORY: /var/lib/granary/skills
{{- if $values.encryption.existingSecret }}
ENCRYPTION_KEY_FILE: /etc/granary/encryption/seed
{{- end }}
{{- include "granary.vaultEnv" $values.encryption }}
{{- end }}
{{- if eq $name "finance" }}
KEY_FILE: /etc/granary/wallet/seed
CHAIN: {{ $values.chain.kind | quote }}
{{- with $values.chain.id }}
CHAIN_ID: {{ . | quote }}
{{- end }}
{{- if eq $values.chain.kind "cosmos" }}
CHAIN_RPC_URLS_FILE: /etc/granary/chain/rpc-urls
{{- end }}
{{- end }}
{{- if eq $name "blobs" }}
HTTP_LISTEN: {{ printf "%s:5001" $host | quote }}
{{- include "granary.storeEnv" $values.objectStorage }}
{{- end }}
{{- include "granary.nodeEnv" . }}
{{- end }}

{{- define "granary.vaultEnv" }}
{{- if .old.existingSecret }}
ENCRYPTION_OLD_KEY_FILE: /etc/granary/encryption/old-seed
{{- end }}
{{- with .vault.key }}
ENCRYPTION_VAULT_KEY: {{ . | quote }}
{{- end }}
{{- with .old.vaultKey }}
ENCRYPTION_OLD_VAULT_KEY: {{ . | quote }}
{{- end }}
{{- if or .vault.key .old.vaultKey }}
ENCRYPTION_VAULT_URL: {{ .vault.url | quote }}
ENCRYPTION_VAULT_MOUNT: {{ .vault.mount | quote }}
ENCRYPTION_VAULT_TOKEN_FILE: /etc/granary/encryption/token
{{- with .vault.namespace }}
ENCRYPTION_VAULT_NAMESPACE: {{ . | quote }}
{{- end }}
{{- if .vault.caSecret }}
ENCRYPTION_VAULT_CA_FILE: /etc/granary/encryption/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{- define "granary.databaseEnv" }}
{{- $postgres := .root.Values.postgres }}
DATABASE_URL: {{ printf "postgres://%s@%s:%d/%s_%s?sslmode=%s%s" .role $postgres.host (int $postgres.port) $postgres.prefix .name $postgres.tls.mode (ternary "&sslrootcert=/etc/granary/postgres/ca.crt" "" (ne $postgres.tls.caSecret "")) | quote }}
DATABASE_PASSWORD_FILE: /etc/granary/postgres/password
{{- end }}

{{- define "granary.busEnv" }}
{{- $kafka := .Values.kafka }}
{{- if $kafka.enabled }}
BUS: kafka
KAFKA_BROKERS: {{ join "," $kafka.brokers | quote }}
KAFKA_TOPIC_PREFIX: {{ $kafka.topicPrefix | quote }}
KAFKA_TLS: {{ $kafka.tls.enabled | quote }}
{{- if $kafka.sasl.username }}
KAFKA_SASL_MECHANISM: {{ $kafka.sasl.mechanism | quote }}
KAFKA_SASL_USERNAME: {{ $kafka.sasl.username | quote }}
KAFKA_SASL_PASSWORD_FILE: /etc/granary/kafka/password
{{- end }}
{{- if and $kafka.tls.enabled $kafka.tls.caSecret }}
KAFKA_TLS_CA_FILE: /etc/granary/kafka/ca.crt
{{- end }}
{{- if and $kafka.tls.enabled $kafka.tls.clientSecret }}
KAFKA_TLS_CERT_FILE: /etc/granary/kafka/tls.crt
KAFKA_TLS_KEY_FILE: /etc/granary/kafka/tls.key
{{- end }}
{{- else }}
BUS: postgres
{{- end }}
{{- end }}

{{- define "granary.trustEnv" }}
{{- $callers := include "granary.callers" .root | fromYaml }}
{{- if .root.Values.trust.perService }}
{{- if include "granary.callees" . }}
SERVICE_SECRET_FILE: /etc/granary/trust/secret
{{- end }}
{{- if get $callers .name }}
TRUSTED_CALLERS_FILE: /etc/granary/trust/callers
{{- end }}
{{- else }}
INTERNAL_SECRET_FILE: /etc/granary/trust/secret
{{- end }}
{{- if .root.Values.tls.enabled }}
TLS_CA_FILE: /etc/granary/tls/ca.crt
TLS_CERT_FILE: /etc/granary/tls/tls.crt
TLS_KEY_FILE: /etc/granary/tls/tls.key
TLS_VERIFY_CLIENTS: {{ .root.Values.tls.verifyClients | quote }}
{{- end }}
{{- end }}

{{/* The services that one calls, separated by spaces. */}}
{{- define "granary.callees" -}}
{{- $name := .name }}{{ $found := list }}
{{- range $callee, $callers := include "granary.callers" .root | fromYaml }}{{ if has $name $callers }}{{ $found = append $found $callee }}{{ end }}{{ end }}
{{- join " " $found }}
{{- end }}

{{- define "granary.storeEnv" }}
OBJECT_STORE: s3
S3_ENDPOINT: {{ .endpoint | quote }}
S3_REGION: {{ .region | quote }}
S3_BUCKET: {{ .bucket | quote }}
{{- with .prefix }}
S3_PREFIX: {{ . | quote }}
{{- end }}
{{- if .webIdentity.enabled }}
AWS_WEB_IDENTITY_TOKEN_FILE: /var/run/secrets/granary/token
{{- with .webIdentity.roleArn }}
AWS_ROLE_ARN: {{ . | quote }}
{{- end }}
{{- with .webIdentity.stsEndpoint }}
S3_STS_ENDPOINT: {{ . | quote }}
{{- end }}
{{- else }}
S3_ACCESS_KEY_FILE: /etc/granary/s3/access-key
S3_SECRET_KEY_FILE: /etc/granary/s3/secret-key
{{- end }}
BLOBS_DIRECT_READS: {{ .directReads | quote }}
{{- if .presigned }}
BLOBS_PRESIGNED: "true"
S3_PUBLIC_ENDPOINT: {{ .publicEndpoint | quote }}
{{- end }}
{{- end }}

{{/* MiB of a quantity of memory. */}}
{{- define "granary.mebibytes" -}}
{{- $text := toString . }}
{{- if hasSuffix "Gi" $text }}{{ mulf (trimSuffix "Gi" $text | float64) 1024 | int64 }}
{{- else if hasSuffix "Mi" $text }}{{ trimSuffix "Mi" $text | float64 | int64 }}
{{- else if hasSuffix "G" $text }}{{ mulf (trimSuffix "G" $text | float64) 953.67 | int64 }}
{{- else }}{{ mulf (trimSuffix "M" $text | float64) 0.95367 | int64 }}{{ end }}
{{- end }}

{{/* Processors of a quantity of CPU, rounded up. */}}
{{- define "granary.processors" -}}
{{- $text := toString . }}
{{- if hasSuffix "m" $text }}{{ divf (trimSuffix "m" $text | float64) 1000 | ceil | int64 }}{{ else }}{{ float64 $text | ceil | int64 }}{{ end }}
{{- end }}

{{/* MiB that the buffers of a component may hold, by its settings. */}}
{{- define "granary.bufferMebibytes" -}}
{{- $bytes := 0 }}
{{- range $name, $default := get (dict "gateway" (dict "BODY_BUDGET_BYTES" 268435456 "CALL_BUFFER_BYTES" 67108864) "data" (dict "WRITE_BUFFER_BYTES" 268435456) "blobs" (dict "UPLOAD_BUFFER_BYTES" 268435456)) .name | default dict }}
{{- $bytes = add $bytes (default $default (get $.c.env $name) | int64) }}
{{- end }}
{{- div $bytes 1048576 }}
{{- end }}

{{/* MiB for V8's heap: the limit of memory less the buffers and what the process needs besides. */}}
{{- define "granary.heapMebibytes" -}}
{{- sub (include "granary.mebibytes" .c.resources.limits.memory | int64) (add 128 (include "granary.bufferMebibytes" . | int64)) }}
{{- end }}

{{- define "granary.nodeEnv" }}
{{- $processors := include "granary.processors" .c.resources.requests.cpu | int }}
NODE_OPTIONS: {{ printf "--max-old-space-size=%s --v8-pool-size=%d" (include "granary.heapMebibytes" .) (max 1 (sub $processors 1) | int) | quote }}
UV_THREADPOOL_SIZE: {{ max 4 (mul 2 $processors) | quote }}
{{- end }}

{{/* The entries of env of a component. */}}
{{- define "granary.env" -}}
{{- $env := mergeOverwrite (deepCopy .c.env) (include "granary.ownEnv" . | fromYaml) }}
{{- range $key := keys $env | sortAlpha }}
- name: {{ $key }}
  value: {{ get $env $key | quote }}
{{- end }}
{{- end }}
