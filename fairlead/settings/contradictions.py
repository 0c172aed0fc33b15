"""Finds settings that contradict each other."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from fairlead.core.addresses import is_loopback
from fairlead.settings.declarations import Settings
from fairlead.settings.values import HOST, OFF, ON, OWN


def find_contradictions(settings: Settings) -> Iterator[str]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        yield "tls_cert and tls_key must be set together; set both, or neither for a generated certificate"
    elif settings.tls_ca and not settings.tls_cert:
        yield "tls_ca requires tls_cert; leave it out, or set tls_cert and tls_key as well"
    elif settings.tls_names and settings.tls_cert:
        yield "tls_names only apply to the generated certificate; leave them out, or leave out tls_cert and tls_key"
    host = urlsplit(settings.public_url).hostname or ""
    domain = settings.port_domain
    if domain and f".{host}".endswith(f".{domain}"):
        yield f"workspace_domain: {host} of public_url is in it, so the server would have no address; use another"
    yield from _find_replica_problems(settings)
    yield from _find_connection_problems(settings)
    if 0 < settings.audit_max_days < settings.audit_min_days:
        yield "audit_max_days is less than audit_min_days; raise it, or lower audit_min_days"


def _find_replica_problems(settings: Settings) -> Iterator[str]:
    if not settings.replica_address:
        return
    if not settings.store_url.startswith(("postgres", "etcd")):
        yield "replica_address needs a store that several servers share; leave it out, or use PostgreSQL or etcd"
    if settings.replica_port == 0 and settings.worker_count > 1:
        yield "replica_port: 0 is for servers with one worker; choose a port, or set workers to 1"
    elif settings.replica_port and settings.replica_port == settings.port:
        yield "replica_port is the port that serves clients; choose another one"
    if is_loopback(settings.listen) and not is_loopback(settings.replica_address):
        yield (
            f"replica_address: other replicas cannot reach this server, which listens on {settings.listen} only; "
            "set listen to 0.0.0.0, or to an address that they reach"
        )


def _find_connection_problems(settings: Settings) -> Iterator[str]:
    has_names = bool(settings.requestheader_allowed_names)
    if settings.aggregated_api != HOST and bool(settings.requestheader_client_ca) != has_names:
        yield (
            "requestheader_client_ca and requestheader_allowed_names must be set together: without names, every "
            "certificate of the CA could name any user"
        )
    if settings.requestheader_client_ca and not settings.requestheader_username_headers:
        yield "requestheader_username_headers must not be empty; leave it out for X-Remote-User"
    if settings.aggregated_api == ON and not settings.requestheader_client_ca:
        yield "aggregated_api needs requestheader_client_ca, the CA of the kube-apiserver's proxy client certificate"
    yield from _find_host_problems(settings)
    if settings.client_ca and settings.client_ca == settings.requestheader_client_ca:
        yield (
            "client_ca and requestheader_client_ca are the same file; use another CA for front proxies: users with a "
            "certificate could act as one"
        )
    if settings.proxy_protocol_networks and not settings.client_ca:
        yield "proxy_protocol_networks needs client_ca: without it, there is no client_cert_port to connect to"
    yield from _find_port_problems(settings)


def _find_host_problems(settings: Settings) -> Iterator[str]:
    asks_host = settings.aggregated_api_authorization != OWN
    if settings.aggregated_api == HOST and settings.requestheader_client_ca:
        yield "requestheader_client_ca cannot be set with aggregated_api: host, which takes the CA from the host"
    if asks_host and settings.aggregated_api == OFF:
        yield "aggregated_api_authorization needs aggregated_api: without it, there are no requests of a host"
    if settings.host_kubeconfig and settings.aggregated_api != HOST and not asks_host:
        yield "host_kubeconfig needs aggregated_api: host, or aggregated_api_authorization: nothing else uses it"


def _find_port_problems(settings: Settings) -> Iterator[str]:
    ports = {"port": settings.port}
    if settings.replica_address:
        ports["replica_port"] = settings.replica_port
    if settings.client_ca:
        ports["client_cert_port"] = settings.client_cert_port
    if settings.requestheader_client_ca or settings.aggregated_api == HOST:
        ports["requestheader_port"] = settings.requestheader_port
    for name in ("client_cert_port", "requestheader_port"):
        others = [other for other, port in ports.items() if other != name and port == ports.get(name)]
        if others:
            yield f"{name} is the same port as {others[0]}; choose another one"
            return
