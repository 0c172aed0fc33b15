"""A chart of our own for a virtual cluster: a real kube-apiserver with its controllers and etcd in one pod.

It has the names and labels of charts for virtual clusters, and behaves as these were seen to: a StatefulSet with a
claim for its data, a Service, and a Secret `vc-<release>` with a kubeconfig for `https://localhost:8443`. Its
certificate is for `localhost` only, so nothing but a tunnel that keeps that name reaches it. An upgrade keeps the
certificates.

There is no scheduler and no syncer inside: objects are kept and reconciled, and pods stay Pending. `add_pod` does for
one pod what a syncer would do: a pod of the node is also in the virtual cluster, whose API server reaches the kubelet.

| value | default | meaning |
|---|---|---|
| `server` | `https://localhost:8443` | the address in the kubeconfig |
| `replicas` | 1 | pods |
| `storage` | `1Gi` | size of the claim; empty: the data is on an emptyDir |
| `size` | 0 | written into a ConfigMap, to tell upgrades apart |
| `partial` | false | also an object that the cluster refuses |
"""

import json

from tests.fake_cluster.chart_repository import Chart
from tests.harness.kubectl import Kubectl
from tests.reference.connected_cluster import IMAGE, run_pod
from tests.reference.control_plane import ControlPlane, Network
from tests.reference.node import NAME as NODE
from tests.reference.node import build_layer
from tests.reference.virtual_node import Image, Offer

KUBE_IMAGE = "localhost/kube:1"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "etcdpeer")
KUBELET_FILES = ("ca.crt", "kubelet-client.crt", "kubelet-client.key")
KUBELET_PORT = 10250
NAME = "own-vcluster"

_VALUES = """\
server: https://localhost:8443
replicas: 1
storage: 1Gi
size: 0
partial: false
"""

_SECRETS = """\
{{- $name := printf "vc-%s" .Release.Name }}
{{- $known := (lookup "v1" "Secret" .Release.Namespace $name).data | default dict }}
{{- $ca := genCA "virtual-ca" 3650 }}
{{- $pair := genSignedCert "kube-apiserver" nil (list "localhost") 3650 $ca }}
{{- $authority := index $known "certificate-authority" | default ($ca.Cert | b64enc) }}
{{- $certificate := index $known "serving-certificate" | default ($pair.Cert | b64enc) }}
{{- $key := index $known "serving-key" | default ($pair.Key | b64enc) }}
{{- $token := index $known "token" | default (randAlphaNum 40 | b64enc) }}
apiVersion: v1
kind: Secret
metadata: {name: {{ $name }}}
data:
  certificate-authority: {{ $authority }}
  serving-certificate: {{ $certificate }}
  serving-key: {{ $key }}
  token: {{ $token }}
  tokens: {{ printf "%s,virtual-admin,virtual-admin,\\"system:masters\\"\\n" ($token | b64dec) | b64enc }}
  {{- $access := dict "ca" $authority "token" ($token | b64dec) }}
  config: {{ include "kubeconfig" (merge (dict "server" .Values.server) $access) | b64enc }}
  inside: {{ include "kubeconfig" (merge (dict "server" "https://localhost:8443") $access) | b64enc }}
"""

_HELPERS = """\
{{- define "kubeconfig" -}}
apiVersion: v1
kind: Config
current-context: virtual
clusters: [{name: virtual, cluster: {server: "{{ .server }}", certificate-authority-data: {{ .ca }}}}]
users: [{name: virtual, user: {token: {{ .token }}}}]
contexts: [{name: virtual, context: {cluster: virtual, user: virtual}}]
{{- end -}}
"""

_SERVICES = """\
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {app: vcluster, release: {{ .Release.Name }}}
  ports: [{name: https, port: 443, targetPort: 8443}]
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-headless}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: vcluster, release: {{ .Release.Name }}}
  ports: [{name: https, port: 443, targetPort: 8443}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data: {size: {{ .Values.size | quote }}}
{{- if .Values.partial }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: UPPER}
{{- end }}
"""

