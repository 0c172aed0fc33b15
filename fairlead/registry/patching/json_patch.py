"""JSON patch, RFC 6902: a list of operations, of which all succeed or none.

`server/api/patch.py` decodes the body. The registry applies the patch to the current object, again after every lost
race, so the result is a new value that shares nothing with the arguments.

As in Kubernetes, this is more lenient than the RFC. A missing field is null: `replace` may add it, `copy` copies null
from it, and `test` for null succeeds. A missing value is null, too. A negative index counts from the end, `~` needs no
escape if no 0 or 1 follows, and what precedes the first slash of a path is ignored.

A body that is not a list of operations is a 400; an operation that fails is a 422. Small patches can cause a lot of
work, by copying repeatedly or by shifting a long list, so both are counted and rejected with 413.
"""

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import orjson

from fairlead.core.body_errors import MAX_DEPTH, Malformed
from fairlead.core.errors import MAX_PROBLEMS, BadRequest, Invalid, Problem, TooLarge, truncate
from fairlead.core.json import decode, encode_sorted
from fairlead.core.objects import Object, copy_json, deep_copy
from fairlead.registry import limits

MAX_OPERATIONS = limits.PATCH_OPERATIONS
MAX_COPIED_BYTES = 3 * 1024 * 1024
MAX_SHIFTED_ENTRIES = 20_000_000
"""About ten milliseconds."""

_OPERATION_FIELDS = frozenset({"op", "path", "from", "value"})
_REJECTED = "the server rejected our request due to an error in our request"
_TOO_LARGE = "Request entity is too large"
_TOO_DEEP = "the object would be nested too deeply; send a patch with less nesting"
_NO_CONTAINER = "the path leads into a value that is neither an object nor a list"
_INDEX = re.compile(r"[+-]?[0-9]+")
_MAX_INDEX_DIGITS = 9
"""Digits; no list in a request needs more."""


class _PatchRejected(Exception):
    """An operation that cannot be applied, and why."""


def apply(document: Object, operations: Any) -> Object:
    """The document after all operations, as a new value. As in Kubernetes, null is a patch without operations."""
    if operations is None:
        operations = []
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


def unknown_fields(operations: Any) -> list[str]:
    """The paths of fields that no operation has, `MAX_PROBLEMS` at most."""
    if not isinstance(operations, list):
        return []
    found = (
        f"[{number}].{truncate(name)}"
        for number, operation in enumerate(operations[:MAX_OPERATIONS])
        if isinstance(operation, dict) and not operation.keys() <= _OPERATION_FIELDS
        for name in operation
        if name not in _OPERATION_FIELDS
    )
    return list(islice(found, MAX_PROBLEMS))


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
    """A document being patched."""

    def __init__(self, document: Object) -> None:
        self._document: Any = deep_copy(document)
        self._copied_bytes = 0
        self._shifted_entries = 0

    def result(self) -> Object:
        """The document, if it is still an object and not nested too deeply: moving values can nest them."""
        document = self._document
        if not isinstance(document, dict):
            reason = "the result is not an object; patch parts of the object, or delete it"
            raise Invalid.of("", "", "", [Problem("patch", "FieldValueInvalid", f"Invalid value: {reason}")])
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
        value = _copy_value(operation)
        if operation.get("path") == "":
            if not isinstance(value, dict | list):
                raise _PatchRejected("the whole object can only be replaced by an object")
            self._document = value
            return
        tokens = _parse_pointer(operation)
        parent = self._parent(tokens)
        if isinstance(parent, list):
            parent[_parse_index(tokens[-1], len(parent))] = value
        else:
            parent[tokens[-1]] = value

    def remove(self, operation: Object) -> None:
        self._pop(_parse_pointer(operation))

    def move(self, operation: Object) -> None:
        value = self._pop(_parse_pointer(operation, "from"))
        self._insert(_parse_pointer(operation), value)

    def copy(self, operation: Object) -> None:
        value = self._get(_parse_pointer(operation, "from"))
        self._copied_bytes += len(orjson.dumps(value))
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise TooLarge(
                f"{_TOO_LARGE}: The copy operations of a JSON patch may copy {MAX_COPIED_BYTES} bytes in total; "
                "copy less, or send several patches"
            )
        self._insert(_parse_pointer(operation), copy_json(value) if isinstance(value, dict | list) else value)

    def test(self, operation: Object) -> None:
        found = self._document if operation.get("path") == "" else self._get(_parse_pointer(operation))
        if encode_sorted(found) != encode_sorted(operation.get("value")):
            raise _PatchRejected("the value is different; read the object again and send a patch for its current state")

    def _get(self, tokens: list[str]) -> Any:
        return _get_child(self._parent(tokens), tokens[-1])

    def _parent(self, tokens: list[str]) -> Any:
        """The object or list that contains the value at a path."""
        parent: Any = self._document
        for token in tokens[:-1]:
            parent = _get_child(parent, token)
            if not isinstance(parent, dict | list):
                raise _PatchRejected(
                    f"there is no object or list {token!r}; add it first" if parent is None else _NO_CONTAINER
                )
        return parent

    def _insert(self, tokens: list[str], value: Any) -> None:
        parent = self._parent(tokens)
        if isinstance(parent, list):
            index = len(parent) if tokens[-1] == "-" else _parse_index(tokens[-1], len(parent) + 1)
            self._count_shift(len(parent) - index)
            parent.insert(index, value)
        else:
            parent[tokens[-1]] = value

    def _pop(self, tokens: list[str]) -> Any:
        parent = self._parent(tokens)
        if isinstance(parent, list):
            index = _parse_index(tokens[-1], len(parent))
            self._count_shift(len(parent) - index)
            return parent.pop(index)
        if tokens[-1] not in parent:
            raise _PatchRejected(f"there is no {tokens[-1]!r}")
        return parent.pop(tokens[-1])

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
    """The tokens of a JSON pointer (RFC 6901), at least one."""
    pointer = operation.get(name)
    if pointer is None:
        raise _PatchRejected(f"{name} is missing")
    if len(pointer) > limits.PATCH_PATH:
        raise _PatchRejected(f"{name} has {len(pointer)} characters, at most {limits.PATCH_PATH} are allowed")
    tokens: list[str] = pointer.split("/")[1:]
    if not tokens:
        raise _PatchRejected(f"{name} must begin with a slash, as in /metadata/labels")
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens] if "~" in pointer else tokens


def _copy_value(operation: Object) -> Any:
    """A copy of the operation's value, for the document to own."""
    value = operation.get("value")
    return copy_json(value) if isinstance(value, dict | list) else value


def _get_child(container: Any, token: str) -> Any:
    """The value at a name or index of an object or a list. A missing field is null."""
    return container[_parse_index(token, len(container))] if isinstance(container, list) else container.get(token)


def _parse_index(token: str, size: int) -> int:
    """The list index that a token stands for. It must be less than `size`; a negative one counts from the end."""
    is_number = len(token) <= _MAX_INDEX_DIGITS and _INDEX.fullmatch(token)
    if not is_number or not -size <= int(token) < size:
        raise _PatchRejected(f"{token!r} is not a list index less than {size}")
    return int(token) % size
