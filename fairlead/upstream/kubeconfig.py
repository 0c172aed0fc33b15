"""Kubeconfigs as they are accepted for connected clusters: one context of one, read strictly, into an Access.

`clusters.py` and the admission rule for clusters call this. A kubeconfig is code where it is used by kubectl: it names
programs to run, files to read and proxies to go through. Here whoever stores it is not whoever runs the server, so none
of that is accepted: what counts is in the text itself, and a field that is not known is not passed over. Problems name
fields and never what is in them.
"""

import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object
from fairlead.core.validators import check_host_name
from fairlead.upstream.access import Access

# DOC-MERGED upstream/server_url
# The server's URL in a kubeconfig, taken apart with suspicion; `kubeconfig.py` calls this.


_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
_HINT = "it must look like https://cluster.example.com:6443"


@dataclass(frozen=True, slots=True)
class ServerUrl:
    host: str
    port: int
    path: str


NOWHERE = ServerUrl("", 0, "")


def server_url(value: Any) -> tuple[ServerUrl, str | None]:
    """The parts that count, or what is wrong. What people may not have meant is refused rather than read somehow."""
    if not isinstance(value, str) or not value:
        return NOWHERE, f"cluster: server is missing; {_HINT}"
    if not value.isascii() or any(character <= " " or character in "\\\x7f" for character in value):
        return NOWHERE, f"cluster: server has characters that no address has; {_HINT}"
    try:
        parts = urlsplit(value)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return NOWHERE, f"cluster: server is no address; {_HINT}"
    if problem := _problem(value, host, port):
        return NOWHERE, f"cluster: {problem}; {_HINT}"
    return ServerUrl(host, port or 443, parts.path.rstrip("/")), None


def _problem(value: str, host: str, port: int | None) -> str | None:
    parts = urlsplit(value)
    if parts.scheme != "https":
        return "server must be reached over https"
    if "@" in parts.netloc:
        return "server has a user name or password in it, which belong into the user's entry"
    if "?" in value or "#" in value:
        return "server has a query or a fragment"
    # A zone (`%eth0`) is a way around within this machine, and no part of any address that others know.
    if any(sign in host for sign in "*%") or check_host_name(host) is not None:
        return "server has no usable host"
    if port == 0 or parts.netloc.endswith(":"):
        return "server has no usable port"
    if not _PATH.fullmatch(parts.path) or any(step in (".", "..") for step in parts.path.split("/")):
        return "server has a path with unusual characters or dots for steps"
    return None


# DOC-MERGED upstream/credentials
# What a kubeconfig holds in the way of credentials and authorities, checked; `kubeconfig.py` calls this.
#
# Each function returns what it found, empty where there is nothing, and what is wrong with it, never quoting it.


# What may stand in a header. A line break would let a token write headers of its own.
_TOKEN = re.compile(r"[!-~]+")


def token(user: Object) -> tuple[str, str | None]:
    value = user.get("token")
    if value in (None, ""):
        return "", None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value.strip()):
        return "", "user: token must be one line of text without blanks; copy it again"
    return value.strip(), None


def authority(cluster: Object) -> tuple[str, str | None]:
    """The certificates that the cluster's is trusted by, or nothing for the machine's own."""
    text, problem = _pem(cluster, "cluster", "certificate-authority-data")
    if problem or not text:
        return "", problem
    if not _certificates(text):
        return "", "cluster: certificate-authority-data holds no certificate in PEM; export the CA again"
    return text, None


def certificate_and_key(user: Object) -> tuple[tuple[str, str], str | None]:
    certificate, problem = _pem(user, "user", "client-certificate-data")
    key, other_problem = _pem(user, "user", "client-key-data")
    if problem := problem or other_problem:
        return ("", ""), problem
    if not certificate and not key:
        return ("", ""), None
    if not certificate or not key:
        return ("", ""), "user: client-certificate-data and client-key-data belong together; give both, or use a token"
    if problem := _pair_problem(certificate, key):
        return ("", ""), f"user: {problem}"
    return (certificate, key), None


