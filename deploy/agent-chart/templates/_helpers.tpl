{{- define "agent.name" -}}
{{- if contains "fairlead-agent" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- else -}}{{ printf "%s-fairlead-agent" .Release.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- end }}

{{- define "agent.selector" -}}
app.kubernetes.io/name: fairlead-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent.labels" -}}
{{ include "agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "agent.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end }}

{{- define "agent.joinSecret" -}}
{{ .Values.join.existingSecret | default (printf "%s-join" (include "agent.name" .)) }}
{{- end }}

{{- define "agent.hasCA" -}}
{{- if or .Values.join.ca .Values.join.existingCA }}true{{ end -}}
{{- end }}

{{/* Stops the rendering if values are missing or contradict each other, and says what to change. */}}
{{- define "agent.check" -}}
{{- if not .Values.server -}}
{{- fail "server: set the URL of the server, such as https://fairlead.example.com" -}}
{{- end -}}
{{- with .Values.join -}}
{{- if not (or .token .existingSecret) -}}
{{- fail "join.token: set what `fairlead cluster add NAME --agent` has created, or name a Secret with it in join.existingSecret" -}}
{{- end -}}
{{- if and .existingSecret (or .token .ca) -}}
{{- fail "join.existingSecret: the token and the CA come from that Secret; remove join.token and join.ca" -}}
{{- end -}}
{{- if and .existingCA (not .existingSecret) -}}
{{- fail "join.existingCA: there is no join.existingSecret; set join.ca to the certificate" -}}
{{- end -}}
{{- end -}}
{{- end }}
