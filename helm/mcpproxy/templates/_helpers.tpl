{{- define "mcpproxy.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- $full = .Release.Name -}}
{{- end -}}
{{- $full = $full | trunc 50 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" $full) -}}
{{- fail (printf "%q cannot be the name of a Service, which begins with a letter and has no dots: set fullnameOverride." $full) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{/* Kubernetes appends to a StatefulSet's name in a label of 63 characters. */}}
{{- define "mcpproxy.postgresName" -}}
{{ include "mcpproxy.fullname" . | trunc 43 | trimSuffix "-" }}-postgres
{{- end -}}

{{/* What a Service, a policy or a spread constraint selects by; never changes for a release. */}}
{{- define "mcpproxy.selector" -}}
{{ include "mcpproxy.componentSelector" (dict "root" . "component" "gateway") }}
{{- end -}}

{{- define "mcpproxy.componentSelector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
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
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set: name the repository that you pushed the image to (deploy/Containerfile), as in registry.example.com/mcpproxy." -}}
{{- end -}}
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

{{/*
replicas is the name of the release before: a file that has it, and an upgrade with --reuse-values, mean it. A replicaCount
other than the default of values.yaml, 2, was given as well, and wins.
*/}}
{{- define "mcpproxy.replicaCount" -}}
{{- $given := .Values.replicaCount -}}
{{- if and (not (kindIs "invalid" .Values.replicas)) (or (kindIs "invalid" $given) (eq (int $given) 2)) -}}
{{- $given = .Values.replicas -}}
{{- end -}}
{{- required "replicaCount is not set" $given -}}
{{- end -}}

{{/* Newer forms of Kubernetes' own kinds; kinds of others are asked for by .Capabilities.APIVersions. */}}
{{- define "mcpproxy.isKube" -}}
{{- if semverCompare (printf ">=%s-0" .version) .root.Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* Seconds that a pod is granted: until nobody is sent to it any more, then for calls, then for the activity log. */}}
{{- define "mcpproxy.grace" -}}
{{- $limits := (include "mcpproxy.config" . | fromJson).limits -}}
{{- add $limits.drain_delay_s (dig "drain_s" 25 $limits) 15 -}}
{{- end -}}

{{/* What every container of this chart may: nothing. */}}
{{- define "mcpproxy.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* OpenShift chooses users itself, and refuses pods that name one. */}}
{{- define "mcpproxy.isOpenShift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end -}}
{{- end -}}

{{- define "mcpproxy.podSecurity" -}}
runAsNonRoot: true
{{- if not (include "mcpproxy.isOpenShift" .) }}
runAsUser: 10001
runAsGroup: 10001
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Labels and annotations of a pod: its `component`'s, podLabels and podAnnotations, and those of pods that end. */}}
{{- define "mcpproxy.podLabels" -}}
{{- $labels := dict -}}
{{- range list .root.Values.podLabels (ternary .root.Values.migration.podLabels dict (default false .ends)) (include "mcpproxy.componentSelector" . | fromYaml) -}}
{{- range $key, $value := . -}}
{{- $_ := set $labels $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $labels -}}
{{- end -}}

{{- define "mcpproxy.podAnnotations" -}}
{{- $annotations := dict -}}
{{- range list .root.Values.podAnnotations (ternary .root.Values.migration.podAnnotations dict (default false .ends)) -}}
{{- range $key, $value := . -}}
{{- $_ := set $annotations $key $value -}}
{{- end -}}
{{- end -}}
{{- if $annotations -}}
{{- toYaml $annotations -}}
{{- end -}}
{{- end -}}

{{/* What is the same for every pod of the release, but for who it runs as. */}}
{{- define "mcpproxy.podCommon" -}}
automountServiceAccountToken: false
# Services of the namespace as variables could be taken for settings
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
