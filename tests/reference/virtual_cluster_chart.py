"""A chart of our own that behaves as charts of virtual clusters were seen to: a real kube-apiserver and etcd in a pod.

The StatefulSet, its labels, the Service and the Secret `vc-<release>` are named as by the usual chart. The kubeconfig
names `https://localhost:8443`, and the certificate is valid for `localhost` only. There is no kubelet inside, and its
data is gone with the pod.
"""

import io
import tarfile
from pathlib import Path

from tests.fake_cluster.chart_repository import Chart
from tests.reference.control_plane import ControlPlane
from tests.reference.node import busybox_layer, import_image

IMAGE = "localhost/kube:1"
_PROGRAMS = ("kube-apiserver", "etcdpeer")

_SECRETS = """
{{- $ca := genCA "virtual" 30 }}
{{- $cert := genSignedCert "localhost" nil (list "localhost") 30 $ca }}
{{- $token := randAlphaNum 32 }}
{{- $pki := dict "tls.crt" $cert.Cert "tls.key" $cert.Key "sa.key" (genPrivateKey "rsa") }}
{{- $_ := set $pki "tokens.csv" (printf "%s,admin,1,system:masters" $token) }}
{{- $other := genCA "other" 30 }}
{{- $trusted := ternary $other.Cert $ca.Cert (default false .Values.wrongCA) }}
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-pki}
data:
  {{- range $name, $content := $pki }}
  {{ $name }}: {{ $content | b64enc }}
  {{- end }}
---
apiVersion: v1
kind: Secret
metadata: {name: vc-{{ .Release.Name }}}
stringData:
  config: |
    apiVersion: v1
    kind: Config
    current-context: it
    contexts: [{name: it, context: {cluster: it, user: it}}]
    clusters:
      - name: it
        cluster: {server: "https://localhost:8443", certificate-authority-data: {{ $trusted | b64enc }}}
    users: [{name: it, user: {token: {{ $token }}}}]
"""

_WORKLOAD = """
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {app: vcluster, release: {{ .Release.Name }}}
  ports: [{name: https, port: 443, targetPort: 8443}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ .Release.Name }}, labels: {app: vcluster, release: {{ .Release.Name }}}}
spec:
  serviceName: {{ .Release.Name }}
  replicas: 1
  selector: {matchLabels: {app: vcluster, release: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: vcluster, release: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 1
      automountServiceAccountToken: false
      containers:
        - name: syncer
          image: localhost/kube:1
          imagePullPolicy: Never
          command: [/bin/sh, -c]
          args:
            - |
              etcdpeer /data http://127.0.0.1:2379 http://127.0.0.1:2380 &
              exec kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=8443 --cert-dir=/tmp \\
                --tls-cert-file=/pki/tls.crt --tls-private-key-file=/pki/tls.key --token-auth-file=/pki/tokens.csv \\
                --service-account-key-file=/pki/sa.key --service-account-signing-key-file=/pki/sa.key \\
                --service-account-issuer=https://kubernetes.default.svc --authorization-mode=RBAC \\
                --service-cluster-ip-range=10.98.0.0/24
          readinessProbe: {httpGet: {scheme: HTTPS, path: /readyz, port: 8443}, periodSeconds: 1, timeoutSeconds: 5}
          volumeMounts: [{name: pki, mountPath: /pki}, {name: data, mountPath: /data}]
      volumes:
        - {name: pki, secret: {secretName: {{ .Release.Name }}-pki}}
        - {name: data, emptyDir: {}}
"""

CHART = Chart("virtual", {"templates/secrets.yaml": _SECRETS, "templates/workload.yaml": _WORKLOAD})


def import_kubernetes(plane: ControlPlane) -> None:
    """Gives the node the image: busybox and the programs of the reference."""
    buffer = io.BytesIO(busybox_layer())
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        for name in _PROGRAMS:
            archive.add(Path(plane.binaries, name), f"bin/{name}")
    import_image(plane, IMAGE, buffer.getvalue())
