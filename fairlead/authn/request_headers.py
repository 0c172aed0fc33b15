"""Request headers of a front proxy: a proxy that has authenticated the user names it in headers.

As Kubernetes' request header authentication: the proxy proves who it is with a client certificate, whose common name
must be allowed. `server/http/tls_port.py` verifies it. On such a connection, nothing else authenticates: access keys
and cookies are ignored. On all other connections, the headers were removed.

The proxy is trusted: it may name administrators by the group `system:masters`. Groups and names of the server itself,
which begin with `service:`, cannot be requested. Its service accounts are not those of this server, which may have the
same names: they and their groups are renamed, with the prefix `host:`. A proxy that says that it has not authenticated
the user, by the name or the group that Kubernetes has for that, has not named one: there are no anonymous users here.

A kube-apiserver publishes how its aggregation layer authenticates (CA, names and headers) in the ConfigMap
`kube-system/extension-apiserver-authentication`. Its lists are JSON in strings. An empty list of names means any
certificate of the CA to Kubernetes. Here names are required: the CA may also issue other certificates. `client-ca-file`
there is not used. It is for users who connect with a certificate of the cluster, past its kube-apiserver.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fairlead.authn.credentials import check_browser_origin
from fairlead.authn.principals import PrincipalDirectory
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import FRONT_PROXY, Call, Headers
from fairlead.core.clock import Clock
from fairlead.core.errors import Unauthorized
from fairlead.core.user import AUTHENTICATED, HOST_ACCOUNT_NAMES, User, rename_host_account
from fairlead.domain.cluster_identity import Extra, is_header_value, merge_extra

RESERVED_PREFIXES = ("service:", HOST_ACCOUNT_NAMES)
ANONYMOUS, UNAUTHENTICATED = "system:anonymous", "system:unauthenticated"
MAX_GROUPS = 1_000
CACHE_SIZE, MAX_CACHED_LENGTH = 1_024, 4_096


@dataclass(frozen=True, slots=True)
class RequestHeaderConfig:
    """The common names of front proxies, and the headers they send, in lower case.

    With `links_users`, a name that is also that of a user means this user, with its groups and teams.
    """

    allowed_names: frozenset[str]
    username_headers: tuple[str, ...] = ("x-remote-user",)
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)
    uid_headers: tuple[str, ...] = ()
    links_users: bool = False


class RequestHeaderAuthenticator:
    """Authenticates requests of front proxies. `config` returns the current configuration; None if there is none."""

    def __init__(
        self,
        config: Callable[[], RequestHeaderConfig | None],
        principals: PrincipalDirectory,
        clock: Clock,
        public_url: str = "",
    ) -> None:
        self._config = config
        self._principals = principals
        self._clock = clock
        self._public_url = public_url
        self._cache = BoundedCache[User, User](CACHE_SIZE)

    def __call__(self, call: Call) -> User | None:
        peer, config = call.peer, self._config()
        if peer is None or peer.purpose != FRONT_PROXY:
            return None
        if config is None or peer.common_name not in config.allowed_names:
            raise Unauthorized("the client certificate is not that of an allowed front proxy")
        if peer.expires <= self._clock.now().timestamp():
            raise Unauthorized("the client certificate has expired")
        check_browser_origin(call, self._public_url)
        return self._read_user(call.headers, config)

    def _read_user(self, headers: Headers, config: RequestHeaderConfig) -> User:
        name = _first_value(headers, config.username_headers)
        if not name:
            raise Unauthorized("the front proxy has not named a user")
        groups = [group for header in config.group_headers for group in headers.get_all(header)]
        is_readable = len(groups) <= MAX_GROUPS and all(map(is_header_value, (name, *groups)))
        if name.startswith(RESERVED_PREFIXES) or not is_readable:
            raise Unauthorized("the front proxy has sent a user or groups that are not allowed")
        if name == ANONYMOUS or UNAUTHENTICATED in groups:
            raise Unauthorized("the front proxy has not authenticated the user")
        name = rename_host_account(name)
        wanted = [rename_host_account(group) for group in groups if not group.startswith(RESERVED_PREFIXES)]
        extra = _read_extra(headers, config.extra_prefixes)
        uid = _first_value(headers, config.uid_headers)
        user = self._find_user(name, wanted, config) or User(name, (*wanted, AUTHENTICATED), uid)
        found = User(name, tuple(dict.fromkeys(user.groups)), user.uid, extra=extra)
        # The same object as before, if there is one: other caches find users by identity.
        return self._cache.get(found) or self._remember(found)

    def _find_user(self, name: str, groups: list[str], config: RequestHeaderConfig) -> User | None:
        if not config.links_users or not self._principals.has_user(name):
            return None
        user = self._principals.find_user(name)
        if user is None:
            raise Unauthorized("the user is disabled")
        return User(name, (*user.groups, *groups), user.uid)

    def _remember(self, user: User) -> User:
        if sum(map(len, user.groups)) <= MAX_CACHED_LENGTH and not user.extra:
            self._cache[user] = user
        return user


def _first_value(headers: Headers, names: tuple[str, ...]) -> str:
    """The first value of the first header that has one. A header that is not ASCII has none."""
    return next((value for name in names for value in headers.get_all(name)[:1] if value), "")


def _read_extra(headers: Headers, prefixes: tuple[str, ...]) -> Extra:
    found = (
        (unquote(name.removeprefix(prefix)), tuple(headers.get_all(name)))
        for prefix in prefixes
        for name in sorted(headers.keys())
        if name.startswith(prefix) and name != prefix
    )
    return merge_extra(found)


NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
CA_KEY = "requestheader-client-ca-file"
MAX_LIST, MAX_NAME_LENGTH, MAX_CA_BYTES = 64, 1_024, 512 * 1024
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")


class InvalidHostConfig(Exception):
    """The ConfigMap cannot be used. The message says why, and what to change."""


@dataclass(frozen=True, slots=True)
class HostRequestHeaders:
    """The CAs of front proxies as PEM, and how these name users."""

    authorities: bytes = field(repr=False)
    config: RequestHeaderConfig


def parse_host_config(
    data: Mapping[str, Any], allowed_names: tuple[str, ...] = (), links_users: bool = False
) -> HostRequestHeaders:
    """`data` is that of the ConfigMap. `allowed_names`, if any, apply instead of its own. Raises InvalidHostConfig."""
    authorities = _read_authorities(data)
    names = allowed_names or _read_list(data, "requestheader-allowed-names")
    if not names:
        raise InvalidHostConfig(
            "requestheader-allowed-names is empty, which allows every certificate of the CA; set "
            "--requestheader-allowed-names of the kube-apiserver, or the setting requestheader_allowed_names"
        )
    users = _read_headers(data, "requestheader-username-headers")
    if not users:
        raise InvalidHostConfig(
            "requestheader-username-headers is missing or empty; start the kube-apiserver with "
            "--requestheader-username-headers=X-Remote-User"
        )
    config = RequestHeaderConfig(
        allowed_names=frozenset(names),
        username_headers=users,
        group_headers=_read_headers(data, "requestheader-group-headers"),
        extra_prefixes=_read_headers(data, "requestheader-extra-headers-prefix"),
        uid_headers=_read_headers(data, "requestheader-uid-headers"),
        links_users=links_users,
    )
    return HostRequestHeaders(authorities, config)


def _read_authorities(data: Mapping[str, Any]) -> bytes:
    text = data.get(CA_KEY)
    if not isinstance(text, str) or not text:
        raise InvalidHostConfig(
            f"it has no {CA_KEY}; start the kube-apiserver with --requestheader-client-ca-file and "
            "--proxy-client-cert-file, which its aggregation layer needs"
        )
    content = text.encode()
    try:
        found = x509.load_pem_x509_certificates(content) if len(content) <= MAX_CA_BYTES else []
    except ValueError:
        found = []
    if not found:
        raise InvalidHostConfig(f"{CA_KEY} contains no certificate, or more than {MAX_CA_BYTES} bytes")
    try:
        for each in found:
            each.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        advice = "use RSA, ECDSA or Ed25519"
        raise InvalidHostConfig(f"the key of a CA in {CA_KEY} is not of a type that is supported; {advice}") from None
    return content


def _read_headers(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = _read_list(data, key)
    for name in names:
        if not _HEADER.fullmatch(name):
            raise InvalidHostConfig(f"{key} has a value that is not the name of a header")
    return tuple(name.lower() for name in names)


def _read_list(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of strings; empty if there is none."""
    text = data.get(key) or "[]"
    try:
        values = json.loads(text) if isinstance(text, str) and len(text) <= MAX_CA_BYTES else None
    except (ValueError, RecursionError):
        values = None
    if values is None and text == "null":
        return ()
    if not isinstance(values, list) or len(values) > MAX_LIST or not all(map(_is_name, values)):
        raise InvalidHostConfig(f"{key} is not a JSON list of at most {MAX_LIST} strings")
    return tuple(values)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH
