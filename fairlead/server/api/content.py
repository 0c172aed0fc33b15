"""Content negotiation: the Accept header, request bodies (JSON, YAML, protobuf), and responses in JSON or YAML.

Handlers return encoded JSON. It is decoded only if the client asks for another representation.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fairlead.core import json, yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.call import Call
from fairlead.core.concurrency import LARGE_JSON_BYTES, LARGE_YAML_BYTES, compute
from fairlead.core.errors import BadRequest, NotAcceptable, TooLarge, UnsupportedMediaType
from fairlead.core.json.slices import decode_stored
from fairlead.server.api import protobuf

MAX_ACCEPT_ENTRIES = 100
MAX_CACHED_ACCEPT_LENGTH = 1_024
"""Longer headers are not cached, as clients choose them."""


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One entry of an Accept header. `kind`, `group` and `version` are its parameters `as`, `g` and `v`."""

    media_type: str
    kind: str = ""
    group: str = ""
    version: str = ""
    quality: float = 1.0

    def matches(self, media_type: str) -> bool:
        return self.media_type in (media_type, "*/*", "*", f"{media_type.partition('/')[0]}/*")


def parse_accept(accept: str) -> Sequence[MediaRange]:
    """The entries of an Accept header by quality, cached: clients send the same few headers again and again."""
    return _parse_accept_cached(accept) if len(accept) <= MAX_CACHED_ACCEPT_LENGTH else _parse_accept(accept)


def _parse_accept(accept: str) -> Sequence[MediaRange]:
    """As in Kubernetes, a quality of 0 is the lowest one, and named types precede wildcards of the same quality."""
    entries = (accept or "*/*").split(",", MAX_ACCEPT_ENTRIES)[:MAX_ACCEPT_ENTRIES]
    parsed = [_parse_media_range(entry) for entry in entries if entry.strip()]
    return tuple(sorted(parsed, key=lambda item: (-item.quality, item.media_type.count("*"))))


_parse_accept_cached = lru_cache(maxsize=512)(_parse_accept)


def _parse_media_range(entry: str) -> MediaRange:
    media_type, *parameters = (part.strip() for part in entry.split(";"))
    named = dict(part.split("=", 1) for part in parameters if "=" in part)
    return MediaRange(
        media_type.lower(),
        named.get("as", ""),
        named.get("g", ""),
        named.get("v", ""),
        _parse_quality(named.get("q", "1")),
    )


def _parse_quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(quality) else quality


def negotiate_media_type(accept: str, media_types: Iterable[str]) -> str:
    """The best of `media_types` for an Accept header, ignoring entries with `as`; empty if there is none."""
    offered = tuple(media_types)
    for media_range in parse_accept(accept):
        if not media_range.kind:
            for media_type in offered:
                if media_range.matches(media_type):
                    return media_type
    return ""


JSON = "application/json"
YAML = "application/yaml"
_OFFERED = (JSON, YAML)
PLAIN_JSON = frozenset({"", "*/*", JSON})
"""Accept headers that need no parsing: of nearly all clients but kubectl."""
_META_GROUP = "meta.k8s.io"
_AS_KINDS = {(kind, _META_GROUP) for kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")}
_PRETTY_AGENTS = ("curl/", "Wget/", "Mozilla/")


@dataclass(frozen=True, slots=True)
class Representation:
    """The negotiated representation. `as_kind` is the parameter `as`, such as `Table`; empty for the object itself."""

    media_type: str = JSON
    as_kind: str = ""
    by_name: bool = True
    """The client named a media type, or accepts any: `application/*` alone does neither."""


def negotiate(accept: str) -> Representation:
    """The representation for an Accept header. Raises NotAcceptable if none is supported."""
    return _negotiate_cached(accept) if len(accept) <= MAX_CACHED_ACCEPT_LENGTH else _negotiate(accept)


def _negotiate(accept: str) -> Representation:
    ranges = parse_accept(accept)
    by_name = any(media_range.media_type in ("*/*", *_OFFERED) for media_range in ranges)
    for media_range in ranges:
        for media_type in _OFFERED:
            if not media_range.matches(media_type):
                continue
            if not (media_range.kind or media_range.group or media_range.version):
                return Representation(media_type, by_name=by_name)
            if (media_range.kind, media_range.group) in _AS_KINDS and media_range.version == "v1":
                return Representation(media_type, media_range.kind, by_name)
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(_OFFERED)}")


def accepts_media_type(accept: str) -> bool:
    """Whether an Accept header names an offered media type, in whatever form (`as`)."""
    return any(media_range.matches(each) for media_range in parse_accept(accept) for each in _OFFERED)


