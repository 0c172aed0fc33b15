"""Watch events of `Client.watch`, and resuming a watch that the server has closed.

A server closes each watch after a while. The next request resumes at the last received resourceVersion; bookmarks keep
it recent while nothing changes.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fairlead.client.errors import DeadlineExceeded
from fairlead.core.objects import Object, annotations_of, get_path, metadata

ADDED, MODIFIED, DELETED, SYNCED = "ADDED", "MODIFIED", "DELETED", "SYNCED"
BOOKMARK = "BOOKMARK"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

RETRY_SECONDS = 1.0
"""Delay before resuming a watch that had no events, to not overload a server that closes watches immediately."""

RESUME_QUERY = {"watch": "true", "allowWatchBookmarks": "true"}
INITIAL_QUERY = {**RESUME_QUERY, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


@dataclass(frozen=True, slots=True)
class Event:
    """ADDED, MODIFIED or DELETED with an object; or SYNCED after the initial events, with nothing but their
    resourceVersion."""

    type: str
    object: Object


OpenWatch = Callable[[Mapping[str, str]], Iterable[Object]]
"""Sends one watch request and yields its events until the server closes it."""


def stream_events(
    open_watch: OpenWatch, selectors: Mapping[str, str], seconds: float = math.inf, since: str = ""
) -> Iterator[Event]:
    """Yields the events of successive watch requests, each event once. Errors are raised by `open_watch`.

    With `since`, a resourceVersion, only the events after it, and no SYNCED. Raises DeadlineExceeded after `seconds`.
    """
    deadline = time.monotonic() + seconds
    query = {**selectors, **(RESUME_QUERY | {"resourceVersion": since} if since else INITIAL_QUERY)}
    synced = bool(since)
    while True:
        quiet = True
        for line in open_watch({**query, **_time_left(deadline)}):
            _time_left(deadline)
            quiet = False
            event = Event(str(line.get("type")), line.get("object") or {})
            if event.type == BOOKMARK:
                if not synced and _ends_initial_events(event.object):
                    synced = True
                    yield Event(
                        SYNCED, {"metadata": {"resourceVersion": metadata(event.object).get("resourceVersion")}}
                    )
            else:
                yield event
            # Initial events have the resourceVersions of their objects, in no order, so they cannot be resumed from.
            if synced and (version := get_path(event.object, "metadata.resourceVersion")):
                query = {**selectors, **RESUME_QUERY, "resourceVersion": str(version)}
        if quiet:
            time.sleep(RETRY_SECONDS)


def _time_left(deadline: float) -> dict[str, str]:
    """The `timeoutSeconds` parameter for the deadline; empty without a deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded("timed out waiting")
    return {} if left == math.inf else {"timeoutSeconds": str(math.ceil(left))}


def _ends_initial_events(bookmark: Object) -> bool:
    return annotations_of(bookmark).get(INITIAL_EVENTS_END) == "true"


def split_lines(chunks: Iterable[bytes], check_size: Callable[[int], None]) -> Iterator[bytes]:
    """Splits bytes into lines. `str.splitlines` would also split at characters that JSON strings may contain.

    `check_size` is called with the size of a line that is not complete yet, and raises if that is too large.
    """
    rest = bytearray()
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest += first
        check_size(len(rest))
        for part in others:
            if rest:
                yield bytes(rest)
            rest = bytearray(part)
    if rest:
        yield bytes(rest)
