"""Client certificates as credentials of users.

As in Kubernetes, the common name is the name of the user, and organizations are groups. Unlike there, the user must
exist and be active: a certificate cannot be revoked, but its user can be disabled. The user has the groups and teams of
its object, and in addition the organizations. They never make anyone an administrator: organizations that begin with
`system:` or `service:` are ignored, and so are groups of a front proxy's service accounts.

`server/http/tls_port.py` verifies certificates. Browsers send them with cross-site requests, too, so requests of
browsers that change something must be same-origin, as with a cookie.
"""

from fairlead.authn.credentials import check_browser_origin
from fairlead.authn.principals import PrincipalDirectory
from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import CLIENT, Call, TlsPeer
from fairlead.core.clock import Clock
from fairlead.core.errors import Unauthorized
from fairlead.core.user import ADMIN_GROUPS, HOST_ACCOUNT_NAMES, User
from fairlead.domain.cluster_identity import is_header_value

RESERVED_PREFIXES = ("system:", "service:", HOST_ACCOUNT_NAMES)
CERTIFICATE_ANNOTATION = "service.sh/certificate"
CACHE_SIZE = 4_096


class ClientCertificateAuthenticator:
    """Authenticates requests on connections with a client certificate."""

    def __init__(self, principals: PrincipalDirectory, clock: Clock, public_url: str = "") -> None:
        self._principals = principals
        self._clock = clock
        self._public_url = public_url
        self._cache = BoundedCache[tuple[str, object], User](CACHE_SIZE)

    def __call__(self, call: Call) -> User | None:
        peer = call.peer
        if peer is None or peer.purpose != CLIENT:
            return None
        if "authorization" in call.headers.keys():  # noqa: SIM118 - not a mapping
            raise Unauthorized("send either a client certificate or an access key, not both")
        if peer.expires <= self._clock.now().timestamp():
            raise Unauthorized("the client certificate has expired")
        check_browser_origin(call, self._public_url)
        key = peer.fingerprint, self._principals.generation()
        user = self._cache.get(key)
        if user is None:
            user = self._cache[key] = self._find_user(peer)
        call.annotations[CERTIFICATE_ANNOTATION] = f"sha256:{peer.fingerprint}"
        return user

    def _find_user(self, peer: TlsPeer) -> User:
        user = self._principals.find_user(peer.common_name)
        if user is None:
            raise Unauthorized("the client certificate does not name an active user")
        groups = (group for group in peer.organizations if _is_group(group))
        return User(user.name, tuple(dict.fromkeys((*user.groups, *groups))), user.uid)


def _is_group(name: str) -> bool:
    return not name.startswith(RESERVED_PREFIXES) and name not in ADMIN_GROUPS and is_header_value(name)
