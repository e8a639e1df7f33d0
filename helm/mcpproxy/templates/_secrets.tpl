{{/* A reference to a key of a Secret that the operator named. When Helm can see the Secret, the key must be in it. */}}
{{- define "mcpproxy.reference" -}}
{{- $seen := lookup "v1" "Secret" .root.Release.Namespace .from.existingSecret -}}
{{- if and $seen (not (hasKey (default dict $seen.data) .from.key)) -}}
{{- fail (printf "secrets.%s: the Secret %s has no key %s." .name .from.existingSecret .from.key) -}}
{{- end -}}
secretKeyRef:
  name: {{ .from.existingSecret | quote }}
  key: {{ .from.key | quote }}
{{- end -}}

{{- define "mcpproxy.generatedSecret" -}}
{{ include "mcpproxy.fullname" . }}-generated
{{- end -}}

{{/* Where the bootstrap key is, as `name key`. */}}
{{- define "mcpproxy.bootstrapKeyAt" -}}
{{- with .Values.secrets.bootstrapKey -}}
{{- if .existingSecret -}}
{{ .existingSecret }} {{ .key }}
{{- else -}}
{{ include "mcpproxy.generatedSecret" $ }} bootstrap-key
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mcpproxy.bootstrapKeyRef" -}}
{{- with .Values.secrets.bootstrapKey -}}
{{- if .existingSecret -}}
{{ include "mcpproxy.reference" (dict "root" $ "name" "bootstrapKey" "from" .) }}
{{- else -}}
secretKeyRef:
  name: {{ include "mcpproxy.generatedSecret" $ }}
  key: bootstrap-key
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mcpproxy.postgresPasswordRef" -}}
{{- with .Values.secrets.postgresPassword -}}
{{- if .existingSecret -}}
{{ include "mcpproxy.reference" (dict "root" $ "name" "postgresPassword" "from" .) }}
{{- else -}}
secretKeyRef:
  name: {{ include "mcpproxy.postgresName" $ }}
  key: password
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mcpproxy.databaseUrlEnv" -}}
{{- $from := .Values.secrets.databaseUrl -}}
{{- if and $from.existingSecret .Values.postgres.enabled -}}
{{- fail "Both postgres.enabled and secrets.databaseUrl.existingSecret are set: choose the database in the release (for evaluation) or your own." -}}
{{- else if .Values.postgres.enabled -}}
- name: POSTGRES_PASSWORD
  valueFrom:
    {{- include "mcpproxy.postgresPasswordRef" . | nindent 4 }}
- name: MCPPROXY__DATABASE__URL
  value: "postgres://mcpproxy:$(POSTGRES_PASSWORD)@{{ include "mcpproxy.postgresName" . }}:5432/mcpproxy"
{{- else if $from.existingSecret -}}
- name: MCPPROXY__DATABASE__URL
  valueFrom:
    {{- include "mcpproxy.reference" (dict "root" . "name" "databaseUrl" "from" $from) | nindent 4 }}
{{- else -}}
{{- fail "secrets.databaseUrl.existingSecret is not set: name a Secret that holds the database's URL (postgres://user:password@host:5432/name) under the key database-url. To evaluate without a database of your own, set postgres.enabled=true." -}}
{{- end -}}
{{- end -}}

{{/* Where the database is: what migrating needs. */}}
{{- define "mcpproxy.databaseEnv" -}}
{{ include "mcpproxy.databaseUrlEnv" .root }}
{{- $direct := .root.Values.secrets.directUrl -}}
{{- $name := "directUrl" -}}
{{- if and .isMigration .root.Values.secrets.migrationUrl.existingSecret -}}
{{- $direct = .root.Values.secrets.migrationUrl -}}
{{- $name = "migrationUrl" -}}
{{- end -}}
{{- if $direct.existingSecret }}
- name: MCPPROXY__DATABASE__DIRECT_URL
  valueFrom:
    {{- include "mcpproxy.reference" (dict "root" .root "name" $name "from" $direct) | nindent 4 }}
{{- end }}
{{- end -}}

{{/* What only serving needs. */}}
{{- define "mcpproxy.secretEnv" -}}
{{- $master := .Values.secrets.masterKey -}}
{{- if not $master.existingSecret -}}
{{- fail "secrets.masterKey.existingSecret is not set. This chart never generates the master key, since losing it loses every stored upstream credential. Make one, keep a copy of it, and name it: kubectl create secret generic mcpproxy --from-literal=master-key=\"$(openssl rand -base64 32)\", then secrets.masterKey.existingSecret=mcpproxy." -}}
{{- end -}}
- name: MCPPROXY__SECRETS__MASTER_KEY
  valueFrom:
    {{- include "mcpproxy.reference" (dict "root" . "name" "masterKey" "from" $master) | nindent 4 }}
- name: MCPPROXY__SESSIONS__KEY
  valueFrom:
    {{- with .Values.secrets.sessionsKey }}
    {{- if .existingSecret }}
    {{- include "mcpproxy.reference" (dict "root" $ "name" "sessionsKey" "from" .) | nindent 4 }}
    {{- else }}
    secretKeyRef:
      name: {{ include "mcpproxy.generatedSecret" $ }}
      key: sessions-key
    {{- end }}
    {{- end }}
- name: MCPPROXY__AUTH__BOOTSTRAP_KEY
  valueFrom:
    {{- include "mcpproxy.bootstrapKeyRef" . | nindent 4 }}
{{- end -}}
