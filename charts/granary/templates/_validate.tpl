{{/* What the schema cannot say, each with a sentence. */}}
{{- define "granary.validate" -}}
{{- $v := .Values }}
{{- include "granary.validateRequired" . }}
{{- include "granary.validateStores" . }}
{{- include "granary.validateTraffic" . }}
{{- range $name, $component := $v.components }}
{{- $c := mergeOverwrite (deepCopy $v.defaults) (deepCopy $component) }}
{{- include "granary.validateComponent" (dict "root" $ "name" $name "c" $c) }}
{{- end }}
{{- include "granary.validateConnections" . }}
{{- end }}

{{- define "granary.validateRequired" -}}
{{- $v := .Values }}
{{- if not $v.postgres.host }}{{ fail "postgres.host is required: the host of a Postgres 18 with the databases and roles of deploy/postgres.sql" }}{{ end }}
{{- if not $v.postgres.existingSecret }}{{ fail "postgres.existingSecret is required: a Secret with the passwords of the roles, by the keys <service> and <service>-owner" }}{{ end }}
{{- if not $v.trust.existingSecret }}{{ fail "trust.existingSecret is required: a Secret with internal-secret, or with the secrets of each service" }}{{ end }}
{{- if not $v.operator.existingSecret }}{{ fail "operator.existingSecret is required: a Secret with the key of the operator" }}{{ end }}
{{- if not $v.wallet.existingSecret }}{{ fail "wallet.existingSecret is required: a Secret with the seed of the wallets, which must outlive every pod" }}{{ end }}
{{- end }}

{{- define "granary.validateStores" -}}
{{- $v := .Values }}{{ $kafka := $v.kafka }}{{ $store := $v.objectStorage }}
{{- if and $kafka.enabled (not $kafka.brokers) }}{{ fail "kafka.brokers is required with kafka.enabled: host:port of the brokers; or set kafka.enabled=false" }}{{ end }}
{{- if and $kafka.sasl.username (not $kafka.sasl.existingSecret) }}{{ fail "kafka.sasl.existingSecret is required with kafka.sasl.username: a Secret with the password" }}{{ end }}
{{- if and $kafka.tls.clientSecret (not $kafka.tls.enabled) }}{{ fail "kafka.tls.clientSecret needs kafka.tls.enabled: a client certificate is shown in TLS only" }}{{ end }}
{{- if and $kafka.sasl.username (eq $kafka.sasl.mechanism "plain") (not $kafka.tls.enabled) }}{{ fail "kafka.sasl.mechanism plain needs kafka.tls.enabled: the password would be sent in clear" }}{{ end }}
{{- if not $store.endpoint }}{{ fail "objectStorage.endpoint is required: blobs are kept in S3 only, because files cannot be shared by copies" }}{{ end }}
{{- if and $store.webIdentity.enabled $store.existingSecret }}{{ fail "objectStorage.existingSecret and objectStorage.webIdentity exclude each other: keys come from one of them" }}{{ end }}
{{- if not (or $store.webIdentity.enabled $store.existingSecret) }}{{ fail "objectStorage.existingSecret is required: a Secret with the keys, unless objectStorage.webIdentity is enabled" }}{{ end }}
{{- if and $store.presigned (not $store.publicEndpoint) }}{{ fail "objectStorage.publicEndpoint is required with objectStorage.presigned: the address at which clients reach the store" }}{{ end }}
{{- if eq $v.chain.kind "cosmos" }}
{{- if not $v.chain.id }}{{ fail "chain.id is required with chain.kind cosmos: transactions are signed for it" }}{{ end }}
{{- if not $v.chain.existingSecret }}{{ fail "chain.existingSecret is required with chain.kind cosmos: a Secret with the URLs of the nodes" }}{{ end }}
{{- end }}
{{- include "granary.validateEncryption" $v.encryption }}
{{- if and $v.backup.enabled (not $v.backup.existingClaim) }}{{ fail "backup.existingClaim is required with backup.enabled: dumps on a volume of the release would be deleted with it" }}{{ end }}
{{- include "granary.validateRestore" . }}
{{- if and $v.backup.enabled (eq $v.backup.image.repository "library/postgres") (eq $v.postgres.tls.mode "verify-full") (not $v.postgres.tls.caSecret) }}{{ fail "postgres.tls.caSecret is required with backup.enabled: the image library/postgres has no certificate authorities; name that of Postgres, or in backup.image an image that has its own" }}{{ end }}
{{- end }}

