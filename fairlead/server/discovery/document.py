"""Static documents: their variants, content negotiation, ETags and caching.

Discovery and OpenAPI depend on the catalog alone, so their bytes are built once: at startup, or on the first request if
that is slow and rarely needed. `documents.py` builds them. The dispatcher looks up a path with `find_document` and
calls `build_reply`, which is a pure function of the request headers.
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
    """The media type parameters `g`, `v` and `as`, which request the same data as another kind."""

    kind: str
    group: str
    version: str

    def __str__(self) -> str:
        return f"g={self.group};v={self.version};as={self.kind}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One representation of a document. `alias` is another media type that matches it in Accept."""

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


@dataclass(frozen=True)  # no slots: `cached_property` needs a `__dict__`
class Document:
    """A document. If a client accepts several variants equally, it gets the first.

    Without `is_negotiated`, Accept is ignored: a few documents are always JSON. `location` is the URL that contains the
    hash of the content: a response to that URL can be cached forever.
    """

    given: tuple[Variant, ...] | Callable[[], tuple[Variant, ...]]
    """The variants, or a function that builds them on the first request."""
    negotiated: bool = True
    location: str = ""

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        return self.given() if callable(self.given) else self.given

    @property
    def is_made(self) -> bool:
        return not callable(self.given) or "variants" in vars(self)

    def make(self) -> None:
        """Builds the variants in the calling thread."""
        assert self.variants

    @property
    def hash(self) -> str:
        return self.variants[0].hash


def variant(body: bytes, media_type: str = JSON, *, view: View | None = None, alias: str = "") -> Variant:
    return Variant(body, hashlib.sha256(body).hexdigest()[:_HASH_LENGTH].upper(), media_type, view, alias)


def find(documents: Mapping[str, Document], path: str) -> Document | None:
    """The document at a path below the API root, with or without a trailing slash."""
    return documents.get(path) or documents.get(path.removesuffix("/") or "/")


def answer(
    document: Document,
    accept: str = "",
    if_none_match: str = "",
    query: Mapping[str, list[str]] = _NO_QUERY,
) -> Reply:
    """The response to GET: the variant that Accept prefers, 304 if the client has it, 301 for an outdated hash."""
    requested_hash = (query.get("hash") or [""])[0]
    if requested_hash and document.location and requested_hash != document.hash:
        return Reply(301, headers=[("Location", document.location)])
    chosen = _choose(document.variants, accept) if document.negotiated else document.variants[0]
    headers = [("ETag", chosen.etag)]
    if document.negotiated:
        headers.append(("Vary", "Accept"))
    is_immutable = bool(requested_hash and document.location)
    if is_immutable:
        headers.append(("Cache-Control", _FOR_EVER))
    if _has(if_none_match, chosen.etag):
        return Reply(304, content_type=chosen.content_type, headers=headers, cacheable=is_immutable)
    return Reply(200, chosen.body, chosen.content_type, headers, cacheable=is_immutable)


def _has(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags


def _choose(variants: Sequence[Variant], accept: str) -> Variant:
    ranges = wishes(accept)
    best = max(variants, key=lambda each: _liking(each, ranges))
    if not _liking(best, ranges):
        offered = ", ".join(dict.fromkeys(each.media_type for each in variants))
        raise NotAcceptable(f"only the following media types are accepted: {offered}")
    return best


def _liking(offer: Variant, wanted: Sequence[Wish]) -> float:
    """The highest quality value that Accept gives this variant; 0 if it is not accepted."""
    return max((wish.quality for wish in wanted if _fits(wish, offer)), default=0.0)


def _fits(wish: Wish, offer: Variant) -> bool:
    """A variant with media type parameters must be requested by these: `*/*` matches only plain variants."""
    params = View(wish.kind, wish.group, wish.version) if wish.kind else None
    return params == offer.view and (wish.covers(offer.media_type) or wish.media_type == offer.alias)
