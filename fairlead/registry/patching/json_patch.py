"""JSON patch, RFC 6902: a list of operations, of which all succeed or none.

`server/api/patch.py` decodes the body. The registry applies the patch to the current object, again after every lost
race, so the result is a new value that shares nothing with the arguments.

As in Kubernetes, two operations are more lenient than the RFC: `replace` may add a field, and `test` for null succeeds
for a missing field. A body that is not a list of operations is a 400; an operation that fails is a 422. Small patches
can cause a lot of work, by copying repeatedly or by shifting a long list, so both are counted and rejected with 413.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from fairlead.core.body_errors import MAX_DEPTH, Malformed
from fairlead.core.errors import BadRequest, Invalid, TooLarge
from fairlead.core.json import decode
from fairlead.core.objects import Object, deep_copy
from fairlead.registry import limits
from fairlead.registry.patching.field_set import is_equal_json

MAX_OPERATIONS = limits.PATCH_OPERATIONS
MAX_COPIED_BYTES = 3 * 1024 * 1024
MAX_SHIFTED_ENTRIES = 20_000_000
"""About ten milliseconds."""

_REJECTED = "the server rejected our request due to an error in our request"
_TOO_LARGE = "Request entity is too large"
_TOO_DEEP = "the object would be nested too deeply; send a patch with less nesting"
_MAX_INDEX_DIGITS = 9
"""Digits; no list in a request needs more."""


class _PatchRejected(Exception):
    """An operation that cannot be applied, and why."""


def apply(document: Object, operations: Any) -> Object:
    """The document after all operations, as a new value."""
    _check_operations(operations)
    patched = _PatchedDocument(document)
    for number, operation in enumerate(operations):
        try:
            patched.apply_operation(operation)
        except _PatchRejected as refusal:
            title = f"{operation.get('op', '')} {operation.get('path', '')}".strip()
            raise Invalid(f"{_REJECTED}: operation {number} ({title:.100}): {refusal!s:.200}") from refusal
        except orjson.JSONEncodeError as error:
            raise Invalid(f"{_REJECTED}: operation {number}: {_TOO_DEEP}") from error
    return patched.result()


def has_copy_operation(operations: Any) -> bool:
    """Whether a patch may make an object grow by more than the size of the patch."""
    return isinstance(operations, list) and any(
        isinstance(each, dict) and each.get("op") == "copy" for each in operations[:MAX_OPERATIONS]
    )


def _check_operations(operations: Any) -> None:
    """Rejects anything that is not a JSON patch."""
    if not isinstance(operations, list):
        raise BadRequest("error decoding patch: the body must be a list of operations, each with op and path")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(
            f"{_TOO_LARGE}: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    for number, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise BadRequest(f"error decoding patch: operation {number} must be an object with op and path")
        if isinstance(operation.get("op"), str) and isinstance(operation.get("path"), str) and "from" not in operation:
            continue
        for name in ("op", "path", "from"):
            if not isinstance(operation.get(name, ""), str):
                raise BadRequest(f"error decoding patch: {name} of operation {number} must be a string")


class _PatchedDocument:
    """A document being patched. `_root` holds it under the empty key, so that it can be replaced as a whole, too."""

    def __init__(self, document: Object) -> None:
        self._root: Object = {"": deep_copy(document)}
        self._copied_bytes = 0
        self._shifted_entries = 0

    def result(self) -> Object:
        """The document, if it is still an object and not nested too deeply: moving values can nest them."""
        document = self._root.get("")
        if not isinstance(document, dict):
            raise Invalid(f"{_REJECTED}: the result is not an object; patch parts of the object, or delete it")
        try:
            text = orjson.dumps(document)
            if text.count(b"{") + text.count(b"[") > MAX_DEPTH:
                decode(text)
        except (Malformed, orjson.JSONEncodeError) as error:
            raise Invalid(f"{_REJECTED}: {_TOO_DEEP}") from error
        return document

    def apply_operation(self, operation: Object) -> None:
        method = _OPERATIONS.get(operation.get("op", ""))
        if method is None:
            raise _PatchRejected(f"op must be one of {', '.join(_OPERATIONS)}")
        method(self, operation)

    def add(self, operation: Object) -> None:
        self._insert(_parse_pointer(operation), _copy_value(operation))

    def replace(self, operation: Object) -> None:
        tokens = _parse_pointer(operation)
        parent = self._parent(tokens)
        if isinstance(parent, list):
            parent[_parse_index(tokens[-1], len(parent))] = _copy_value(operation)
        else:
            _require_object(parent)[tokens[-1]] = _copy_value(operation)

    def remove(self, operation: Object) -> None:
        self._pop(_parse_pointer(operation))

    def move(self, operation: Object) -> None:
        source, target = _parse_pointer(operation, "from"), _parse_pointer(operation)
        if source == target:
            self._get(source)
        elif target[: len(source)] == source:
            raise _PatchRejected("a value cannot be moved into itself; copy it instead")
        else:
            self._insert(target, self._pop(source))

    def copy(self, operation: Object) -> None:
        encoded = orjson.dumps(self._get(_parse_pointer(operation, "from")))
        self._copied_bytes += len(encoded)
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise TooLarge(
                f"{_TOO_LARGE}: The copy operations of a JSON patch may copy {MAX_COPIED_BYTES} bytes in total; "
                "copy less, or send several patches"
            )
        self._insert(_parse_pointer(operation), orjson.loads(encoded))

    def test(self, operation: Object) -> None:
        tokens, wanted = _parse_pointer(operation), _require_value(operation)
        parent = self._parent(tokens)
        absent = isinstance(parent, dict) and tokens[-1] not in parent
        if absent and wanted is None:
            return
        if absent or not is_equal_json(_get_child(parent, tokens[-1]), wanted):
            raise _PatchRejected("the value is different; read the object again and send a patch for its current state")

    def _get(self, tokens: list[str]) -> Any:
        return _get_child(self._parent(tokens), tokens[-1])

    def _parent(self, tokens: list[str]) -> Any:
        parent: Any = self._root
        for token in tokens[:-1]:
            parent = _get_child(parent, token)
        return parent

    def _insert(self, tokens: list[str], value: Any) -> None:
        parent = self._parent(tokens)
        if isinstance(parent, list):
            index = len(parent) if tokens[-1] == "-" else _parse_index(tokens[-1], len(parent) + 1)
            self._count_shift(len(parent) - index)
            parent.insert(index, value)
        else:
            _require_object(parent)[tokens[-1]] = value

    def _pop(self, tokens: list[str]) -> Any:
        parent = self._parent(tokens)
        if isinstance(parent, list):
            index = _parse_index(tokens[-1], len(parent))
            self._count_shift(len(parent) - index)
            return parent.pop(index)
        value = _get_child(parent, tokens[-1])
        del parent[tokens[-1]]
        return value

    def _count_shift(self, entries: int) -> None:
        self._shifted_entries += entries
        if self._shifted_entries > MAX_SHIFTED_ENTRIES:
            raise TooLarge(
                f"{_TOO_LARGE}: The operations of this JSON patch shift too many list entries; "
                "replace the whole list, or start from its end"
            )


_OPERATIONS: Mapping[str, Callable[[_PatchedDocument, Object], None]] = {
    "add": _PatchedDocument.add,
    "remove": _PatchedDocument.remove,
    "replace": _PatchedDocument.replace,
    "move": _PatchedDocument.move,
    "copy": _PatchedDocument.copy,
    "test": _PatchedDocument.test,
}


def _parse_pointer(operation: Object, name: str = "path") -> list[str]:
    """The tokens of a JSON pointer (RFC 6901). The first is always empty: the key of the document in `_root`."""
    pointer = operation.get(name)
    if pointer is None:
        raise _PatchRejected(f"{name} is missing")
    tokens: list[str] = pointer.split("/")
    if tokens[0]:
        raise _PatchRejected(f"{name} must begin with a slash, as in /metadata/labels")
    return [_unescape(token) for token in tokens] if "~" in pointer else tokens


def _unescape(token: str) -> str:
    plain = token.replace("~1", "/").replace("~0", "~")
    if token.count("~") != token.count("~0") + token.count("~1"):
        raise _PatchRejected("in a path, write ~ as ~0, and / within a name as ~1")
    return plain


def _require_value(operation: Object) -> Any:
    if "value" not in operation:
        raise _PatchRejected("value is missing; send null explicitly")
    return operation["value"]


def _copy_value(operation: Object) -> Any:
    """A copy of the operation's value, for the document to own."""
    value = _require_value(operation)
    return orjson.loads(orjson.dumps(value)) if isinstance(value, dict | list) else value


def _get_child(container: Any, token: str) -> Any:
    """The value at a name or index."""
    if isinstance(container, list):
        return container[_parse_index(token, len(container))]
    fields = _require_object(container)
    if token not in fields:
        raise _PatchRejected(f"there is no {token!r}; add it first")
    return fields[token]


def _require_object(container: Any) -> Object:
    if not isinstance(container, dict):
        raise _PatchRejected("the path leads into a value that is neither an object nor a list")
    return container


def _parse_index(token: str, size: int) -> int:
    """The list index that a token stands for. It must be less than `size`."""
    is_number = token.isascii() and token.isdigit() and (token == "0" or token[0] != "0")
    if not is_number or len(token) > _MAX_INDEX_DIGITS or int(token) >= size:
        raise _PatchRejected(f"{token!r} is not a list index less than {size}")
    return int(token)
