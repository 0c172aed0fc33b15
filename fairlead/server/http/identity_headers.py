"""Removes the headers in which a front proxy names the user, from all requests that are not from a front proxy.

Nothing reads them there. Removing them makes sure of it: also for the spelling with underscores, which some programs
take for the same header.
"""

from collections.abc import Iterable

from fairlead.server.http.request import HeaderPairs, RequestHeaders

STANDARD_PREFIXES = ("x-remote-",)
"""Prefixes of the headers that Kubernetes' front proxies send: user, uid, groups and extra values."""


class IdentityHeaderFilter:
    """Removes the standard headers, and those that are configured instead of them. `names` may end in a dash, and are
    prefixes then, as extra headers are."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        lowered = {name.lower() for name in (*STANDARD_PREFIXES, *names) if name}
        self._prefixes = tuple(sorted(_normalize(name.encode()) for name in lowered if name.endswith("-")))
        self._names = frozenset(_normalize(name.encode()) for name in lowered if not name.endswith("-"))
        # Every request is tested with these, and hardly any has one of them: the longest part without a dash.
        parts = (max(name.split("-"), key=len) for name in lowered)
        self._markers = tuple(sorted({part.encode() for part in parts}))

    def clean(self, headers: RequestHeaders) -> RequestHeaders:
        names = headers.joined_names()
        for marker in self._markers:
            if marker in names:
                return RequestHeaders(self._select(headers.pairs))
        return headers

    def _select(self, pairs: HeaderPairs) -> HeaderPairs:
        return [pair for pair in pairs if not self._is_identity(_normalize(pair[0]))]

    def _is_identity(self, name: bytes) -> bool:
        return name in self._names or name.startswith(self._prefixes)


def _normalize(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-")
