{{- define "granary.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "granary.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* What all pods have: root, name. */}}
{{- define "granary.podBase" -}}
serviceAccountName: {{ include "granary.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "granary.podSecurity" . | nindent 2 }}
{{- end }}

{{/* Items of Secrets as one volume, readable by the group of the pod: name, sources (list of secret, items by key). */}}
{{- define "granary.secretVolume" }}
- name: {{ .name }}
  projected:
    defaultMode: 0440
    sources:
      {{- range .sources }}
      - secret:
          name: {{ .secret }}
          items:
            {{- range $path, $key := .items }}
            - { key: {{ $key }}, path: {{ $path }} }
            {{- end }}
      {{- end }}
{{- end }}

{{- define "granary.postgresVolume" }}
{{- $postgres := .root.Values.postgres }}
{{- $sources := list (dict "secret" $postgres.existingSecret "items" (dict "password" .key)) }}
{{- with $postgres.tls.caSecret }}{{ $sources = append $sources (dict "secret" . "items" (dict "ca.crt" $postgres.tls.caKey)) }}{{ end }}
{{- include "granary.secretVolume" (dict "name" .volume "sources" $sources) }}
{{- end }}

{{- define "granary.kafkaVolume" }}
{{- $kafka := .Values.kafka }}{{ $sources := list }}
{{- if $kafka.sasl.username }}{{ $sources = append $sources (dict "secret" $kafka.sasl.existingSecret "items" (dict "password" $kafka.sasl.passwordKey)) }}{{ end }}
{{- if and $kafka.tls.enabled $kafka.tls.caSecret }}{{ $sources = append $sources (dict "secret" $kafka.tls.caSecret "items" (dict "ca.crt" $kafka.tls.caKey)) }}{{ end }}
{{- if and $kafka.tls.enabled $kafka.tls.clientSecret }}{{ $sources = append $sources (dict "secret" $kafka.tls.clientSecret "items" (dict "tls.crt" "tls.crt" "tls.key" "tls.key")) }}{{ end }}
{{- if and $kafka.enabled $sources }}{{ include "granary.secretVolume" (dict "name" "kafka" "sources" $sources) }}{{ end }}
{{- end }}

{{- define "granary.encryptionVolume" }}
{{- $sources := list }}
{{- with .existingSecret }}{{ $sources = append $sources (dict "secret" . "items" (dict "seed" $.key)) }}{{ end }}
{{- with .old.existingSecret }}{{ $sources = append $sources (dict "secret" . "items" (dict "old-seed" $.old.key)) }}{{ end }}
{{- if or .vault.key .old.vaultKey }}
{{- $sources = append $sources (dict "secret" .vault.tokenSecret "items" (dict "token" .vault.tokenKey)) }}
{{- with .vault.caSecret }}{{ $sources = append $sources (dict "secret" . "items" (dict "ca.crt" "ca.crt")) }}{{ end }}
{{- end }}
{{- if $sources }}{{ include "granary.secretVolume" (dict "name" "encryption" "sources" $sources) }}{{ end }}
{{- end }}

{{/* The volumes of a component with Secrets; each is mounted at /etc/granary/<name>. */}}
{{- define "granary.secretVolumes" }}
{{- $values := .root.Values }}
{{- $trust := dict }}
{{- if not $values.trust.perService }}{{ $_ := set $trust "secret" "internal-secret" }}{{ end }}
{{- if and $values.trust.perService (include "granary.callees" .) }}{{ $_ := set $trust "secret" (printf "%s-secret" .name) }}{{ end }}
{{- if and $values.trust.perService (get (include "granary.callers" .root | fromYaml) .name) }}{{ $_ := set $trust "callers" (printf "%s-callers" .name) }}{{ end }}
{{- include "granary.secretVolume" (dict "name" "trust" "sources" (list (dict "secret" $values.trust.existingSecret "items" $trust))) }}
{{- if $values.tls.enabled }}
{{- $files := dict "ca.crt" "ca.crt" "tls.crt" "tls.crt" "tls.key" "tls.key" }}
{{- include "granary.secretVolume" (dict "name" "tls" "sources" (list (dict "secret" (include "granary.certificate" .) "items" $files))) }}
{{- end }}
{{- if eq .name "gateway" }}
{{- include "granary.secretVolume" (dict "name" "operator" "sources" (list (dict "secret" $values.operator.existingSecret "items" (dict "key" $values.operator.key)))) }}
{{- else }}
{{- include "granary.postgresVolume" (dict "root" .root "volume" "postgres" "key" .name) }}
{{- include "granary.kafkaVolume" .root }}
{{- end }}
{{- if eq .name "finance" }}
{{- include "granary.secretVolume" (dict "name" "wallet" "sources" (list (dict "secret" $values.wallet.existingSecret "items" (dict "seed" $values.wallet.key)))) }}
{{- if eq $values.chain.kind "cosmos" }}
{{- include "granary.secretVolume" (dict "name" "chain" "sources" (list (dict "secret" $values.chain.existingSecret "items" (dict "rpc-urls" $values.chain.rpcUrlsKey)))) }}
{{- end }}
{{- end }}
{{- if eq .name "data" }}{{ include "granary.encryptionVolume" $values.encryption }}{{ end }}
{{- $store := $values.objectStorage }}
{{- if and (eq .name "blobs") (not $store.webIdentity.enabled) }}
{{- include "granary.secretVolume" (dict "name" "s3" "sources" (list (dict "secret" $store.existingSecret "items" (dict "access-key" $store.accessKeyKey "secret-key" $store.secretKeyKey)))) }}
{{- end }}
{{- end }}

{{- define "granary.probes" -}}
startupProbe:
  httpGet: { path: /livez, port: metrics }
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /livez, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{- define "granary.spread" -}}
{{- if .c.topologySpreadConstraints }}
{{- toYaml .c.topologySpreadConstraints }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "granary.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}
