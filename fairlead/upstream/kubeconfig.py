"""Parses and validates the kubeconfig of a connected cluster into a `ClusterEndpoint`.

`clusters.py` and the admission rule for clusters call this. For kubectl a kubeconfig is code: it names programs to
run, files to read and proxies to use. Here untrusted users store it, so programs and files are rejected, and so are
unknown fields. A proxy is used only if the operator allows it (`clusters.py`). Only inline data of the current context
counts.

Functions that parse a field return its value (empty if it is not set) and a problem, or None. Problems name fields and
never quote values, which may be secret.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object
from fairlead.core.validators import check_host_name
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.http_proxy import parse_proxy_url

_URL_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
_URL_EXAMPLE = "it must look like https://cluster.example.com:6443"
# Printable ASCII without spaces. A line break in a token would inject headers.
_TOKEN = re.compile(r"[!-~]+")
TOKEN_ADVICE = "use a service account token, created with `kubectl create token` or stored in a Secret"
AGENT_ADVICE = "or let an agent dial out: `fairlead cluster add NAME --agent`"
INLINE_ADVICE = "put the file's content into {}-data (`kubectl config view --raw --flatten` does this)"
CLUSTER_FIELDS = frozenset(
    {
        "server",
        "certificate-authority-data",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "disable-compression",
        "proxy-url",
    }
)
USER_FIELDS = frozenset({"token", "client-certificate-data", "client-key-data"})
_LINE_NUMBER = re.compile(r"line \d+")
_FIELD_NAME = re.compile(r"[A-Za-z-]{1,40}")
IGNORED_FIELDS = frozenset({"extensions"})
"""Extensions of other tools, without effect here."""
REJECTED_FIELDS = {
    "exec": f"would run a program on the server; {TOKEN_ADVICE}, {AGENT_ADVICE}",
    "auth-provider": f"is not supported; {TOKEN_ADVICE}",
    "tokenFile": "names a file; put the token itself into token",
    "username": f"and password are not supported; {TOKEN_ADVICE}",
    "password": f"and username are not supported; {TOKEN_ADVICE}",
    "certificate-authority": f"names a file; {INLINE_ADVICE.format('certificate-authority')}",
    "client-certificate": f"names a file; {INLINE_ADVICE.format('client-certificate')}",
    "client-key": f"names a file; {INLINE_ADVICE.format('client-key')}",
    **dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"),
        "is not supported, because requests impersonate the requesting user; remove it",
    ),
}


@dataclass(frozen=True, slots=True)
class ServerUrl:
    host: str
    port: int
    path: str


NO_SERVER_URL = ServerUrl("", 0, "")


def parse_server_url(value: Any) -> tuple[ServerUrl, str | None]:
    """Parses `server`. Ambiguous URLs are rejected, not interpreted."""
    if not isinstance(value, str) or not value:
        return NO_SERVER_URL, f"cluster: server is missing; {_URL_EXAMPLE}"
    if not value.isascii() or any(character <= " " or character in "\\\x7f" for character in value):
        return NO_SERVER_URL, f"cluster: server has characters that are not allowed in a URL; {_URL_EXAMPLE}"
    try:
        parts = urlsplit(value)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return NO_SERVER_URL, f"cluster: server is not a URL; {_URL_EXAMPLE}"
    if problem := _server_url_problem(value, host, port):
        return NO_SERVER_URL, f"cluster: {problem}; {_URL_EXAMPLE}"
    return ServerUrl(host, port or 443, parts.path.rstrip("/")), None


def _server_url_problem(value: str, host: str, port: int | None) -> str | None:
    parts = urlsplit(value)
    if parts.scheme != "https":
        return "server must be an https URL"
    if "@" in parts.netloc:
        return "server contains a user name or password, which belong in the user entry"
    if "?" in value or "#" in value:
        return "server has a query or a fragment"
    # An IPv6 zone (`%eth0`) selects an interface of this host. It is not part of a cluster's address.
    if any(sign in host for sign in "*%") or check_host_name(host) is not None:
        return "server has no valid host"
    if port == 0 or parts.netloc.endswith(":"):
        return "server has no valid port"
    if not _URL_PATH.fullmatch(parts.path) or any(step in (".", "..") for step in parts.path.split("/")):
        return "server has a path with special characters, or with `.` or `..` segments"
    return None


def parse_token(user: Object) -> tuple[str, str | None]:
    value = user.get("token")
    if value in (None, ""):
        return "", None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value.strip()):
        return "", "user: token must be one line without spaces; copy it again"
    return value.strip(), None


def parse_ca_data(cluster: Object) -> tuple[str, str | None]:
    """Parses `certificate-authority-data`. Empty: the system's CA certificates are trusted."""
    text, problem = _decode_pem(cluster, "cluster", "certificate-authority-data")
    if problem or not text:
        return "", problem
    if not _load_certificates(text):
        return "", "cluster: certificate-authority-data contains no PEM certificate; export the CA again"
    return text, None