{{- define "granary.validateRestore" -}}
{{- $v := .Values }}
{{- if $v.backup.restore.from }}
{{- if .Release.IsUpgrade }}{{ fail "backup.restore.from restores into empty databases, at an install: set it to nothing for an upgrade (--set backup.restore.from=)" }}{{ end }}
{{- if not $v.backup.enabled }}{{ fail "backup.restore.from needs backup.enabled: the volume with the dumps is that of the backups" }}{{ end }}
{{- if not $v.migrations.enabled }}{{ fail "backup.restore.from needs migrations.enabled: the Job that migrates restores first" }}{{ end }}
{{- end }}
{{- end }}

{{- define "granary.validateEncryption" -}}
{{- if and .existingSecret .vault.key }}{{ fail "encryption.existingSecret and encryption.vault.key exclude each other: the root key is in one of them" }}{{ end }}
{{- if and .old.existingSecret .old.vaultKey }}{{ fail "encryption.old.existingSecret and encryption.old.vaultKey exclude each other: the old root key was in one of them" }}{{ end }}
{{- if or .vault.key .old.vaultKey }}
{{- if not .vault.url }}{{ fail "encryption.vault.url is required with a key of Vault: scheme, host and port" }}{{ end }}
{{- if not .vault.tokenSecret }}{{ fail "encryption.vault.tokenSecret is required with a key of Vault: a Secret with a token" }}{{ end }}
{{- end }}
{{- end }}

{{- define "granary.validateTraffic" -}}
{{- $v := .Values }}
{{- if $v.tls.enabled }}
{{- if and $v.tls.certManager.enabled $v.tls.existingSecrets }}{{ fail "tls.existingSecrets and tls.certManager exclude each other: certificates come from one of them" }}{{ end }}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) }}{{ fail "tls.certManager.issuerRef.name is required with tls.certManager.enabled" }}{{ end }}
{{- if not $v.tls.certManager.enabled }}
{{- range keys $v.components | sortAlpha }}
{{- if not (get $v.tls.existingSecrets .) }}{{ fail (printf "tls.existingSecrets.%s is required with tls.enabled: TLS is on in all services or in none" .) }}{{ end }}
{{- end }}
{{- end }}
{{- else if $v.tls.certManager.enabled }}{{ fail "tls.certManager needs tls.enabled: its certificates would not be used" }}
{{- end }}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) }}{{ fail "ingress.hosts is required with ingress.enabled: at least one host" }}{{ end }}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) }}{{ fail "httpRoute.parentRefs is required with httpRoute.enabled: the Gateways that serve the route" }}{{ end }}
{{- if and $v.metrics.serviceMonitor.enabled $v.networkPolicy.enabled (not $v.networkPolicy.metricsFrom) }}{{ fail "networkPolicy.metricsFrom is required with metrics.serviceMonitor.enabled: otherwise the policies refuse Prometheus" }}{{ end }}
{{- end }}

