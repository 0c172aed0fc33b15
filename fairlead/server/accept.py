"""The Accept header: which representation a client would like best of those there are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

MAX_ENTRIES = 100
REMEMBERED_LENGTH = 1_024
"""What anybody can send must not be able to fill the memory."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One entry of an Accept header: a media type, and the view of the object that its parameters ask for."""

    media_type: str
    kind: str = ""
    group: str = ""
    version: str = ""
    quality: float = 1.0

    def covers(self, media_type: str) -> bool:
        return self.media_type in (media_type, "*/*", f"{media_type.partition('/')[0]}/*")


def wishes(accept: str) -> Sequence[Wish]:
    """The entries of an Accept header, best first. Clients send the same few headers again and again."""
    return _remembered(accept) if len(accept) <= REMEMBERED_LENGTH else _wishes(accept)


def _wishes(accept: str) -> Sequence[Wish]:
    entries = (accept or "*/*").split(",", MAX_ENTRIES)[:MAX_ENTRIES]
    parsed = [_wish(entry) for entry in entries if entry.strip()]
    return tuple(sorted((wish for wish in parsed if wish.quality > 0), key=lambda wish: -wish.quality))


_remembered = lru_cache(maxsize=512)(_wishes)


def _wish(entry: str) -> Wish:
    media_type, *parameters = (part.strip() for part in entry.split(";"))
    named = dict(part.split("=", 1) for part in parameters if "=" in part)
    return Wish(
        media_type.lower(), named.get("as", ""), named.get("g", ""), named.get("v", ""), _quality(named.get("q", "1"))
    )


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def accepted(accept: str, media_types: Iterable[str]) -> str:
    """The first of `media_types` that the header allows without asking for a special view, or an empty string."""
    offered = tuple(media_types)
    for wish in wishes(accept):
        if not wish.kind:
            for media_type in offered:
                if wish.covers(media_type):
                    return media_type
    return ""
