"""Headers of forwarded requests and responses, impersonation, and mapping of upstream errors to Status errors.

Requests: only the headers in an allow-list are forwarded, so a header that a proxy in between interprets never passes.
The client's own impersonation headers were handled before (`server/auth/impersonation.py`); the user passed in here is
the effective one. `upstream/` adds the stored credential, this module the `Impersonate-*` headers.

Responses are forwarded unchanged, including error responses, with these exceptions. Redirects are rejected: they would
lead the client, with its key, to any address. A 401 is rejected: it is about the server's credential, or with
`forwardToken` about the user's token at another server, and would make clients discard their own. Headers that affect
this server's origin in a browser, such as cookies, are dropped, and scripts are sandboxed. `Cache-Control` is made
private, so that no shared cache serves a response to other users.
"""

from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import quote

from fairlead.core.call import Headers, Reply
from fairlead.core.errors import ApiError, BadGateway, Details, Timeout, TooManyRequests, Unavailable
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper, Extra
from fairlead.upstream.errors import (
    ClusterLimitExceeded,
    ProtocolError,
    TimedOut,
    TlsError,
    TunnelError,
    UpstreamError,
    UserLimitExceeded,
)
from fairlead.upstream.tunnel_pods import PERMANENT_REASONS

FORWARDED_REQUEST_HEADERS = frozenset(
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

HEADER_NAME_CHARACTERS = "!#$&'*+^`|"
"""Allowed in header names in addition to letters, digits and `-._~`. Other characters of extra keys are
percent-encoded, and decoded by Kubernetes."""
BEARER_SUBPROTOCOL_PREFIX = "base64url.bearer.authorization.k8s.io."
"""Prefix of a WebSocket subprotocol that carries a bearer token, as browsers send it."""

MAX_CACHED_IDENTITY_CHARS = 2_048
"""Larger identities are not cached: clients can send groups, uids and extra values of any size."""

HeaderPairs = Sequence[tuple[str, str]]


def forwarded_headers(headers: Headers, identity: HeaderPairs, audit_id: str) -> list[tuple[str, str]]:
    """The headers of the request to the cluster: `identity`, and those of the client that are in the allow-list. The
    audit ID correlates the cluster's audit log with ours."""
    pairs = list(identity)
    if audit_id:
        pairs.append(("audit-id", audit_id))
    for name in headers.keys():  # noqa: SIM118 - Headers is not a mapping
        if name in FORWARDED_REQUEST_HEADERS:
            pairs += [(name, value) for value in headers.get_all(name)]
    return pairs


def impersonation_headers(user: User, names: ClusterIdentityMapper) -> HeaderPairs:
    """The identity of a user, for a request with the stored credential."""
    impersonator = user.impersonator.name if user.impersonator is not None else None
    build = (
        _cached_impersonation_headers
        if _identity_length(user) <= MAX_CACHED_IDENTITY_CHARS
        else _build_impersonation_headers
    )
    return build(names, user.name, user.groups, user.uid, user.extra, impersonator)


def _identity_length(user: User) -> int:
    """Size of an identity in characters. Each value counts as at least one, even if it is empty."""
    length = len(user.name) + len(user.uid) + sum(map(len, user.groups)) + len(user.groups)
    for key, values in user.extra:
        length += len(key) + sum(map(len, values)) + len(values)
    return length + len(user.impersonator.name) if user.impersonator is not None else length


def _build_impersonation_headers(
    names: ClusterIdentityMapper, name: str, groups: tuple[str, ...], uid: str, extra: Extra, impersonator: str | None
) -> tuple[tuple[str, str], ...]:
    """The `Impersonate-*` headers. Takes the parts of a User as cache key, because its scope is slow to hash."""
    acting = User(impersonator) if impersonator is not None else None
    known = names.map_user(User(name, groups, uid, extra=extra, impersonator=acting))
    pairs = [("impersonate-user", known.user)]
    pairs += [("impersonate-group", group) for group in known.groups]
    if known.uid:
        pairs.append(("impersonate-uid", known.uid))
    for key, values in known.extra:
        pairs += [(f"impersonate-extra-{quote(key, safe=HEADER_NAME_CHARACTERS)}", value) for value in values]
    return tuple(pairs)


_cached_impersonation_headers = lru_cache(maxsize=4096)(_build_impersonation_headers)


def forwarded_subprotocols(subprotocols: Sequence[str]) -> list[str]:
    """The subprotocols to offer to the cluster: all but the client's bearer token."""
    return [each for each in subprotocols if not each.startswith(BEARER_SUBPROTOCOL_PREFIX)]


FORWARDED_RESPONSE_HEADERS = frozenset(
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
SANDBOX_HEADERS = (("content-security-policy", "sandbox"), ("x-content-type-options", "nosniff"))
"""Browsers treat a page from a cluster as one with an opaque origin, not as one of this server."""
SHARED_CACHE_DIRECTIVES = frozenset({"public", "s-maxage"})
"""Directives that allow shared caching. kube-apiserver uses them for discovery; a pod may send them with anything."""
PRIVATE_CACHE_CONTROL = "no-cache, private"
"""The Cache-Control that kube-apiserver sends with everything else."""
RETRY_AFTER_SECONDS = 1
"""Retry-After, only for exceeded limits. Clients then retry silently, which would hide an unreachable cluster."""


class CredentialRejected(BadGateway):
    """The cluster does not accept the credential of the request."""


def check_status(status: int, title: str) -> None:
    """Raises BadGateway for a response that must not be forwarded. `title` names the cluster in messages."""
    if 200 <= status < 300:
        return
    if status == HTTPStatus.UNAUTHORIZED:
        reason = "rejects the stored credential; ask an administrator to store a new kubeconfig"
        raise CredentialRejected(f"{title} {reason}")
    if 300 <= status < 400 and status != HTTPStatus.NOT_MODIFIED:
        reason = "responded with a redirect, which gateways do not follow; request the target path instead"
        raise BadGateway(f"{title} {reason}")
    if not 300 <= status <= 999:
        raise BadGateway(f"{title} sent an invalid response status; try again, or contact its administrator")


def build_reply_head(status: int, headers: HeaderPairs) -> tuple[Reply, int | None]:
    """Builds the reply without its body. Also returns the content length, if the cluster sent it.

    Adds no headers to a 304: clients merge its headers into their cached response. With a Content-Type of ours, kubectl
    could no longer decode its cached response. That response got our headers when it was first sent.
    """
    is_not_modified = status == HTTPStatus.NOT_MODIFIED
    content_type, length, caching = "", None, list[str]()
    forwarded = [] if is_not_modified else list(SANDBOX_HEADERS)
    for name, value in headers:
        if name == "cache-control":
            caching.append(value)
        elif name in FORWARDED_RESPONSE_HEADERS:
            forwarded.append((name, value))
        elif name == "content-type":
            content_type = value
        elif name == "content-length" and value.isdecimal():
            length = int(value)
    if caching:
        forwarded.append(("cache-control", make_private(", ".join(caching))))
    return Reply(status, b"", content_type, forwarded, cacheable=is_not_modified or bool(caching)), length


def make_private(cache_control: str) -> str:
    """Restricts a Cache-Control value to private caches, because this server must authorize each user.

    client-go has a private cache and treats `public` and `private` alike. The result is deterministic, so the header of
    a 304 matches that of the cached response.
    """
    if '"' in cache_control:  # such as `private="set-cookie"`, which applies to that header only
        return PRIVATE_CACHE_CONTROL
    directives = [
        each
        for each in map(str.strip, cache_control.split(","))
        if each and _directive_name(each) not in SHARED_CACHE_DIRECTIVES
    ]
    if not any(_directive_name(each) in ("private", "no-store") for each in directives):
        directives.append("private")
    return ", ".join(directives)


def _directive_name(text: str) -> str:
    return text.partition("=")[0].strip().lower()


def as_api_error(error: UpstreamError, title: str) -> ApiError:
    """The Status error for a request without a response."""
    message = f"{title}: {error.message}"
    match error:
        case TimedOut():
            return Timeout(message)
        case TlsError() | ProtocolError():
            return BadGateway(message)
        case UserLimitExceeded():
            return TooManyRequests(message, Details(retry_after=RETRY_AFTER_SECONDS))
        case ClusterLimitExceeded():
            return Unavailable(message, Details(retry_after=RETRY_AFTER_SECONDS))
        case TunnelError(reason=reason) if reason not in PERMANENT_REASONS:
            return Unavailable(message, Details(retry_after=RETRY_AFTER_SECONDS))
        case _:
            return Unavailable(message)