{{- define "granary.validateComponent" -}}
{{- $name := .name }}{{ $c := .c }}{{ $at := printf "components.%s" .name }}
{{- if and $c.autoscaling.enabled $c.keda.enabled }}{{ fail (printf "%s: autoscaling and keda exclude each other, because both set the number of copies" $at) }}{{ end }}
{{- range $key := list "autoscaling" "keda" }}
{{- $scaler := get $c $key }}
{{- if and $scaler.enabled (gt (int $scaler.minReplicas) (int $scaler.maxReplicas)) }}{{ fail (printf "%s.%s.minReplicas is above maxReplicas" $at $key) }}{{ end }}
{{- end }}
{{- if $c.keda.enabled }}
{{- if not (has $name (list "blobs" "finance" "tasks")) }}{{ fail (printf "%s.keda scales by events that wait, and %s reads none: use autoscaling" $at $name) }}{{ end }}
{{- if not $.root.Values.kafka.enabled }}{{ fail (printf "%s.keda needs kafka.enabled: over Postgres one copy of a service applies its events, however many there are" $at) }}{{ end }}
{{- if not $c.keda.prometheus }}{{ fail (printf "%s.keda.prometheus is required with keda.enabled: the address of Prometheus" $at) }}{{ end }}
{{- end }}
{{- $own := include "granary.ownEnv" . | fromYaml }}
{{- range $key, $value := $c.env }}
{{- if has $key (list "OBJECT_STORE" "OBJECTS_DIR") }}{{ fail (printf "%s.env.%s: blobs are kept in S3 only, because files cannot be shared by copies; see objectStorage" $at $key) }}{{ end }}
{{- if eq $key "MAX_BLOB_BYTES" }}{{ fail (printf "%s.env.MAX_BLOB_BYTES: set maxBlobBytes, because gateway and blobs need the same limit" $at) }}{{ end }}
{{- if eq $key "KEY_FILE_CREATE" }}{{ fail (printf "%s.env.KEY_FILE_CREATE: a seed made in a pod would be lost with it; make one for wallet.existingSecret" $at) }}{{ end }}
{{- if has $key (list "ENCRYPTION_KEY_FILE" "ENCRYPTION_KEY_FILE_CREATE") }}{{ fail (printf "%s.env.%s: set encryption.existingSecret, for a seed made in a pod would be lost with it" $at $key) }}{{ end }}
{{- if regexMatch "^ENCRYPTION_(OLD_|VAULT_(URL|KEY|MOUNT|NAMESPACE|TOKEN_FILE|CA_FILE)$)" $key }}{{ fail (printf "%s.env.%s: set encryption.vault or encryption.old" $at $key) }}{{ end }}
{{- if regexMatch "^(INTERNAL_SECRET|SERVICE_SECRET|OPERATOR_KEY|S3_SECRET_KEY|S3_ACCESS_KEY|KAFKA_SASL_PASSWORD)$" $key }}{{ fail (printf "%s.env.%s: secrets come from Secrets, never from values" $at $key) }}{{ end }}
{{- if or (hasKey $own $key) (regexMatch "_ADDRESS$|^(KAFKA|S3|AWS|TLS|CHAIN_RPC_URLS|CHAIN_ID|DATABASE_URL|PUBLIC_URL|BLOBS_PRESIGNED|BLOBS_DIRECT_READS|SERVICE_ROLE)" $key) }}{{ fail (printf "%s.env.%s is set by the chart, from its other values" $at $key) }}{{ end }}
{{- end }}
{{- $heap := include "granary.heapMebibytes" . | int }}
{{- if lt $heap 96 }}{{ fail (printf "%s.resources.limits.memory leaves %d MiB for the heap beside buffers of %s MiB and 128 MiB for the process; raise it, or lower the buffers, to leave 96 MiB" $at $heap (include "granary.bufferMebibytes" .)) }}{{ end }}
{{- if lt (include "granary.mebibytes" $c.resources.limits.memory | int) (include "granary.mebibytes" $c.resources.requests.memory | int) }}{{ fail (printf "%s.resources.requests.memory is above limits.memory" $at) }}{{ end }}
{{- end }}

{{/* Postgres connections of one copy of a service: root, name, c. */}}
{{- define "granary.connections" -}}
{{- $sizes := dict "DATABASE_POOL_SIZE" 8 }}
{{- if eq .name "data" }}{{ $sizes = dict "DATABASE_POOL_SIZE" 8 "FAST_POOL_SIZE" 2 "PIPELINED_POOL_SIZE" 2 }}{{ end }}
{{- $sum := 0 }}
{{- range $key, $default := $sizes }}{{ $sum = add $sum (default $default (get $.c.env $key) | int) }}{{ end }}
{{- $sum }}
{{- end }}

{{- define "granary.validateConnections" -}}
{{- $sum := 0 }}{{ $parts := list }}
{{- range $name, $component := omit .Values.components "gateway" }}
{{- $c := mergeOverwrite (deepCopy $.Values.defaults) (deepCopy $component) }}
{{- $copies := int $c.replicas }}
{{- if $c.autoscaling.enabled }}{{ $copies = int $c.autoscaling.maxReplicas }}{{ end }}
{{- if $c.keda.enabled }}{{ $copies = int $c.keda.maxReplicas }}{{ end }}
{{- $each := include "granary.connections" (dict "root" $ "name" $name "c" $c) | int }}
{{- $sum = add $sum (mul (add $copies 1) $each) }}
{{- $parts = append $parts (printf "%s (%d + 1) x %d" $name $copies $each) }}
{{- end }}
{{- $sum = add $sum 10 }}
{{- if gt (int $sum) (int .Values.postgres.maxConnections) }}{{ fail (printf "postgres.maxConnections is %d, and all copies with one more of each in a rollout need %d: %s, migrations 5 x 2" (int .Values.postgres.maxConnections) (int $sum) (join ", " $parts)) }}{{ end }}
{{- end }}
