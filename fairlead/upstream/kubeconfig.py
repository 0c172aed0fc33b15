"""Kubeconfigs as they are accepted for connected clusters: one context of one, read strictly, into an Access.

`connected.py` and the admission rule for clusters call this. A kubeconfig is code where it is used by kubectl: it names
programs to run, files to read and proxies to go through. Here whoever stores it is not whoever runs the server, so none
of that is accepted: what counts is in the text itself, and a field that is not known is not passed over. Problems name
fields and never what is in them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fairlead.core import yaml
from fairlead.core.addresses import check_host_name
from fairlead.core.malformed import Malformed
from fairlead.core.objects import Object
from fairlead.upstream.access import Access
from fairlead.upstream.credentials import authority, certificate_and_key, token
from fairlead.upstream.server_url import ServerUrl, server_url

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
