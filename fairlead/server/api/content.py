"""Content negotiation: the Accept header, request bodies (JSON, YAML, protobuf), and responses in JSON or YAML.

Handlers return encoded JSON. It is decoded only if the client asks for another representation.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from fairlead.core import json, yaml
from fairlead.core.body_errors import MAX_VALUES, Malformed
from fairlead.core.call import Call
from fairlead.core.concurrency import COMPUTE, LARGE, LARGE_YAML
from fairlead.core.errors import BadRequest, NotAcceptable, TooLarge, UnsupportedMediaType
from fairlead.server.api import protobuf

MAX_ENTRIES = 100
REMEMBERED_LENGTH = 1_024
"""Longer headers are not cached, as clients choose them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One entry of an Accept header. `kind`, `group` and `version` are its parameters `as`, `g` and `v`."""

    media_type: str
    kind: str = ""
    group: str = ""
    version: str = ""
    quality: float = 1.0

    def covers(self, media_type: str) -> bool:
        return self.media_type in (media_type, "*/*", f"{media_type.partition('/')[0]}/*")


def wishes(accept: str) -> Sequence[Wish]:
    """The entries of an Accept header by quality, cached: clients send the same few headers again and again."""
    return _remembered(accept) if len(accept) <= REMEMBERED_LENGTH else _wishes(accept)


def _wishes(accept: str) -> Sequence[Wish]:
    entries = (accept or "*/*").split(",", MAX_ENTRIES)[:MAX_ENTRIES]
    parsed = [_wish(entry) for entry in entries if entry.strip()]
    return tuple(sorted((item for item in parsed if item.quality > 0), key=lambda item: -item.quality))


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
    """The best of `media_types` for an Accept header, ignoring entries with `as`; empty if there is none."""
    offered = tuple(media_types)
    for media_range in wishes(accept):
        if not media_range.kind:
            for media_type in offered:
                if media_range.covers(media_type):
                    return media_type
    return ""


JSON = "application/json"
YAML = "application/yaml"
_OFFERED = (JSON, YAML)
_META_GROUP = "meta.k8s.io"
_VIEWS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_PRETTY_AGENTS = ("curl/", "Wget/", "Mozilla/")


@dataclass(frozen=True, slots=True)
class Form:
    """The negotiated representation: media type, and view such as `Table` (empty for the object itself)."""

    media_type: str = JSON
    view: str = ""


def chosen_form(accept: str) -> Form:
    """The representation for an Accept header. Raises NotAcceptable if none is supported."""
    return _remembered_form(accept) if len(accept) <= REMEMBERED_LENGTH else _form(accept)


def _form(accept: str) -> Form:
    for media_range in wishes(accept):
        for media_type in _OFFERED:
            if not media_range.covers(media_type):
                continue
            if not media_range.kind:
                return Form(media_type)
            if media_range.kind in _VIEWS and media_range.group == _META_GROUP and media_range.version == "v1":
                return Form(media_type, media_range.kind)
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(_OFFERED)}")


_remembered_form = lru_cache(maxsize=512)(_form)


def error_media_type(accept: str) -> str:
    """The media type of errors: YAML if the client asked for it, otherwise JSON, even if it is not acceptable."""
    return accepted(accept, _OFFERED) or JSON


def wants_pretty(call: Call) -> bool:
    """Whether to indent: by the parameter `pretty`, or by default for curl, wget and browsers."""
    if call.query and "pretty" in call.query:
        return call.parameter("pretty").lower() not in ("0", "false")
    return call.headers.get("user-agent", "").startswith(_PRETTY_AGENTS)


def rendered(body: bytes, media_type: str, pretty: bool) -> bytes:
    """Converts encoded JSON to YAML or to indented JSON, as requested."""
    if media_type == YAML:
        return yaml.encode(orjson.loads(body))
    if pretty:
        return json.encode_pretty(orjson.loads(body))
    return body


def media_type_of(call: Call) -> str:
    """The media type of the request body, without parameters."""
    return call.headers.get("content-type", "").partition(";")[0].strip().lower()


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
    decode, is_yaml = _DECODERS[media_type], media_type == YAML
    if is_yaml:
        call.body_size = yaml.unfolded_size(body)
    try:
        if call.body_size <= (LARGE_YAML if is_yaml else LARGE):
            return decode(body)
        return await COMPUTE.run(call.body_size, decode, body)
    except BadRequest as error:
        raise BadRequest(f"the object provided is unrecognized (must be of type {expected}): {error}") from None


def check_values(body: bytes) -> None:
    """Rejects JSON with too many values, before it is decoded."""
    if json.has_too_many_values(body):
        raise TooLarge(f"Request entity too large: more than {MAX_VALUES} values; split it into several objects")


def parsed_json(body: bytes) -> tuple[Any, Sequence[str]]:
    check_values(body)
    try:
        value = json.decode(body)
        return value, json.duplicate_keys(body, value)
    except Malformed as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None


def parsed_yaml(body: bytes) -> tuple[Any, Sequence[str]]:
    try:
        return yaml.decode(body)
    except Malformed as error:
        raise BadRequest(f"the body is not valid YAML: {error}") from None


def _parsed_protobuf(body: bytes) -> tuple[Any, Sequence[str]]:
    try:
        return protobuf.decode(body), ()
    except Malformed as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from None


_DECODERS: dict[str, Callable[[bytes], tuple[Any, Sequence[str]]]] = {
    "": parsed_json,
    JSON: parsed_json,
    YAML: parsed_yaml,
    protobuf.MEDIA_TYPE: _parsed_protobuf,
}
"""Decoders by media type. Without a Content-Type, a body is JSON."""