_negotiate_cached = lru_cache(maxsize=512)(_negotiate)


def error_media_type(accept: str) -> str:
    """The media type of errors: YAML if the client asked for it, otherwise JSON, even if it is not acceptable."""
    return negotiate_media_type(accept, _OFFERED) or JSON


def wants_pretty(call: Call) -> bool:
    """Whether to indent: by the parameter `pretty`, or by default for curl, wget and browsers."""
    if call.query and "pretty" in call.query:
        return call.parameter("pretty").lower() not in ("0", "false")
    return is_pretty_agent(call.headers.get("user-agent", ""))


def is_pretty_agent(user_agent: str) -> bool:
    """Whether a client gets indented JSON if it does not say otherwise."""
    return user_agent.startswith(_PRETTY_AGENTS)


def render(body: bytes, media_type: str, pretty: bool) -> bytes:
    """Converts encoded JSON to YAML or to indented JSON, as requested."""
    if media_type == YAML:
        return yaml.encode(decode_stored(body))
    if pretty:
        return json.encode_pretty(decode_stored(body))
    return body


def media_type_of(call: Call) -> str:
    """The media type of the request body, without parameters."""
    header = call.headers.get("content-type")
    return header if header in _PLAIN_MEDIA_TYPES else header.partition(";")[0].strip().lower()


_PLAIN_MEDIA_TYPES = frozenset(
    {
        JSON,
        *(f"application/{patch}+json" for patch in ("json-patch", "merge-patch", "strategic-merge-patch")),
        "application/apply-patch+yaml",
    }
)
"""Content types of nearly all bodies. They need no parsing."""


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'\s*;\s*({_TOKEN})\s*=\s*({_TOKEN}|"(?:[^"\\]|\\.)*")', re.ASCII)


def _has_valid_parameters(content_type: str) -> bool:
    """Whether the parameters of a Content-Type have names and values, and no name has two values."""
    if ";" not in content_type:
        return True
    rest = content_type[content_type.index(";") :]
    found: dict[str, str] = {}
    while match := _PARAMETER.match(rest):
        rest = rest[match.end() :]
        if found.setdefault(match[1].lower(), match[2]) != match[2]:
            return False
    return rest.strip() in ("", ";")


async def read_raw(call: Call) -> bytes:
    """The raw body. Compressed bodies are rejected, because of decompression bombs."""
    encoding = call.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(
            f'Content-Encoding "{encoding}" is not supported for request bodies; send the body uncompressed'
        )
    body = await call.read_body()
    call.body_size = len(body)
    return body


async def read_object(call: Call, expected: str, *, optional: bool = False) -> tuple[Any, Sequence[str]]:
    """The decoded body, and the paths of its duplicate keys. `expected` is the kind, for error messages."""
    media_type = media_type_of(call)
    body = await read_raw(call)
    if optional and not body:
        return None, ()
    if media_type not in _DECODERS:
        known = ", ".join(filter(None, _DECODERS))
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {known}"
        )
    if not _has_valid_parameters(call.headers.get("content-type", "")):
        raise UnsupportedMediaType("the parameters of the Content-Type are malformed; write them as `name=value`")
    decode, is_yaml = _DECODERS[media_type], media_type == YAML
    if is_yaml:
        call.body_size = yaml.expanded_size(body)
    try:
        inline_size = LARGE_YAML_BYTES if is_yaml else LARGE_JSON_BYTES
        return await compute(call.body_size, decode, body, inline_size=inline_size)
    except BadRequest as error:
        raise BadRequest(f"the object provided is unrecognized (must be of type {expected}): {error}") from None


def parse_json(body: bytes) -> tuple[Any, Sequence[str]]:
    try:
        return json.parse_body(body)
    except json.TooManyValues as error:
        raise too_many_values(error) from None
    except Malformed as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None


def too_many_values(error: json.TooManyValues) -> TooLarge:
    return TooLarge(f"Request entity too large: {error}")


def parse_yaml(body: bytes) -> tuple[Any, Sequence[str]]:
    try:
        return yaml.decode(body)
    except Malformed as error:
        raise BadRequest(f"the body is not valid YAML: {error}") from None


def _parse_protobuf(body: bytes) -> tuple[Any, Sequence[str]]:
    try:
        return protobuf.decode(body), ()
    except Malformed as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from None


_DECODERS: dict[str, Callable[[bytes], tuple[Any, Sequence[str]]]] = {
    "": parse_json,
    JSON: parse_json,
    YAML: parse_yaml,
    protobuf.MEDIA_TYPE: _parse_protobuf,
}
"""Decoders by media type. Without a Content-Type, a body is JSON."""
