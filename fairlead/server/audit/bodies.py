"""Bodies as values, for the log: decoded if that is cheap, and otherwise the reason why not.

Called in the writer's thread, by `draft.py`. A body that the server could not read has been answered with an error
already; here it is no error but a remark.
"""

from collections.abc import Callable
from typing import Any

from fairlead.core import json, yaml
from fairlead.core.malformed import Malformed
from fairlead.server import protobuf
from fairlead.server.negotiate import JSON, YAML

CAPTURED_BYTES = 2 * 1024 * 1024
YAML_BYTES = 256 * 1024
"""YAML is read a hundred times as slowly as JSON; what is larger than this is not worth the time."""

JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"


class Omitted(Exception):
    """There is a body, but the log does not have it. The text says why."""


def decoded(body: bytes, media_type: str) -> Any:
    """The value of a body. Raises Omitted."""
    decode = _DECODERS.get(media_type)
    if decode is None:
        raise Omitted("neither JSON nor YAML nor protobuf")
    if len(body) > CAPTURED_BYTES:
        raise Omitted(f"larger than {CAPTURED_BYTES} bytes")
    try:
        return decode(body)
    except Malformed:
        raise Omitted("malformed") from None  # the error itself might quote the body


def _from_yaml(body: bytes) -> Any:
    if len(body) > YAML_BYTES:
        raise Omitted(f"YAML larger than {YAML_BYTES} bytes")
    value, _ = yaml.decode(body)
    return value


def _from_configuration(body: bytes) -> Any:
    """What is applied is YAML by name, and JSON nearly always."""
    if body.lstrip().startswith(b"{"):
        try:
            return json.decode(body)
        except Malformed:
            pass
    return _from_yaml(body)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "": json.decode,
    JSON: json.decode,
    YAML: _from_yaml,
    protobuf.MEDIA_TYPE: protobuf.decode,
    JSON_PATCH: json.decode,
    "application/merge-patch+json": json.decode,
    "application/strategic-merge-patch+json": json.decode,
    _APPLY: _from_configuration,
}
