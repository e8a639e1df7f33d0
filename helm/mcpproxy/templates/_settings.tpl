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
{{- $hosts = concat $hosts (dig "server" "allowed_hosts" list .Values.config) -}}
{{- include "mcpproxy.setting" (dict "name" "server.allowed_hosts" "value" (uniq $hosts)) -}}
{{- end -}}

{{/* Settings as environment variables: a changed value is a changed pod, and pods of the release before keep theirs. */}}
{{- define "mcpproxy.settingsEnv" -}}
- name: MCPPROXY__SERVER__LISTEN
  value: "0.0.0.0:8080"
- name: MCPPROXY__SERVER__ADMIN_LISTEN
  value: "0.0.0.0:{{ .Values.metrics.port }}"
- name: MCPPROXY__SERVER__ALLOWED_HOSTS
  value: {{ include "mcpproxy.allowedHosts" . | quote }}
{{- range $section, $settings := .Values.config }}
{{- range $key, $value := $settings }}
{{- if ne (printf "%s.%s" $section $key) "server.allowed_hosts" }}
- name: MCPPROXY__{{ upper $section }}__{{ upper $key }}
  value: {{ include "mcpproxy.setting" (dict "name" (printf "%s.%s" $section $key) "value" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if dig "telemetry" "otlp_endpoint" "" .Values.config }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: OTEL_RESOURCE_ATTRIBUTES
  value: "k8s.namespace.name={{ .Release.Namespace }},k8s.pod.name=$(POD_NAME)"
{{- end }}
{{- end -}}
