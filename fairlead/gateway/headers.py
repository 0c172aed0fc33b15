"""What of a request's headers goes along to a cluster, and as whom the request is made there.

Only names that are listed here pass, so a header that means something to somebody on the way, in whatever spelling,
does not. The stored credential comes from `upstream/`; this adds whom it acts for. `forward.py` calls.
"""

from collections.abc import Sequence
from functools import lru_cache

from fairlead.core.call import Headers
from fairlead.core.errors import Forbidden
from fairlead.core.user import ADMIN_GROUPS, AUTHENTICATED, User

PASSED = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-type",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "kubectl-command",
        "kubectl-session",
        "range",
        "traceparent",
        "tracestate",
        "user-agent",
    }
)

ADMINISTRATORS = "service:admins"
"""What administrators of this server are in a cluster, where `controllers/cluster_admins.py` binds it to a role."""
RESERVED = "system:"
"""How the names begin that a cluster gives to parts of itself, and its rights with them."""
TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""How a WebSocket's subprotocol begins that is a credential, which browsers have no other place for."""

Pairs = Sequence[tuple[str, str]]


def handed_on(headers: Headers, user: User, audit_id: str) -> list[tuple[str, str]]:
    """The headers of the request to the cluster. The audit id lets its log and ours be read side by side."""
    pairs = list(identity(user.name, user.groups, user.uid))
    if audit_id:
        pairs.append(("audit-id", audit_id))
    for name in headers.keys():  # noqa: SIM118 - they are no mapping
        if name in PASSED:
            pairs += [(name, value) for value in headers.get_all(name)]
    return pairs


@lru_cache(maxsize=4096)
def identity(name: str, groups: tuple[str, ...], uid: str) -> tuple[tuple[str, str], ...]:
    """Whom a cluster is to take the request from.

    A group of this server that means something to Kubernetes itself means nothing there: rights in a cluster are given
    in the cluster, to the names and groups that this server hands out. Administrators come as the group that clusters
    are asked to bind when they are connected, and never as Kubernetes' own, which no cluster could take back.
    """
    if not _is_sayable(name) or name.startswith(RESERVED):
        why = "is no name that connected clusters are given; use an access key of a user or a team"
        raise Forbidden(f"{name!a} {why}")
    known = (ADMINISTRATORS if group in ADMIN_GROUPS else group for group in groups)
    kept = [group for group in known if _is_sayable(group) and not group.startswith(RESERVED)]
    pairs = [("impersonate-user", name)]
    pairs += [("impersonate-group", group) for group in dict.fromkeys((*kept, AUTHENTICATED))]
    if uid and _is_sayable(uid):
        pairs.append(("impersonate-uid", uid))
    return tuple(pairs)


def _is_sayable(text: str) -> bool:
    """Whether a header can have it as its value, and nobody could take it for another."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


def offered(protocols: Sequence[str]) -> list[str]:
    """The subprotocols that are offered to the cluster: all but the client's credential."""
    return [each for each in protocols if not each.startswith(TOKEN_PROTOCOL)]