_SCRIPT = """\
etcdpeer /data/etcd http://127.0.0.1:2379 http://127.0.0.1:2380 &
(while :; do kube-controller-manager --kubeconfig=/secrets/inside --leader-elect=false --secure-port=0
--service-account-private-key-file=/secrets/serving-key --root-ca-file=/secrets/certificate-authority
--controllers=*,-bootstrap-signer-controller,-token-cleaner-controller; sleep 1; done) &
exec kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=8443
--tls-cert-file=/secrets/serving-certificate --tls-private-key-file=/secrets/serving-key
--token-auth-file=/secrets/tokens --authorization-mode=RBAC
--service-account-issuer=https://localhost:8443 --service-account-key-file=/secrets/serving-key
--service-account-signing-key-file=/secrets/serving-key --service-cluster-ip-range=10.94.0.0/24
--kubelet-certificate-authority=/kubelet/ca.crt --kubelet-preferred-address-types=InternalIP
--kubelet-client-certificate=/kubelet/kubelet-client.crt --kubelet-client-key=/kubelet/kubelet-client.key
"""

_WORKLOAD = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .Release.Name }}
  labels: {app: vcluster, release: {{ .Release.Name }}}
spec:
  serviceName: {{ .Release.Name }}-headless
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: vcluster, release: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: vcluster, release: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 5
      automountServiceAccountToken: false
      containers:
        - name: syncer
          image: IMAGE
          imagePullPolicy: Never
          command: [sh, -c, SCRIPT]
          ports: [{containerPort: 8443}]
          readinessProbe: {httpGet: {path: /readyz, port: 8443, scheme: HTTPS}, periodSeconds: 1, timeoutSeconds: 5}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: secrets, mountPath: /secrets}
      volumes:
        - {name: secrets, secret: {secretName: vc-{{ .Release.Name }}}}
        {{- if not .Values.storage }}
        - {name: data, emptyDir: {}}
        {{- end }}
  {{- if .Values.storage }}
  volumeClaimTemplates:
    - metadata: {name: data}
      spec:
        storageClassName: ""
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: {{ .Values.storage }}}}
  {{- end }}
"""


def offer_own_chart(plane: ControlPlane) -> Offer:
    """In the template `own`, to Fairlead with an administrator's token."""
    programs = {f"bin/{each}": plane.binaries / each for each in PROGRAMS}
    credentials = {f"kubelet/{each}": plane.folder / each for each in KUBELET_FILES}
    return Offer(_build_chart(), "own", [Image(KUBE_IMAGE, build_layer(programs | credentials))])


def add_pod(host: Kubectl, inside: Kubectl, network: Network, name: str) -> None:
    """Runs a pod in the namespace `default` of the cluster, and enters it in that of the virtual cluster."""
    run_pod(host, name)
    ip = host.get_json("pod", name)["status"]["podIP"]
    node_status = {
        "addresses": [{"type": "InternalIP", "address": network.node}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "status": node_status}
    container = {"name": name, "image": IMAGE}
    spec = {"nodeName": NODE, "automountServiceAccountToken": False, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    for each in (node, pod):
        inside("create", "-f", "-", body=json.dumps(each))
    status = {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}}
    inside("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))


def _build_chart() -> Chart:
    script = _SCRIPT.replace("\n--", " --")  # one line for each program
    workload = _WORKLOAD.replace("SCRIPT", json.dumps(script)).replace("IMAGE", KUBE_IMAGE)
    files = {
        "values.yaml": _VALUES,
        "templates/_helpers.tpl": _HELPERS,
        "templates/secrets.yaml": _SECRETS,
        "templates/services.yaml": _SERVICES,
        "templates/workload.yaml": workload,
    }
    return Chart(NAME, files)
