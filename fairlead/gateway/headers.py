"""What of a request's headers goes along to a cluster, and as whom the request is made there.

Only names that are listed here pass, so a header that means something to somebody on the way, in whatever spelling,
does not. The client's impersonation headers were dealt with before (`server/identify.py`), and the user that is given
here is whom they asked for. The stored credential comes from `upstream/`; this adds whom it acts for. `forward.py`
calls.
"""

from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote

from fairlead.core.call import Headers
from fairlead.core.cluster_identity import ClusterNames, Extra
from fairlead.core.user import User

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

TOKEN_CHARACTERS = "!#$&'*+^`|"
"""What the name of a header may have beside letters, digits and `-._~`. Kubernetes decodes the rest of an extra key."""
TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""How a WebSocket's subprotocol begins that is a credential, which browsers have no other place for."""

LONGEST_KEPT = 2_048
"""Identities with more text than this are not kept: clients name groups, uids and extra values of any size."""

Pairs = Sequence[tuple[str, str]]


def handed_on(headers: Headers, user: User, names: ClusterNames, audit_id: str) -> list[tuple[str, str]]:
    """The headers of the request to the cluster. The audit id lets its log and ours be read side by side."""
    pairs = list(_identity_headers(user, names))
    if audit_id:
        pairs.append(("audit-id", audit_id))
    for name in headers.keys():  # noqa: SIM118 - they are no mapping
        if name in PASSED:
            pairs += [(name, value) for value in headers.get_all(name)]
    return pairs


def _identity_headers(user: User, names: ClusterNames) -> tuple[tuple[str, str], ...]:
    impersonator = user.impersonator.name if user.impersonator is not None else None
    build = _kept_impersonation if _length(user) <= LONGEST_KEPT else _impersonation
    return build(names, user.name, user.groups, user.uid, user.extra, impersonator)


def _length(user: User) -> int:
    """The text of an identity. Every value counts, an empty one too."""
    length = len(user.name) + len(user.uid) + sum(map(len, user.groups)) + len(user.groups)
    for key, values in user.extra:
        length += len(key) + sum(map(len, values)) + len(values)
    return length + len(user.impersonator.name) if user.impersonator is not None else length


def _impersonation(
    names: ClusterNames, name: str, groups: tuple[str, ...], uid: str, extra: Extra, impersonator: str | None
) -> tuple[tuple[str, str], ...]:
    """Whom a cluster is to take the request from. By these parts alone: a User has a scope, which is slow to hash."""
    acting = User(impersonator) if impersonator is not None else None
    known = names.identity(User(name, groups, uid, extra=extra, impersonator=acting))
    pairs = [("impersonate-user", known.user)]
    pairs += [("impersonate-group", group) for group in known.groups]
    if known.uid:
        pairs.append(("impersonate-uid", known.uid))
    for key, values in known.extra:
        pairs += [(f"impersonate-extra-{quote(key, safe=TOKEN_CHARACTERS)}", value) for value in values]
    return tuple(pairs)


_kept_impersonation = lru_cache(maxsize=4096)(_impersonation)


def offered(protocols: Sequence[str]) -> list[str]:
    """The subprotocols that are offered to the cluster: all but the client's credential."""
    return [each for each in protocols if not each.startswith(TOKEN_PROTOCOL)]
