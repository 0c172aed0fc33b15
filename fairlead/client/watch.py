"""What `Client.watch` yields, and how a watch that the server has ended goes on where it was.

A server ends each watch after a while, which is no news. The next request then begins at the last version that was
told; bookmarks keep that one young while nothing else happens.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fairlead.client.errors import DeadlinePassed
from fairlead.core.objects import Object, dig, metadata

ADDED, MODIFIED, DELETED, SYNCED = "ADDED", "MODIFIED", "DELETED", "SYNCED"
BOOKMARK = "BOOKMARK"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

PAUSE = 1.0
"""Seconds before asking again after a watch that told nothing: a server that ends all at once is in trouble already."""

GOING_ON = {"watch": "true", "allowWatchBookmarks": "true"}
BEGINNING = {**GOING_ON, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


@dataclass(frozen=True, slots=True)
class Event:
    """ADDED, MODIFIED or DELETED with an object; or SYNCED without one, once all that was there has been told."""

    type: str
    object: Object


Opened = Callable[[Mapping[str, str]], Iterable[Object]]
"""Sends one watch request and yields its lines until the server ends it."""


def followed(opened: Opened, selection: Mapping[str, str], seconds: float = math.inf) -> Iterator[Event]:
    """The events of as many requests as it takes, each event once. What fails is raised by `opened`.

    Raises DeadlinePassed after so many `seconds`.
    """
    deadline = time.monotonic() + seconds
    query = {**selection, **BEGINNING}
    synced = False
    while True:
        quiet = True
        for line in opened({**query, **_time_left(deadline)}):
            _time_left(deadline)
            quiet = False
            event = Event(str(line.get("type")), line.get("object") or {})
            if event.type == BOOKMARK:
                if not synced and _ends_the_beginning(event.object):
                    synced = True
                    yield Event(SYNCED, {})
            else:
                yield event
            # Before that, versions are those of single objects, in no order.
            if synced and (version := dig(event.object, "metadata.resourceVersion")):
                query = {**selection, **GOING_ON, "resourceVersion": str(version)}
        if quiet:
            time.sleep(PAUSE)


def _time_left(deadline: float) -> dict[str, str]:
    """The parameter that has the server end a watch in time; none where there is no deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlinePassed("the time for waiting has passed")
    return {} if left == math.inf else {"timeoutSeconds": str(math.ceil(left))}


def _ends_the_beginning(bookmark: Object) -> bool:
    return (metadata(bookmark).get("annotations") or {}).get(INITIAL_EVENTS_END) == "true"


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of bytes. Texts are split at other characters, too, which JSON has in the midst of its strings."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)
    if rest:
        yield rest
