"""Finds settings for certificates and proxies that contradict each other."""

from collections.abc import Iterator

from fairlead.settings.declarations import Settings
from fairlead.settings.values import HOST, OFF, ON, OWN


def find_connection_problems(settings: Settings) -> Iterator[str]:
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
