{{- define "fairlead.pod" -}}
{{- $replicated := include "fairlead.isReplicated" . -}}
serviceAccountName: {{ include "fairlead.serviceAccount" . }}
automountServiceAccountToken: {{ include "fairlead.usesToken" . | eq "true" }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ add .Values.drainSeconds .Values.shutdownGraceSeconds 10 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: fairlead
    image: {{ include "fairlead.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [serve, --config, /etc/fairlead/fairlead.yaml]
    env:
      - name: POD_IP
        valueFrom: {fieldRef: {fieldPath: status.podIP}}
      {{- if $replicated }}
      - name: FAIRLEAD_REPLICA_ADDRESS
        value: $(POD_IP)
      {{- end }}
    {{- with .Values.secrets.existingSecret }}
    envFrom:
      - secretRef: {name: {{ . }}}
    {{- end }}
    ports:
      - {name: https, containerPort: 8443}
      {{- if $replicated }}
      - {name: replicas, containerPort: 8444}
      {{- end }}
      {{- if .Values.clientCertificates.existingConfigMap }}
      - {name: client-certs, containerPort: 8445}
      {{- end }}
      {{- if include "fairlead.hasFrontProxy" . }}
      - {name: front-proxy, containerPort: 8446}
      {{- end }}
    # A server that loads many objects takes a while to start; liveness checks nothing but the process.
    startupProbe:
      httpGet: {path: /livez, port: https, scheme: HTTPS}
      periodSeconds: 2
      # Half an hour: the first start of a new version may migrate a million objects.
      failureThreshold: 900
    livenessProbe:
      httpGet: {path: /livez, port: https, scheme: HTTPS}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: https, scheme: HTTPS}
      periodSeconds: 5
      timeoutSeconds: 3
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    volumeMounts:
      - {name: data, mountPath: /data}
      - {name: settings, mountPath: /etc/fairlead, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      {{- if .Values.tls.existingSecret }}
      - {name: tls, mountPath: /etc/fairlead-tls, readOnly: true}
      {{- end }}
      {{- if .Values.clientCertificates.existingConfigMap }}
      - {name: client-ca, mountPath: /etc/fairlead-client-ca, readOnly: true}
      {{- end }}
      {{- if .Values.frontProxy.existingConfigMap }}
      - {name: front-proxy-ca, mountPath: /etc/fairlead-front-proxy-ca, readOnly: true}
      {{- end }}
volumes:
  - name: settings
    configMap: {name: {{ include "fairlead.name" . }}-settings}
  - name: tmp
    emptyDir: {}
  {{- if $replicated }}
  - name: data
    emptyDir: {}
  {{- end }}
  {{- with .Values.tls.existingSecret }}
  - name: tls
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- with .Values.clientCertificates.existingConfigMap }}
  - name: client-ca
    configMap: {name: {{ . }}}
  {{- end }}
  {{- with .Values.frontProxy.existingConfigMap }}
  - name: front-proxy-ca
    configMap: {name: {{ . }}}
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
topologySpreadConstraints:
  {{- if .Values.topologySpreadConstraints }}
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "fairlead.selector" . | nindent 8 }}
  {{- end }}
{{- end }}
