"""Parses the URL of an etcd store, and classifies etcd's errors.

    etcd://[user[:password]@]host[:port][,host[:port]...][/prefix][?ca=FILE&cert=FILE&key=FILE&tls=true]

`ca`, or `tls=true` for the system's CAs, enables TLS. A password that is not in the URL is read from
FAIRLEAD_ETCD_PASSWORD, because URLs are visible in process lists.

etcd distinguishes errors by text as much as by code, and its own client does the same. An unknown text is treated as
the worst case, an unknown outcome.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

import grpc

from fairlead.storage.contract import StoreUnavailable

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "/fairlead/"
PASSWORD_VARIABLE = "FAIRLEAD_ETCD_PASSWORD"
_OPTIONS = {"ca", "cert", "key", "tls"}


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    """The prefix of all our keys; starts and ends with a slash."""
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """For messages: without user and password."""
        return f"etcd at {', '.join(self.endpoints)}"


def parse_address(rest: str, environment: Mapping[str, str] = os.environ) -> EtcdAddress:
    """Parse the part of the URL after `etcd:`."""
    if not rest.startswith("//"):
        raise ValueError("two slashes and a host are required after the colon")
    location, _, query = rest[2:].partition("?")
    authority, _, prefix = location.partition("/")
    login, _, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    options = _parse_options(query)
    if user and not (password := unquote(password) or environment.get(PASSWORD_VARIABLE, "")):
        raise ValueError(f"the password of {unquote(user)} is missing: set {PASSWORD_VARIABLE}")
    trimmed = unquote(prefix).strip("/")
    return EtcdAddress(
        endpoints=tuple(_parse_endpoint(host) for host in hosts.split(",")),
        prefix=f"/{trimmed}/" if trimmed else DEFAULT_PREFIX,
        tls=options.get("tls") == "true" or "ca" in options or "cert" in options,
        ca=options.get("ca", ""),
        cert=options.get("cert", ""),
        key=options.get("key", ""),
        user=unquote(user),
        password=password,
    )


def _parse_options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    if unknown := sorted(set(options) - _OPTIONS):
        raise ValueError(f"{unknown[0]!r} is not a valid option; the options are {', '.join(sorted(_OPTIONS))}")
    if ("cert" in options) != ("key" in options):
        raise ValueError("a client certificate needs both cert= and key=")
    if options.get("tls", "true") not in ("true", "false"):
        raise ValueError("tls= must be true or false")
    if options.get("tls") == "false" and len(options) > 1:
        raise ValueError("ca=, cert= and key= cannot be combined with tls=false")
    return options


def _parse_endpoint(host: str) -> str:
    """Add the default port if there is none. IPv6 addresses are in brackets."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, str(DEFAULT_PORT)
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{host!r} is neither a host nor a host and a port")
    return f"{name}:{port}"


Code = grpc.StatusCode


class RevisionCompacted(Exception):
    """The requested revision has been compacted."""


class FutureRevision(Exception):
    """The requested revision is in the future."""


class UnknownOutcome(Exception):
    """No response, or one that leaves open whether the request was executed. The message is for operators."""


class AuthExpired(Exception):
    """The authentication token has expired; nothing was executed."""


_ERROR_TEXTS = {
    "required revision has been compacted": RevisionCompacted,
    "required revision is a future revision": FutureRevision,
    "invalid auth token": AuthExpired,
    "revision of auth store is old": AuthExpired,
}

_TOO_LARGE = "the write is larger than this etcd accepts; start etcd with a larger --max-request-bytes"

_ADVICE = {
    "too many operations": "the write has more operations than this etcd accepts in one transaction;"
    " start etcd with a larger --max-txn-ops (128 by default)",
    "request is too large": _TOO_LARGE,
    "message larger than max": _TOO_LARGE,
    "space exceeded": "etcd's database has reached its quota and rejects writes; compact and defragment it, or raise"
    " --quota-backend-bytes, then clear the alarm with `etcdctl alarm disarm`",
    "corrupt cluster": "etcd has raised the CORRUPT alarm and rejects requests; repair the cluster first",
    "too many requests": "etcd is overloaded and rejects requests; retry later",
    "permission denied": "etcd denies this user access to our keys; grant its role readwrite on the prefix",
    "user name is empty": "etcd requires authentication; add the user to the store URL",
    "authentication failed": "etcd rejects this user and password; correct the store URL",
    "authentication is not enabled": "etcd has authentication disabled; remove the user from the store URL",
}


def classify_error(error: grpc.aio.AioRpcError, server: str) -> Exception:
    """Map an RPC error to an exception. `server` names the etcd in messages."""
    text = error.details() or ""
    for known, meaning in _ERROR_TEXTS.items():
        if known in text:
            return meaning(text)
    for known, advice in _ADVICE.items():
        if known in text:
            return StoreUnavailable(f"{server}: {advice}")
    if error.code() is Code.DEADLINE_EXCEEDED:
        return UnknownOutcome(
            f"{server} does not respond in time; check that its members are running and have a leader"
        )
    return UnknownOutcome(f"{server} cannot be reached or cannot respond: {text or error.code().name}")
