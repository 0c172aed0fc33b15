"""What of a cluster's answer comes back to the client, and what goes wrong on the way, in words of ours.

Answers pass as they are: what the cluster refuses, it refuses with its own words. Three sorts do not pass. A redirect
would lead the client, with its key, wherever the other side likes. A 401 is about the credential that is stored here,
and would make clients throw their own away. And whatever would act on this server's own origin in a browser, such as
cookies and scripts, is taken away. And no answer becomes one that a cache in front of this server may give to others.
"""

from collections.abc import Sequence
from http import HTTPStatus

from fairlead.core.call import Reply
from fairlead.core.errors import ApiError, BadGateway, Details, Timeout, TooManyRequests, Unavailable
from fairlead.upstream.errors import Broken, Busy, Crowding, TimedOut, Untrusted, UpstreamError

PASSED = frozenset(
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

Pairs = Sequence[tuple[str, str]]


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
        elif name in PASSED:
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