def _pair_problem(certificate: str, key: str) -> str | None:
    certificates = _certificates(certificate)
    if not certificates:
        return "client-certificate-data holds no certificate in PEM; export it again"
    try:
        private = load_pem_private_key(key.encode(), None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "client-key-data holds no key in PEM without a passphrase; export it again"
    try:
        public = certificates[0].public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "client-certificate-data is for a key of a sort that is not known here; make one with RSA or ECDSA"
    if public != private:
        return "client-key-data is not the key of client-certificate-data; export both again"
    return None


def _certificates(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return []


def _pem(holder: Object, part: str, field: str) -> tuple[str, str | None]:
    value: Any = holder.get(field)
    if value in (None, ""):
        return "", None
    try:
        # Line breaks are usual where people have pasted it.
        return b64decode("".join(value.split()), validate=True).decode("ascii"), None
    except (ValueError, AttributeError):
        return "", f"{part}: {field} is not base64 of a PEM file; export it again"


TOKEN_ADVICE = "use the token of a service account, made with `kubectl create token` or kept in a Secret"
INLINE_ADVICE = "put the file's content into {}-data (`kubectl config view --raw --flatten` does)"

CLUSTER_FIELDS = frozenset(
    {"server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify", "disable-compression"}
)
USER_FIELDS = frozenset({"token", "client-certificate-data", "client-key-data"})
_LINE, _FIELD = re.compile(r"line \d+"), re.compile(r"[A-Za-z-]{1,40}")
IGNORED = frozenset({"extensions"})
"""Notes of other tools, about nothing that is done here."""

REFUSED = {
    "exec": f"would run a program on the server; {TOKEN_ADVICE}",
    "auth-provider": f"is not supported; {TOKEN_ADVICE}",
    "tokenFile": "names a file; put the token itself into token",
    "username": f"and password are not supported; {TOKEN_ADVICE}",
    "password": f"and username are not supported; {TOKEN_ADVICE}",
    "certificate-authority": f"names a file; {INLINE_ADVICE.format('certificate-authority')}",
    "client-certificate": f"names a file; {INLINE_ADVICE.format('client-certificate')}",
    "client-key": f"names a file; {INLINE_ADVICE.format('client-key')}",
    "proxy-url": "is not supported; name an address that is reached directly",
    **dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"),
        "is not supported, as every request is made in the name of its user; remove it",
    ),
}


class BadKubeconfig(ValueError):
    """A kubeconfig that is not accepted: everything that is wrong with it, each with what to do."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(slots=True)
class _Reading:
    """What has been found to be wrong so far."""

    problems: list[str] = field(default_factory=list)

    def stop(self, problem: str) -> BadKubeconfig:
        return BadKubeconfig((*self.problems, problem))

    def take(self, value: Any, problem: str | None) -> Any:
        if problem:
            self.problems.append(problem)
        return value


def parse(content: bytes) -> Access:
    """How to reach the cluster of the current context. Raises BadKubeconfig."""
    reading = _Reading()
    config = _loaded(content, reading)
    context = _named(config, "contexts", "context", _current(config, reading), reading)
    cluster = _named(config, "clusters", "cluster", context.get("cluster"), reading)
    user = _named(config, "users", "user", context.get("user"), reading)
    reading.problems += _unacceptable("cluster", cluster, CLUSTER_FIELDS)
    reading.problems += _unacceptable("user", user, USER_FIELDS)
    if cluster.get("insecure-skip-tls-verify"):
        reading.problems.append(
            "cluster: insecure-skip-tls-verify is not accepted; put the cluster's CA into certificate-authority-data"
        )
    access = _access(cluster, user, reading)
    if reading.problems:
        raise BadKubeconfig(tuple(reading.problems))
    return access


def problems(content: bytes) -> tuple[str, ...]:
    """What is wrong with it; nothing for one that is accepted."""
    try:
        parse(content)
    except BadKubeconfig as error:
        return error.problems
    return ()


def _access(cluster: Object, user: Object, reading: _Reading) -> Access:
    url: ServerUrl = reading.take(*server_url(cluster.get("server")))
    certificate, key = reading.take(*certificate_and_key(user))
    access = Access(
        url.host,
        url.port,
        url.path,
        _server_name(cluster, reading) or url.host,
        reading.take(*authority(cluster)),
        reading.take(*token(user)),
        certificate,
        key,
    )
    # Where a field is refused, what to do about it has been said already.
    if not access.token and not access.certificate and not reading.problems:
        reading.problems.append(f"user: has neither a token nor a client certificate; {TOKEN_ADVICE}")
    return access


def _server_name(cluster: Object, reading: _Reading) -> str:
    name = cluster.get("tls-server-name") or ""
    if name and (not isinstance(name, str) or check_host_name(name) is not None or "*" in name):
        reading.problems.append("cluster: tls-server-name must be a DNS name in lower case or an IP address")
        return ""
    return str(name)


def _loaded(content: bytes, reading: _Reading) -> Object:
    try:
        config, duplicates = yaml.decode(content)
    except Malformed as error:  # whose text may quote the content
        line = _LINE.search(str(error))
        where = f" in {line[0]}" if line else ""
        raise reading.stop(f"it is not YAML{where}; store one as `kubectl config view --raw` prints it") from None
    if not isinstance(config, dict):
        raise reading.stop("it is empty or no kubeconfig; store one as `kubectl config view --raw` prints it")
    if config.get("kind", "Config") != "Config" or config.get("apiVersion", "v1") != "v1":
        reading.problems.append("it is of another kind; a kubeconfig has apiVersion v1 and kind Config")
    if duplicates:
        reading.problems.append("a field occurs twice in it, and tools differ in which they believe; keep one of them")
    return config


def _current(config: Object, reading: _Reading) -> str:
    """The context that counts: the current one, or the only one there is."""
    if isinstance(name := config.get("current-context"), str) and name:
        return name
    contexts = config.get("contexts")
    only = contexts[0] if isinstance(contexts, list) and len(contexts) == 1 else None
    if isinstance(only, dict) and isinstance(only.get("name"), str):
        return str(only["name"])
    raise reading.stop("it has no current-context; set it, or leave only one context in (`--minify` does)")


def _named(config: Object, section: str, part: str, name: Any, reading: _Reading) -> Object:
    """The one entry of that name. Without it there is nothing more to read."""
    listed = config.get(section)
    entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    found = [each.get(part) for each in entries if each.get("name") == name]
    if len(found) != 1 or not isinstance(name, str):
        how = "names no entry of" if not found else "names more than one entry of"
        raise reading.stop(f"its {part} {how} {section}; export it with `kubectl config view --raw --minify`")
    if not isinstance(found[0], dict):
        raise reading.stop(f"{part}: must hold fields; export it with `kubectl config view --raw --minify`")
    return found[0]


def _unacceptable(part: str, fields: Object, known: frozenset[str]) -> Iterator[str]:
    for name in sorted(fields.keys() - known - IGNORED):
        # An empty value is how tools leave a field out.
        if fields[name] in (None, "", [], {}):
            continue
        shown = name if _FIELD.fullmatch(name) else "a field"
        yield f"{part}: {name} {REFUSED[name]}" if name in REFUSED else f"{part}: {shown} is not known; remove it"
