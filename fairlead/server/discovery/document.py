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
from fairlead.server.api.content import JSON, MediaRange, parse_accept

_YEAR_SECONDS = 365 * 24 * 3600
IMMUTABLE_CACHE_CONTROL = f"public, max-age={_YEAR_SECONDS}, immutable"
_HASH_LENGTH = 32
_NOT_ACCEPTED = float("-inf")
_NO_QUERY: Mapping[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class MediaTypeParams:
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
    params: MediaTypeParams | None = None
    alias: str = ""

    @property
    def content_type(self) -> str:
        return f"{self.media_type};{self.params}" if self.params else self.media_type

    @property
    def etag(self) -> str:
        return f'"{self.hash}"'


@dataclass(frozen=True)  # no slots: `cached_property` needs a `__dict__`
class Document:
    """A document. If a client accepts several variants equally, it gets the first.

    Without `is_negotiated`, Accept is ignored: a few documents are always JSON. `location` is the URL that contains the
    hash of the content: a response to that URL can be cached forever.
    """

    source: tuple[Variant, ...] | Callable[[], tuple[Variant, ...]]
    """The variants, or a function that builds them on the first request."""
    is_negotiated: bool = True
    location: str = ""

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        return self.source() if callable(self.source) else self.source

    @property
    def is_built(self) -> bool:
        return not callable(self.source) or "variants" in vars(self)

    def build(self) -> None:
        """Builds the variants in the calling thread."""
        assert self.variants

    @property
    def hash(self) -> str:
        return self.variants[0].hash


def build_variant(
    body: bytes, media_type: str = JSON, *, params: MediaTypeParams | None = None, alias: str = ""
) -> Variant:
    return Variant(body, hashlib.sha256(body).hexdigest()[:_HASH_LENGTH].upper(), media_type, params, alias)


def find_document(documents: Mapping[str, Document], path: str) -> Document | None:
    """The document at a path below the API root, with or without a trailing slash."""
    return documents.get(path) or documents.get(path.removesuffix("/") or "/")


def build_reply(
    document: Document,
    accept: str = "",
    if_none_match: str = "",
    query: Mapping[str, list[str]] = _NO_QUERY,
) -> Reply:
    """The response to GET: the variant that Accept prefers, 304 if the client has it, 301 for an outdated hash."""
    requested_hash = (query.get("hash") or [""])[0]
    if requested_hash and document.location and requested_hash != document.hash:
        return Reply(301, headers=[("Location", document.location)])
    chosen = _choose_variant(document.variants, accept) if document.is_negotiated else document.variants[0]
    headers = [("ETag", chosen.etag)]
    if document.is_negotiated:
        headers.append(("Vary", "Accept"))
    is_immutable = bool(requested_hash and document.location)
    if is_immutable:
        headers.append(("Cache-Control", IMMUTABLE_CACHE_CONTROL))
    if matches_etag(if_none_match, chosen.etag):
        return Reply(304, content_type=chosen.content_type, headers=headers, cacheable=is_immutable)
    return Reply(200, chosen.body, chosen.content_type, headers, cacheable=is_immutable)


def matches_etag(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags


def _choose_variant(variants: Sequence[Variant], accept: str) -> Variant:
    ranges = parse_accept(accept)
    best = max(variants, key=lambda each: _quality_of(each, ranges))
    if _quality_of(best, ranges) == _NOT_ACCEPTED:
        offered = ", ".join(dict.fromkeys(each.media_type for each in variants))
        raise NotAcceptable(f"only the following media types are accepted: {offered}")
    return best


def _quality_of(variant: Variant, ranges: Sequence[MediaRange]) -> float:
    """The highest quality value that Accept gives this variant, or `_NOT_ACCEPTED`."""
    accepted = (media_range.quality for media_range in ranges if _is_accepted(media_range, variant))
    return max(accepted, default=_NOT_ACCEPTED)


def _is_accepted(media_range: MediaRange, variant: Variant) -> bool:
    """A variant with media type parameters must be requested by these: `*/*` matches only plain variants."""
    params = MediaTypeParams(media_range.kind, media_range.group, media_range.version) if media_range.kind else None
    return params == variant.params and (
        media_range.matches(variant.media_type) or media_range.media_type == variant.alias
    )
