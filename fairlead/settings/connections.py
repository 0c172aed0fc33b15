"""The settings of connections: certificates, proxies and names in clusters. `declarations.py` has them as fields."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from fairlead.core.user import RESERVED_PREFIX
from fairlead.core.validators import check_host_name, check_network
from fairlead.settings.values import HOST, ON_OFF, OWN, SettingInfo

_HEADER_NAME = re.compile(r"[Xx]-[A-Za-z0-9-]{1,62}")
"""Names that begin with X-, so that no header with another meaning is removed from requests."""
_IDENTITY_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#@-]{0,62}(?<=[:/#@-])", re.ASCII)
GENERATED_CERTIFICATE = "generated, in <data>/tls"


def check_proxy_network(value: str) -> str | None:
    if (problem := check_network(value)) is not None:
        return problem
    if ipaddress.ip_network(value).prefixlen == 0:
        return "has all addresses in it: every client could forge its address; name the networks of the proxies"
    return None


def check_header_name(value: str) -> str | None:
    return None if _HEADER_NAME.fullmatch(value) else "must be the name of a header, such as X-Remote-User"


def check_header_prefix(value: str) -> str | None:
    if check_header_name(value) is None and value.endswith("-"):
        return None
    return "must be the beginning of header names and end in a dash, such as X-Remote-Extra-"


TlsCert = Annotated[
    Path | None,
    SettingInfo(
        "TLS",
        "PEM file with the server certificate and its intermediate certificates",
        computed_default=GENERATED_CERTIFICATE,
    ),
]
TlsKey = Annotated[
    Path | None,
    SettingInfo(
        "TLS", "PEM file with the private key of tls_cert, without a passphrase", computed_default=GENERATED_CERTIFICATE
    ),
]
TlsCa = Annotated[
    Path | None,
    SettingInfo(
        "TLS",
        "PEM file with the CA certificate that clients need to trust tls_cert",
        computed_default="CAs of the client's system",
    ),
]
TlsNames = Annotated[
    tuple[str, ...],
    SettingInfo(
        "TLS",
        "Additional DNS names and IP addresses for the generated certificate, comma-separated",
        check=check_host_name,
        computed_default="none",
    ),
]
ClientCa = Annotated[
    Path | None,
    SettingInfo(
        "Client certificates",
        "PEM file with the CAs of client certificates that authenticate users",
        computed_default="none: no such certificates",
    ),
]
ClientCertPort = Annotated[
    int,
    SettingInfo("Client certificates", "Port for users with client certificates, if client_ca is set", maximum=65535),
]
RequestheaderClientCa = Annotated[
    Path | None,
    SettingInfo(
        "Client certificates",
        "PEM file with the CAs of the client certificates of front proxies",
        computed_default="none: no front proxies",
    ),
]
RequestheaderPort = Annotated[
    int, SettingInfo("Client certificates", "Port for front proxies, if there are any", maximum=65535)
]
RequestheaderAllowedNames = Annotated[
    tuple[str, ...],
    SettingInfo(
        "Client certificates",
        "Common names of the certificates of front proxies, comma-separated",
        computed_default="none; required with requestheader_client_ca; those of the host with aggregated_api: host",
    ),
]
RequestheaderUsernameHeaders = Annotated[
    tuple[str, ...],
    SettingInfo(
        "Client certificates",
        "Headers with the user name, comma-separated; the first that is sent counts",
        check=check_header_name,
        computed_default="X-Remote-User",
    ),
]
RequestheaderGroupHeaders = Annotated[
    tuple[str, ...],
    SettingInfo(
        "Client certificates",
        "Headers with the groups of the user, comma-separated",
        check=check_header_name,
        computed_default="X-Remote-Group",
    ),
]
RequestheaderExtraHeadersPrefix = Annotated[
    tuple[str, ...],
    SettingInfo(
        "Client certificates",
        "Prefixes of headers with extra values of the user, comma-separated",
        check=check_header_prefix,
        computed_default="X-Remote-Extra-",
    ),
]
RequestheaderUidHeaders = Annotated[
    tuple[str, ...],
    SettingInfo(
        "Client certificates",
        "Headers with the UID of the user, comma-separated",
        check=check_header_name,
        computed_default="none: it is not read",
    ),
]
RequestheaderLinkUsers = Annotated[
    str,
    SettingInfo(
        "Client certificates",
        "Whether a user name from a front proxy means the user of that name, with its groups and teams",
        choices=ON_OFF,
    ),
]
AggregatedApi = Annotated[
    str,
    SettingInfo(
        "Client certificates",
        "Whether requestheader_port also serves the API without its path prefix, as an APIService of Kubernetes; host: "
        "CA, names and headers of front proxies come from its kube-apiserver",
        choices=(*ON_OFF, HOST),
    ),
]
AggregatedApiAuthorization = Annotated[
    str,
    SettingInfo(
        "Client certificates",
        "Whose permissions decide about requests for the APIService: this server's own, or those of the host",
        choices=(OWN, HOST),
    ),
]
HostKubeconfig = Annotated[
    Path | None,
    SettingInfo(
        "Client certificates",
        "Kubeconfig for the kube-apiserver that has the APIService",
        computed_default="the service account of the pod",
    ),
]
ProxyProtocolNetworks = Annotated[
    tuple[str, ...],
    SettingInfo(
        "Proxies",
        "Networks of the load balancers that use the PROXY protocol on client_cert_port, as comma-separated CIDRs",
        check=check_proxy_network,
        computed_default="none: the PROXY protocol is not used",
    ),
]
TrustedProxies = Annotated[
    tuple[str, ...],
    SettingInfo(
        "Proxies",
        "Networks of the proxies whose X-Forwarded-For names the client, as comma-separated CIDRs",
        check=check_proxy_network,
        computed_default="none",
    ),
]


def check_prefix(text: str) -> str | None:
    """What is wrong with a prefix of names in clusters, or None. An empty prefix is valid."""
    if text.startswith((RESERVED_PREFIX, "service:")):
        return 'must not begin with "system:" or "service:", which are reserved'
    if not text or _IDENTITY_PREFIX.fullmatch(text):
        return None
    return "must be 2 to 63 letters, digits and . _ : / # @ -, begin with a letter or digit and end with : / # @ or -"