def parse_client_certificate(user: Object) -> tuple[tuple[str, str], str | None]:
    certificate, problem = _decode_pem(user, "user", "client-certificate-data")
    key, other_problem = _decode_pem(user, "user", "client-key-data")
    if problem := problem or other_problem:
        return ("", ""), problem
    if not certificate and not key:
        return ("", ""), None
    if not certificate or not key:
        return ("", ""), "user: client-certificate-data and client-key-data must both be set; set both, or use a token"
    if problem := _key_pair_problem(certificate, key):
        return ("", ""), f"user: {problem}"
    return (certificate, key), None


def _key_pair_problem(certificate: str, key: str) -> str | None:
    certificates = _load_certificates(certificate)
    if not certificates:
        return "client-certificate-data contains no PEM certificate; export it again"
    try:
        # To validate an RSA key takes 200 ms. A key that is not valid only fails its owner: it is compared below.
        key_pair = load_pem_private_key(key.encode(), None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "client-key-data contains no unencrypted PEM key; export it again"
    try:
        public = certificates[0].public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "client-certificate-data has an unsupported key type; use RSA or ECDSA"
    if public != key_pair.public_key():
        return "client-key-data does not match client-certificate-data; export both again"
    return None


def _load_certificates(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return []


def _decode_pem(section: Object, section_name: str, field: str) -> tuple[str, str | None]:
    value: Any = section.get(field)
    if value in (None, ""):
        return "", None
    try:
        # Pasted base64 often has line breaks.
        return b64decode("".join(value.split()), validate=True).decode("ascii"), None
    except (ValueError, AttributeError):
        return "", f"{section_name}: {field} is not a base64-encoded PEM file; export it again"


class InvalidKubeconfig(ValueError):
    """A rejected kubeconfig, with all problems found in it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(slots=True)
class _ProblemCollector:
    """Collects problems, so that all of them are reported at once."""

    problems: list[str] = field(default_factory=list)

    def fatal_error(self, problem: str) -> InvalidKubeconfig:
        return InvalidKubeconfig((*self.problems, problem))

    def collect(self, value: Any, problem: str | None) -> Any:
        if problem:
            self.problems.append(problem)
        return value


_parsed: WeakValueDictionary[bytes, ClusterEndpoint] = WeakValueDictionary()
"""What is in use, by the digest of the kubeconfig: probes and controllers read the same one again and again."""


def parse_kubeconfig(content: bytes) -> ClusterEndpoint:
    """Parses the cluster and user of the current context. Raises InvalidKubeconfig."""
    digest = sha256(content).digest()
    endpoint = _parsed.get(digest)
    if endpoint is None:
        endpoint = _parsed[digest] = _parse(content)
    return endpoint


def _parse(content: bytes) -> ClusterEndpoint:
    collector = _ProblemCollector()
    config = _load_yaml(content, collector)
    context = _find_entry(config, "contexts", "context", _current_context(config, collector), collector)
    cluster = _find_entry(config, "clusters", "cluster", context.get("cluster"), collector)
    user = _find_entry(config, "users", "user", context.get("user"), collector)
    collector.problems += _field_problems("cluster", cluster, CLUSTER_FIELDS)
    collector.problems += _field_problems("user", user, USER_FIELDS)
    if cluster.get("insecure-skip-tls-verify"):
        collector.problems.append(
            "cluster: insecure-skip-tls-verify is not accepted; put the cluster's CA into certificate-authority-data"
        )
    endpoint = _build_endpoint(cluster, user, collector)
    if collector.problems:
        raise InvalidKubeconfig(tuple(collector.problems))
    return endpoint


def with_user_fields(content: bytes, fields: Mapping[str, str]) -> bytes:
    """The kubeconfig with these fields of the user of its current context. Everything else is kept. Raises
    InvalidKubeconfig."""
    collector = _ProblemCollector()
    config = _load_yaml(content, collector)
    context = _find_entry(config, "contexts", "context", _current_context(config, collector), collector)
    user = _find_entry(config, "users", "user", context.get("user"), collector)
    user.update(fields)
    return yaml.encode(config)


def kubeconfig_problems(content: bytes) -> tuple[str, ...]:
    """The problems of a kubeconfig; empty if it is valid."""
    try:
        parse_kubeconfig(content)
    except InvalidKubeconfig as error:
        return error.problems
    return ()


def _build_endpoint(cluster: Object, user: Object, collector: _ProblemCollector) -> ClusterEndpoint:
    url: ServerUrl = collector.collect(*parse_server_url(cluster.get("server")))
    certificate, key = collector.collect(*parse_client_certificate(user))
    endpoint = ClusterEndpoint(
        host=url.host,
        port=url.port,
        base_path=url.path,
        tls_server_name=_tls_server_name(cluster, collector) or url.host,
        ca_data=collector.collect(*parse_ca_data(cluster)),
        token=collector.collect(*parse_token(user)),
        client_certificate=certificate,
        client_key=key,
        proxy=collector.collect(*parse_proxy_url(cluster.get("proxy-url"))),
    )
    # A problem with a credential field already has its own advice.
    if not endpoint.token and not endpoint.client_certificate and not collector.problems:
        collector.problems.append(f"user: has neither a token nor a client certificate; {TOKEN_ADVICE}")
    return endpoint


def _tls_server_name(cluster: Object, collector: _ProblemCollector) -> str:
    name = cluster.get("tls-server-name") or ""
    if name and (not isinstance(name, str) or check_host_name(name) is not None or "*" in name):
        collector.problems.append("cluster: tls-server-name must be a lowercase DNS name or an IP address")
        return ""
    return str(name)


def _load_yaml(content: bytes, collector: _ProblemCollector) -> Object:
    try:
        config, duplicates = yaml.decode(content)
    except Malformed as error:  # its text may quote the content
        line = _LINE_NUMBER.search(str(error))
        where = f" in {line[0]}" if line else ""
        raise collector.fatal_error(f"invalid YAML{where}; store the output of `kubectl config view --raw`") from None
    if not isinstance(config, dict):
        raise collector.fatal_error("empty or not a kubeconfig; store the output of `kubectl config view --raw`")
    if config.get("kind", "Config") != "Config" or config.get("apiVersion", "v1") != "v1":
        collector.problems.append("wrong kind; a kubeconfig has apiVersion v1 and kind Config")
    if duplicates:
        collector.problems.append("duplicate field, which tools interpret differently; remove one of them")
    return config


def _current_context(config: Object, collector: _ProblemCollector) -> str:
    """Name of the current context, or of the only one."""
    if isinstance(name := config.get("current-context"), str) and name:
        return name
    contexts = config.get("contexts")
    only = contexts[0] if isinstance(contexts, list) and len(contexts) == 1 else None
    if isinstance(only, dict) and isinstance(only.get("name"), str):
        return str(only["name"])
    raise collector.fatal_error("current-context is missing; set it, or keep only one context (`--minify` does this)")


def _find_entry(config: Object, section: str, field_name: str, name: Any, collector: _ProblemCollector) -> Object:
    """Finds the entry with the name. Raises InvalidKubeconfig immediately, since nothing else can be checked then."""
    listed = config.get(section)
    entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    found = [each.get(field_name) for each in entries if each.get("name") == name]
    if len(found) != 1 or not isinstance(name, str):
        how = "is not in" if not found else "occurs more than once in"
        raise collector.fatal_error(
            f"the {field_name} {how} {section}; export it with `kubectl config view --raw --minify`"
        )
    if not isinstance(found[0], dict):
        raise collector.fatal_error(
            f"{field_name}: must be an object; export it with `kubectl config view --raw --minify`"
        )
    return found[0]


def _field_problems(section_name: str, fields: Object, known: frozenset[str]) -> Iterator[str]:
    for name in sorted(fields.keys() - known - IGNORED_FIELDS):
        # Some tools write empty values for unset fields.
        if fields[name] in (None, "", [], {}):
            continue
        label = name if _FIELD_NAME.fullmatch(name) else "a field with an invalid name"
        yield (
            f"{section_name}: {name} {REJECTED_FIELDS[name]}"
            if name in REJECTED_FIELDS
            else f"{section_name}: {label} is not supported; remove it"
        )
