"""A store's address -> an Address. Called by `open_store`; ValueError, for people, where it is wrong.

    etcd://[user[:password]@]host[:port][,host[:port]...][/prefix][?ca=FILE&cert=FILE&key=FILE&tls=true]

Naming a `ca`, or `tls=true` for the system's own authorities, turns on TLS. A password that is not in the address is
taken from FAIRLEAD_ETCD_PASSWORD: addresses are seen in process lists.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

import grpc

from fairlead.storage.contract import Unavailable

FORM = "etcd://host1:2379,host2:2379/prefix?ca=FILE&cert=FILE&key=FILE"
PORT = 2379
PREFIX = "/fairlead/"
PASSWORD = "FAIRLEAD_ETCD_PASSWORD"
_OPTIONS = {"ca", "cert", "key", "tls"}


@dataclass(frozen=True, slots=True)
class Address:
    endpoints: tuple[str, ...]
    prefix: str = PREFIX
    """What all our keys begin with; begins and ends with a slash."""
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Without who we are there, for messages."""
        return f"etcd at {', '.join(self.endpoints)}"


def parse_address(rest: str, environment: Mapping[str, str] = os.environ) -> Address:
    """What follows `etcd:`."""
    if not rest.startswith("//"):
        raise ValueError("two slashes and a host must follow the colon")
    place, _, query = rest[2:].partition("?")
    authority, _, prefix = place.partition("/")
    login, _, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    options = _options(query)
    if user and not (password := unquote(password) or environment.get(PASSWORD, "")):
        raise ValueError(f"the password of {unquote(user)} is missing: set {PASSWORD}")
    trimmed = unquote(prefix).strip("/")
    return Address(
        endpoints=tuple(_endpoint(host) for host in hosts.split(",")),
        prefix=f"/{trimmed}/" if trimmed else PREFIX,
        tls=options.get("tls") == "true" or "ca" in options or "cert" in options,
        ca=options.get("ca", ""),
        cert=options.get("cert", ""),
        key=options.get("key", ""),
        user=unquote(user),
        password=password,
    )


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    if unknown := sorted(set(options) - _OPTIONS):
        raise ValueError(f"{unknown[0]!r} is not one of its options, which are {', '.join(sorted(_OPTIONS))}")
    if ("cert" in options) != ("key" in options):
        raise ValueError("a client certificate needs both cert= and key=")
    if options.get("tls", "true") not in ("true", "false"):
        raise ValueError("tls= is true or false")
    if options.get("tls") == "false" and len(options) > 1:
        raise ValueError("ca=, cert= and key= make no sense with tls=false")
    return options


def _endpoint(host: str) -> str:
    """With its port. IPv6 addresses stand in brackets."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, str(PORT)
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{host!r} is neither a host nor a host and a port")
    return f"{name}:{port}"


# DOC-MERGED storage/etcd/failures
# What etcd's errors mean: for the code that decides what to do, and for people. Called by `client.py` and the rest.
#
# etcd tells its errors apart by their text as much as by their code; its own client does the same. A text that we do not
# know is taken for the worse case, an outcome that is not known.


Code = grpc.StatusCode


class Gone(Exception):
    """The revision asked for has been compacted in etcd."""


class NotYet(Exception):
    """The revision asked for is still to come."""


class Lost(Exception):
    """No answer, or one that leaves open whether the request was carried out. The text is for people."""


class LoggedOut(Exception):
    """The token is no longer good; nothing was carried out."""


_TEXTS = {
    "required revision has been compacted": Gone,
    "required revision is a future revision": NotYet,
    "invalid auth token": LoggedOut,
    "revision of auth store is old": LoggedOut,
}

_TOO_LARGE = "the change is larger than this etcd takes; start etcd with a larger --max-request-bytes"

_ADVICE = {
    "too many operations": "a change of so many objects at once is more than this etcd takes in one transaction;"
    " start etcd with a larger --max-txn-ops (128 unless told otherwise)",
    "request is too large": _TOO_LARGE,
    "message larger than max": _TOO_LARGE,
    "space exceeded": "etcd's database has reached its quota and refuses writes; compact and defragment it, or raise"
    " --quota-backend-bytes, then clear the alarm with `etcdctl alarm disarm`",
    "corrupt cluster": "etcd has raised the CORRUPT alarm and refuses to work; repair the cluster first",
    "too many requests": "etcd is overloaded and refuses requests; trying later may help",
    "permission denied": "etcd does not let this user at our keys; grant its role readwrite on the prefix",
    "user name is empty": "etcd wants a login; put the user into the store's address",
    "authentication failed": "etcd does not know this user with this password; correct the store's address",
    "authentication is not enabled": "etcd has no logins; remove the user from the store's address",
}


def judge(error: grpc.aio.AioRpcError, what: str) -> Exception:
    """The exception that an RPC's failure is to us; `what` names the etcd that was asked."""
    text = error.details() or ""
    for known, meaning in _TEXTS.items():
        if known in text:
            return meaning(text)
    for known, advice in _ADVICE.items():
        if known in text:
            return Unavailable(f"{what}: {advice}")
    if error.code() is Code.DEADLINE_EXCEEDED:
        return Lost(f"{what} does not answer in time; see whether its members run and have a leader")
    return Lost(f"{what} cannot be reached or cannot answer: {text or error.code().name}")
