{{- define "mcpproxy.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What a Service, a policy or a spread constraint selects by; never changes for a release. */}}
{{- define "mcpproxy.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "mcpproxy.postgresSelector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: postgres
{{- end -}}

{{/* Labels of objects that no selector is to find by component. */}}
{{- define "mcpproxy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "mcpproxy.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "mcpproxy.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "mcpproxy.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* How the schema gets into the database: hook, init or off. */}}
{{- define "mcpproxy.migrationMode" -}}
{{- $mode := .Values.migration.mode -}}
{{- if eq $mode "auto" -}}
{{- ternary "init" "hook" .Values.postgres.enabled -}}
{{- else if and (eq $mode "hook") .Values.postgres.enabled -}}
{{- fail "migration.mode is hook, but the hook runs before the database of postgres.enabled exists: leave it at auto." -}}
{{- else -}}
{{- $mode -}}
{{- end -}}
{{- end -}}

{{/* Newer forms of Kubernetes' own kinds; kinds of others are asked for by .Capabilities.APIVersions. */}}
{{- define "mcpproxy.isKube" -}}
{{- if semverCompare (printf ">=%s-0" .version) .root.Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* Seconds in which a replica still takes connections, then seconds in which running calls may end. */}}
{{- define "mcpproxy.drainDelay" -}}
{{- dig "limits" "drain_delay_s" 0 .Values.config | int64 -}}
{{- end -}}

{{- define "mcpproxy.drain" -}}
{{- dig "limits" "drain_s" 25 .Values.config | int64 -}}
{{- end -}}

{{/* What every container of this chart may: nothing. */}}
{{- define "mcpproxy.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "mcpproxy.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}
