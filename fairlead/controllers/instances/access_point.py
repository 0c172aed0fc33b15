"""The access point of a virtual cluster: an Ingress in its namespace, at a name below the suffix of its cluster. Pure.

The ingress controller passes TLS through to the API server of the virtual cluster, so nothing in between sees requests
or credentials. Whether a client can use it depends on what the virtual cluster accepts: with `forwardToken`, it
authenticates the tokens of this server itself, also those that arrive here.
"""

from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.core.objects import Object, get_path
from fairlead.domain.typed_objects import INGRESS_SUFFIX_ANNOTATION, Cluster, VirtualClusterInstance
from fairlead.kinds.instances.templates import forwards_token
from fairlead.registry.names import dns_subdomain_errors

HTTPS_PORT = 443
PASSTHROUGH_ANNOTATIONS = {
    "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
    "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
    "nginx.ingress.kubernetes.io/ssl-redirect": "true",
    "haproxy-ingress.github.io/ssl-passthrough": "true",
    "haproxy.org/ssl-passthrough": "true",
}
"""How ingress controllers are told not to end TLS; each ignores those of the others."""


def access_host(instance: VirtualClusterInstance, cluster: Cluster | None) -> str:
    """The name of its access point; empty if its template has none. Raises InstanceError if the cluster has no suffix
    for it. Its namespace is that of no other virtual cluster in the cluster."""
    if not get_path(instance.rendered, "accessPoint.ingress.enabled"):
        return ""
    suffix = cluster.ingress_suffix if cluster is not None else ""
    advice = f'annotate cluster "{instance.cluster}" with {INGRESS_SUFFIX_ANNOTATION}=DOMAIN, for which its ingress'
    if not suffix:
        message = f"accessPoint.ingress of its template needs a domain: {advice} controller is reached"
        raise InstanceError("IngressSuffixNotSet", message, ERROR)
    host = f"{instance.remote_namespace}.{suffix}"
    for fault in dns_subdomain_errors(host):
        message = f'the name "{host}" of its access point {fault}; {advice} controller is reached'
        raise InstanceError("InvalidIngressSuffix", message, ERROR)
    return host


def build_ingress(instance: VirtualClusterInstance, host: str) -> Object:
    """Leads to the Service of the release."""
    service = {"name": instance.release_name, "port": {"number": HTTPS_PORT}}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": service}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": f"{instance.release_name}-access-point", "annotations": dict(PASSTHROUGH_ANNOTATIONS)},
        "spec": {"tls": [{"hosts": [host]}], "rules": [{"host": host, "http": {"paths": [path]}}]},
    }


def describe_access_point(instance: VirtualClusterInstance, host: str, ca_data: str) -> Object | None:
    """The field `accessPoint` of the status, from the certificate authority of its kubeconfig."""
    if not host:
        return None
    return {
        "url": f"https://{host}",
        "certificateAuthority": ca_data,
        "acceptsTokens": forwards_token(instance),
    }
