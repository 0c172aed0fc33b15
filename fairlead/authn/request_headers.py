"""Request headers of a front proxy: a proxy that has authenticated the user names it in headers.

As Kubernetes' request header authentication: the proxy proves who it is with a client certificate, whose common name
must be allowed. `server/http/tls_port.py` verifies it. On such a connection, nothing else authenticates: access keys
and cookies are ignored. On all other connections, the headers were removed.

The proxy is trusted: it may name administrators by the group `system:masters`. Groups and names of the server itself,
which begin with `service:`, cannot be requested. Its service accounts are not those of this server, which may have the
same names: they and their groups are renamed, with the prefix `host:`. A proxy that says that it has not authenticated
the user, by the name or the group that Kubernetes has for that, has not named one: there are no anonymous users here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

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
