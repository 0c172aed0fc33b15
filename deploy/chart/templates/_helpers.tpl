{{- define "fairlead.name" -}}
{{- if contains "fairlead" .Release.Name -}}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{- else -}}{{ printf "%s-fairlead" .Release.Name | trunc 52 | trimSuffix "-" }}{{- end -}}
{{- end }}

{{- define "fairlead.selector" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fairlead.labels" -}}
{{ include "fairlead.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "fairlead.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "fairlead.name" .) }}
{{- end }}

{{- define "fairlead.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end }}

{{- define "fairlead.isReplicated" -}}
{{- if ne .Values.store.type "sqlite" }}true{{ end -}}
{{- end }}

{{- define "fairlead.serviceHost" -}}
{{ include "fairlead.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "fairlead.apiGroup" -}}
{{ .Values.settings.api_group | default "management.service.sh" }}
{{- end }}

{{- define "fairlead.usesToken" -}}
{{- if or .Values.localCluster.enabled .Values.aggregatedAPI.enabled }}true{{ end -}}
{{- end }}

{{/* The Service with the port for front proxies. */}}
{{- define "fairlead.proxyService" -}}
{{ include "fairlead.name" . }}-proxies
{{- end }}

{{- define "fairlead.hasFrontProxy" -}}
{{- if or .Values.frontProxy.existingConfigMap .Values.aggregatedAPI.enabled }}true{{ end -}}
{{- end }}

{{/* Stops the rendering if values contradict each other, and says what to change. */}}
{{- define "fairlead.check" -}}
{{- if and (not (include "fairlead.isReplicated" .)) (gt (int .Values.replicas) 1) -}}
{{- fail "replicas: a SQLite database belongs to one pod; set replicas to 1, or store.type to postgres or etcd" -}}
{{- end -}}
{{- if include "fairlead.isReplicated" . -}}
{{- if not .Values.secrets.existingSecret -}}
{{- fail (printf "secrets.existingSecret: store.type %s needs a Secret with FAIRLEAD_STORE, FAIRLEAD_PEPPER and FAIRLEAD_ENCRYPTION_KEYS, which all pods share" .Values.store.type) -}}
{{- end -}}
{{- if not .Values.tls.existingSecret -}}
{{- fail (printf "tls.existingSecret: with store.type %s all pods must have the same certificate; name a Secret of the type kubernetes.io/tls" .Values.store.type) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.host: set the host name of the ingress" -}}
{{- end -}}
{{- if and .Values.gateway.enabled (or (not .Values.gateway.host) (not .Values.gateway.parentRefs)) -}}
{{- fail "gateway: set host, and parentRefs of the Gateway" -}}
{{- end -}}
{{- if and .Values.aggregatedAPI.enabled (not .Values.aggregatedAPI.caBundle) (not .Values.aggregatedAPI.annotations) -}}
{{- fail "aggregatedAPI.caBundle: set the CA certificate of the server (--set-file aggregatedAPI.caBundle=ca.crt), or an annotation with which another program sets it" -}}
{{- end -}}
{{- if and .Values.aggregatedAPI.forwardedGroups (eq .Values.aggregatedAPI.authorization "host") -}}
{{- fail "aggregatedAPI.forwardedGroups: with authorization host, these groups could do everything; remove them, or set authorization to own" -}}
{{- end -}}
{{- if and .Values.aggregatedAPI.enabled .Values.frontProxy.existingConfigMap -}}
{{- fail "frontProxy.existingConfigMap: with aggregatedAPI, the CA of front proxies comes from the cluster; remove it" -}}
{{- end -}}
{{- if and .Values.frontProxy.existingConfigMap (not .Values.frontProxy.allowedNames) -}}
{{- fail "frontProxy.allowedNames: without names, every certificate of the CA could name any user" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.serviceMonitor.existingSecret) -}}
{{- fail "metrics.serviceMonitor.existingSecret: name a Secret with an access key that may read /metrics" -}}
{{- end -}}
{{- end }}
