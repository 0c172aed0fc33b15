"""A document that is the same for every request: its variants, and the reply that a request for it gets.

Discovery and OpenAPI are functions of the catalog alone, so their bytes are made once: at start, or what takes long and
is seldom asked for when somebody first does. `documents.py` makes them, the pipeline looks a path up with `find` and
hands the rest to `answer`, which is pure: headers in, Reply out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fairlead.core.call import Reply
from fairlead.core.errors import NotAcceptable
from fairlead.server.api.content import JSON, Wish, wishes

_YEAR = 365 * 24 * 3600
_FOR_EVER = f"public, max-age={_YEAR}, immutable"
_HASH_LENGTH = 32
_NO_QUERY: Mapping[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class View:
    """Parameters of a media type that ask for the same facts in another shape."""

    kind: str
    group: str
    version: str

    def __str__(self) -> str:
        return f"g={self.group};v={self.version};as={self.kind}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One representation. `alias` is another name that Accept may call its media type by."""

    body: bytes
    hash: str
    media_type: str = JSON
    view: View | None = None
    alias: str = ""

    @property
    def content_type(self) -> str:
        return f"{self.media_type};{self.view}" if self.view else self.media_type

    @property
    def etag(self) -> str:
        return f'"{self.hash}"'


@dataclass(frozen=True)  # without slots: what is made later needs a place to be kept
class Document:
    """What stands at a path. Where a client likes several variants alike, it gets the first of them.

    `negotiated` says whether Accept is looked at; a few documents are JSON whatever is asked. `location` is the URL
    that names this very content by its hash: asked for by that name, it may be kept for ever.
    """

    given: tuple[Variant, ...] | Callable[[], tuple[Variant, ...]]
    """The variants, or what makes them when they are first asked for."""
    negotiated: bool = True
    location: str = ""

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        return self.given() if callable(self.given) else self.given

    @property
    def is_made(self) -> bool:
        return not callable(self.given) or "variants" in vars(self)

    def make(self) -> None:
        """Makes the variants, in whichever thread it is called."""
        assert self.variants

    @property
    def hash(self) -> str:
        return self.variants[0].hash


def variant(body: bytes, media_type: str = JSON, *, view: View | None = None, alias: str = "") -> Variant:
    return Variant(body, hashlib.sha256(body).hexdigest()[:_HASH_LENGTH].upper(), media_type, view, alias)


def find(documents: Mapping[str, Document], path: str) -> Document | None:
    """The document at a path below the API root, with or without a slash at its end."""
    return documents.get(path) or documents.get(path.removesuffix("/") or "/")


def answer(
    document: Document,
    accept: str = "",
    if_none_match: str = "",
    query: Mapping[str, list[str]] = _NO_QUERY,
) -> Reply:
    """The reply to GET: the variant that Accept prefers, 304 if the client has it, 301 if it asked for an old hash."""
    wanted = (query.get("hash") or [""])[0]
    if wanted and document.location and wanted != document.hash:
        return Reply(301, headers=[("Location", document.location)])
    chosen = _choose(document.variants, accept) if document.negotiated else document.variants[0]
    headers = [("ETag", chosen.etag)]
    if document.negotiated:
        headers.append(("Vary", "Accept"))
    lasting = bool(wanted and document.location)
    if lasting:
        headers.append(("Cache-Control", _FOR_EVER))
    if _has(if_none_match, chosen.etag):
        return Reply(304, content_type=chosen.content_type, headers=headers, cacheable=lasting)
    return Reply(200, chosen.body, chosen.content_type, headers, cacheable=lasting)


def _has(if_none_match: str, etag: str) -> bool:
    held = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in held or "*" in held


def _choose(variants: Sequence[Variant], accept: str) -> Variant:
    wanted = wishes(accept)
    best = max(variants, key=lambda each: _liking(each, wanted))
    if not _liking(best, wanted):
        offered = ", ".join(dict.fromkeys(each.media_type for each in variants))
        raise NotAcceptable(f"only the following media types are accepted: {offered}")
    return best


def _liking(offer: Variant, wanted: Sequence[Wish]) -> float:
    """The best quality that a client gives to this variant, 0 if it cannot read it."""
    return max((wish.quality for wish in wanted if _fits(wish, offer)), default=0.0)


def _fits(wish: Wish, offer: Variant) -> bool:
    """A view is only for those who name it: `*/*` means the plain variant."""
    asked = View(wish.kind, wish.group, wish.version) if wish.kind else None
    return asked == offer.view and (wish.covers(offer.media_type) or wish.media_type == offer.alias)
