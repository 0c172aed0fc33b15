"""What of a request's headers goes along to a cluster, and as whom the request is made there.

Only names that are listed here pass, so a header that means something to somebody on the way, in whatever spelling,
does not. The client's impersonation headers were dealt with before (`server/auth/stages.py`), and the user that is given
here is whom they asked for. The stored credential comes from `upstream/`; this adds whom it acts for. `proxy.py`
calls.
"""

from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import quote

from fairlead.core.call import Headers, Reply
from fairlead.core.cluster_identity import ClusterNames, Extra
from fairlead.core.errors import ApiError, BadGateway, Details, Timeout, TooManyRequests, Unavailable
from fairlead.core.user import User
from fairlead.upstream.errors import Broken, Busy, Crowding, TimedOut, Untrusted, UpstreamError

REQUEST_HEADERS = frozenset(
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
        if name in REQUEST_HEADERS:
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


# DOC-MERGED gateway/answers
# What of a cluster's answer comes back to the client, and what goes wrong on the way, in words of ours.
#
# Answers pass as they are: what the cluster refuses, it refuses with its own words. Three sorts do not pass. A redirect
# would lead the client, with its key, wherever the other side likes. A 401 is about the credential that is stored here,
# and would make clients throw their own away. And whatever would act on this server's own origin in a browser, such as
# cookies and scripts, is taken away. And no answer becomes one that a cache in front of this server may give to others.


RESPONSE_HEADERS = frozenset(
    {
        "accept-ranges",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-range",
        "date",
        "etag",
        "expires",
        "last-modified",
        "retry-after",
        "vary",
        "warning",
        "x-kubernetes-pf-flowschema-uid",
        "x-kubernetes-pf-prioritylevel-uid",
    }
)
HARMLESS = (("content-security-policy", "sandbox"), ("x-content-type-options", "nosniff"))
"""A page from inside a cluster is shown by browsers as one from nowhere, and not as one of this server's."""
SHARING = frozenset({"public", "s-maxage"})
"""What lets a cache keep an answer for everybody. A kube-apiserver says so of discovery, a pod of whatever it likes."""
UNSHARED = "no-cache, private"
"""What a kube-apiserver says of everything else."""
BUSY_SECONDS = 1
"""When to come again. Only here: clients that are told keep trying, and nobody learns that a cluster is away."""


def refuse_unfit(status: int, what: str) -> None:
    """Raises BadGateway for an answer that is not handed on. `what` is what people call the cluster."""
    if 200 <= status < 300:
        return
    if status == HTTPStatus.UNAUTHORIZED:
        why = "does not accept the credential that is stored for it: have an administrator store a new kubeconfig"
        raise BadGateway(f"{what} {why}")
    if 300 <= status < 400 and status != HTTPStatus.NOT_MODIFIED:
        why = "answered with a redirect, which is not followed from here; ask for the path that it leads to"
        raise BadGateway(f"{what} {why}")
    if not 300 <= status <= 999:
        raise BadGateway(f"{what} gave an answer that makes no sense here; try again, and tell its administrator")


def handed_back(status: int, headers: Pairs) -> tuple[Reply, int | None]:
    """The reply without its body, and the length of that, as far as the cluster's answer says it.

    No header of the answer is invented: a client that gets none has none to go by. Above all not with a 304, whose
    headers clients write into the answer that they have kept: with a Content-Type of ours, kubectl would never again
    read what it has kept as what it is. The kept answer had our own headers from the beginning.
    """
    is_confirmation = status == HTTPStatus.NOT_MODIFIED
    content_type, length, caching = "", None, list[str]()
    kept = [] if is_confirmation else list(HARMLESS)
    for name, value in headers:
        if name == "cache-control":
            caching.append(value)
        elif name in RESPONSE_HEADERS:
            kept.append((name, value))
        elif name == "content-type":
            content_type = value
        elif name == "content-length" and value.isdecimal():
            length = int(value)
    if caching:
        kept.append(("cache-control", unshare(", ".join(caching))))
    return Reply(status, b"", content_type, kept, cacheable=is_confirmation or bool(caching)), length


def unshare(caching: str) -> str:
    """The Cache-Control of an answer that only its client may keep: whoever else asks is authorized by this server.

    Client-go keeps answers for itself alone, and makes no difference between `public` and `private`. The same value
    always becomes the same, so a 304 does not contradict the answer that it confirms.
    """
    if '"' in caching:  # such as `private="set-cookie"`, which is about that header only
        return UNSHARED
    directives = [each for each in map(str.strip, caching.split(",")) if each and _directive(each) not in SHARING]
    if not any(_directive(each) in ("private", "no-store") for each in directives):
        directives.append("private")
    return ", ".join(directives)


def _directive(text: str) -> str:
    return text.partition("=")[0].strip().lower()


def as_api_error(error: UpstreamError, what: str) -> ApiError:
    """The Status for a request that got no answer."""
    message = f"{what}: {error.message}"
    match error:
        case TimedOut():
            return Timeout(message)
        case Untrusted() | Broken():
            return BadGateway(message)
        case Crowding():
            return TooManyRequests(message, Details(retry_after=BUSY_SECONDS))
        case Busy():
            return Unavailable(message, Details(retry_after=BUSY_SECONDS))
        case _:
            return Unavailable(message)
