{{/* A setting's value as the environment writes it. Helm reads numbers as floats: 134217728 must not become 1.34e+08. */}}
{{- define "mcpproxy.setting" -}}
{{- $value := .value -}}
{{- if kindIs "float64" $value -}}
{{- if eq $value (floor $value) }}{{ printf "%.0f" $value }}{{ else }}{{ $value }}{{ end -}}
{{- else if kindIs "slice" $value -}}
{{- range $value -}}
{{- if contains "," . -}}
{{- fail (printf "config.%s: %q has a comma, which separates the entries of a list." $.name .) -}}
{{- end -}}
{{- end -}}
{{- join "," $value -}}
{{- else if kindIs "map" $value -}}
{{- toJson $value -}}
{{- else -}}
{{- $value -}}
{{- end -}}
{{- end -}}

{{/* `config`, with what pods need set where nothing is: 5 s for everyone to learn that a replica stops. */}}
{{- define "mcpproxy.config" -}}
{{- $config := dict "limits" (dict "drain_delay_s" 5) -}}
{{- range $section, $settings := default dict .Values.config -}}
{{- $merged := default dict (get $config $section) -}}
{{- range $key, $value := $settings -}}
{{- $_ := set $merged $key $value -}}
{{- end -}}
{{- $_ := set $config $section $merged -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* Values of the Host header under which this release is reached. */}}
{{- define "mcpproxy.allowedHosts" -}}
{{- $service := include "mcpproxy.fullname" . -}}
{{- $inNamespace := printf "%s.%s" $service .Release.Namespace -}}
{{- $hosts := list "localhost" "127.0.0.1" "[::1]" $service $inNamespace (printf "%s.svc" $inNamespace) (printf "%s.svc.cluster.local" $inNamespace) -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = concat $hosts .Values.ingress.hosts -}}
{{- end -}}
{{- if .Values.httpRoute.enabled -}}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames -}}
{{- end -}}
{{- $hosts = concat $hosts (dig "server" "allowed_hosts" list (include "mcpproxy.config" . | fromJson)) -}}
{{- include "mcpproxy.setting" (dict "name" "server.allowed_hosts" "value" (uniq $hosts)) -}}
{{- end -}}

{{/* Settings as environment variables: a changed value is a changed pod, and pods of the release before keep theirs. */}}
{{- define "mcpproxy.settingsEnv" -}}
{{- $config := include "mcpproxy.config" . | fromJson -}}
- name: MCPPROXY__SERVER__LISTEN
  value: "0.0.0.0:8080"
- name: MCPPROXY__SERVER__ADMIN_LISTEN
  value: "0.0.0.0:{{ .Values.metrics.port }}"
- name: MCPPROXY__SERVER__ALLOWED_HOSTS
  value: {{ include "mcpproxy.allowedHosts" . | quote }}
{{- range $section, $settings := $config }}
{{- range $key, $value := $settings }}
{{- if ne (printf "%s.%s" $section $key) "server.allowed_hosts" }}
- name: MCPPROXY__{{ upper $section }}__{{ upper $key }}
  value: {{ include "mcpproxy.setting" (dict "name" (printf "%s.%s" $section $key) "value" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- $extra := include "mcpproxy.extraEnv" . }}
{{- if and (dig "telemetry" "otlp_endpoint" "" $config) (not (contains "name: OTEL_RESOURCE_ATTRIBUTES\n" (printf "%s\n" $extra))) }}
- name: MCPPROXY_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: OTEL_RESOURCE_ATTRIBUTES
  value: "k8s.namespace.name={{ .Release.Namespace }},k8s.pod.name=$(MCPPROXY_POD_NAME)"
{{- end }}
{{- with $extra }}
{{ . }}
{{- end }}
{{- end -}}

{{/* extraEnv: a name twice would be refused by the server, or one of the two would win. */}}
{{- define "mcpproxy.extraEnv" -}}
{{- $taken := dict
  "MCPPROXY__SERVER__LISTEN" "the chart"
  "MCPPROXY__SERVER__ADMIN_LISTEN" "metrics.port"
  "MCPPROXY__SERVER__ALLOWED_HOSTS" "config.server.allowed_hosts"
  "MCPPROXY__DATABASE__URL" "secrets.databaseUrl"
  "MCPPROXY__DATABASE__DIRECT_URL" "secrets.directUrl"
  "MCPPROXY__SECRETS__MASTER_KEY" "secrets.masterKey"
  "MCPPROXY__SESSIONS__KEY" "secrets.sessionsKey"
  "MCPPROXY__AUTH__BOOTSTRAP_KEY" "secrets.bootstrapKey"
  "POSTGRES_PASSWORD" "secrets.postgresPassword"
  "MCPPROXY_POD_NAME" "the chart" -}}
{{- range $section, $settings := include "mcpproxy.config" . | fromJson -}}
{{- range $key, $_ := $settings -}}
{{- $_ := set $taken (printf "MCPPROXY__%s__%s" (upper $section) (upper $key)) (printf "config.%s.%s" $section $key) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $taken .name -}}
{{- fail (printf "extraEnv: %s comes from %s already." .name (get $taken .name)) -}}
{{- end -}}
{{- if and (eq .name "MCPPROXY__SEARCH__EMBEDDINGS_API_KEY") (hasKey . "value") -}}
{{- fail "extraEnv: MCPPROXY__SEARCH__EMBEDDINGS_API_KEY is a secret: give it by valueFrom.secretKeyRef." -}}
{{- end -}}
{{- $_ := set $taken .name "another entry" -}}
{{- end -}}
{{- with .Values.extraEnv -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
