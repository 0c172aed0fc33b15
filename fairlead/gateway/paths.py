"""What of a request's path is asked of the cluster, exactly as it was sent.

A path that two servers could read differently is refused before it goes anywhere: whatever was authorized here must be
what happens there.
"""

import re
from urllib.parse import unquote

from fairlead.core.errors import BadRequest

# What RFC 3986 allows within a step, of which the encoded forms of `%`, `.`, `/`, `\` and control characters are left
# out: names in Kubernetes have none of them, and somebody might decode twice.
_PLAIN = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]++|%(?!0|1|2[5EFef]|5[Cc]|7[Ff])[0-9A-Fa-f]{2})*+)++")
_DETOURS = re.compile(r"//|/\.\.?(?:/|$)")
_QUERY = re.compile(r"[!\"$-~]*")

_REFUSED = (
    "the path cannot be handed on to a cluster: it has an empty, `.` or `..` step, or an encoded slash, backslash, "
    "dot, percent sign or control character; send the path that is meant, without detours"
)


def below(raw: str, steps: int) -> str:
    """The path and query that are left of `raw` when its first steps are taken away. Raises BadRequest for tricks."""
    path, mark, query = raw.partition("?")
    if not _PLAIN.fullmatch(path) or _DETOURS.search(path):
        raise BadRequest(_REFUSED)
    if not _QUERY.fullmatch(query):
        raise BadRequest("the query has characters that must be percent-encoded; encode them and try again")
    parts = path.split("/", steps + 1)
    rest = parts[steps + 1] if len(parts) > steps + 1 else ""
    return f"/{rest}{mark}{query}"


def plain_path(inner: str) -> str:
    """The path of what `below` gave, decoded."""
    path = inner.partition("?")[0]
    return unquote(path) if "%" in path else path
