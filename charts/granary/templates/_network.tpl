{{- define "granary.dnsRule" -}}
- ports:
    {{- range .Values.networkPolicy.dnsPorts }}
    - { port: {{ . }}, protocol: UDP }
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
  {{- with .Values.networkPolicy.dnsTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The port of an address, with a scheme or without. */}}
{{- define "granary.port" -}}
{{- $authority := regexFind "^[^/?#]*" (regexReplaceAll "^[a-z]+://([^/?#]*@)?" . "") }}
{{- regexFind ":[0-9]+$" $authority | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https:" .)) }}
{{- end }}

{{/* Leads out to the peers at the ports: ports, to; without peers to any address. */}}
{{- define "granary.egressRule" -}}
- ports:
    {{- range uniq .ports }}
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "granary.postgresRule" -}}
{{- include "granary.egressRule" (dict "ports" (list .Values.postgres.port) "to" .Values.networkPolicy.postgresTo) }}
{{- end }}

{{- define "granary.kafkaRule" -}}
{{- if .Values.kafka.enabled }}
{{- $ports := list }}
{{- range .Values.kafka.brokers }}{{ $ports = append $ports (splitList ":" . | last) }}{{ end }}
{{- include "granary.egressRule" (dict "ports" $ports "to" .Values.networkPolicy.kafkaTo) }}
{{- end }}
{{- end }}

{{/* To where traces go, by the settings of OpenTelemetry of the component. */}}
{{- define "granary.otlpRule" -}}
{{- $ports := list }}
{{- range $key := keys .c.env | sortAlpha }}
{{- if regexMatch "^OTEL_EXPORTER_[A-Z_]*ENDPOINT$" $key }}
{{- with get $.c.env $key }}{{ $ports = append $ports (include "granary.port" .) }}{{ end }}
{{- end }}
{{- end }}
{{- if $ports }}
{{- include "granary.egressRule" (dict "ports" $ports "to" .root.Values.networkPolicy.otlpTo) }}
{{- end }}
{{- end }}

{{/* To the nodes of chains: of finance those in a Secret, of payments those in its settings, and in a Secret or a file too. */}}
{{- define "granary.chainRule" -}}
{{- $policy := .root.Values.networkPolicy }}{{ $ports := list }}{{ $inSecret := false }}
{{- if eq .name "finance" }}{{ $inSecret = eq .root.Values.chain.kind "cosmos" }}{{ end }}
{{- if eq .name "payments" }}
{{- range $key := list "EVM_RPC_URLS" "SOLANA_RPC_URLS" }}
{{- range $entry := without (splitList "," (get $.c.env $key)) "" }}
{{- $ports = append $ports (include "granary.port" (splitList "=" $entry | rest | join "=" | trim)) }}
{{- end }}
{{- end }}
{{- $inFile := or (hasKey .c.env "EVM_RPC_URLS_FILE") (hasKey .c.env "SOLANA_RPC_URLS_FILE") }}
{{- /* With a key payments are settled on nodes. */}}
{{- $inSecret = or $inFile (and (hasKey .c.env "X402_KEY_FILE") (not (empty .c.extraEnvFrom))) }}
{{- end }}
{{- if $inSecret }}{{ $ports = concat $ports $policy.chainPorts }}{{ end }}
{{- if $ports }}
{{- include "granary.egressRule" (dict "ports" $ports "to" $policy.chainTo) }}
{{- end }}
{{- end }}

{{/* What the Jobs reach. */}}
{{- define "granary.jobsPolicy" -}}
podSelector:
  matchLabels:
    {{- include "granary.selector" (dict "root" . "name" "jobs") | nindent 4 }}
policyTypes: [Ingress, Egress]
egress:
  {{- include "granary.dnsRule" . | nindent 2 }}
  {{- include "granary.postgresRule" . | nindent 2 }}
  {{- with include "granary.kafkaRule" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with get .Values.networkPolicy.extraEgress "jobs" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
