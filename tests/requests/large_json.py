"""Large texts of a ConfigMap in JSON: numbers, strings, keys, structure, mistakes and metadata."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.requests.expensive_bodies import BODY_LIMIT

SIZE = BODY_LIMIT - 16 * 1024
"""The size of a body. It leaves room for what is around it."""
MAX_VALUES = 99_000
"""Just below the number of values that the server accepts, so that everything after its check sees them."""
OBJECT = "large-bodies"
"""The name of the ConfigMap."""


def fill(piece: bytes, start: bytes = b"", end: bytes = b"", count: int = 0) -> bytes:
    """The piece up to the size of a body, or so many times, between `start` and `end`."""
    return start + piece * (count or (SIZE - len(start) - len(end)) // len(piece)) + end


def join(pattern: bytes, count: int, separator: bytes = b",") -> bytes:
    """The pattern with the numbers from 0 on, as many as fit into a body, at most `count`."""
    has_number = b"%d" in pattern
    size = len(pattern) + has_number * len(str(count)) + len(separator)
    return separator.join(pattern % number if has_number else pattern for number in range(min(count, SIZE // size)))


def pad(pattern: bytes, count: int) -> bytes:
    """The pattern, so long that `count` of them fill a body: `%s` becomes padding."""
    return pattern.replace(b"%s", b"x" * max(1, SIZE // count - len(pattern)))


def _object(**fields: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OBJECT}, **fields}).encode()


def with_field(content: bytes, field: bytes = b"data") -> bytes:
    """A ConfigMap with a field of this JSON text."""
    return _object()[:-1] + b',"%s":' % field + content + b"}"


def _with_metadata(content: bytes) -> bytes:
    return _object().replace(b'"metadata": {', b'"metadata": {' + content + b", ", 1)


JSON_TEXTS: Mapping[str, Callable[[], bytes]] = {
    # numbers
    "an integer": lambda: with_field(fill(b"9")),
    "a negative integer": lambda: with_field(fill(b"9", b"-")),
    "an integer that ends as a fraction": lambda: with_field(fill(b"9", b"", b".5")),
    "a fraction": lambda: with_field(fill(b"3", b"0.")),
    "a fraction of zeros": lambda: with_field(fill(b"0", b"1.")),
    "an exponent": lambda: with_field(fill(b"9", b"1e")),
    "an exponent of zeros": lambda: with_field(fill(b"0", b"1e")),
    "a number of points": lambda: with_field(fill(b"1.")),
    "integers of 25 digits": lambda: with_field(fill(b"9" * 25 + b",", b"[", b"1]", MAX_VALUES)),
    "integers of 400 digits": lambda: with_field(fill(b"9" * 400 + b",", b"[", b"1]")),
    "fractions of 25 digits": lambda: with_field(fill(b"0." + b"3" * 25 + b",", b"[", b"1]", MAX_VALUES)),
    "integers of 18 digits": lambda: with_field(fill(b"9" * 18 + b",", b"[", b"1]", MAX_VALUES)),
    "small numbers": lambda: with_field(fill(b"1,", b"[", b"1]", MAX_VALUES)),
    "too many small numbers": lambda: with_field(fill(b"1,", b"[", b"1]")),
    "one long integer and text": lambda: with_field(fill(b"x", b'[9999999999999999999,"', b'"]')),
    "digits in a text": lambda: with_field(fill(b"9", b'{"a":"', b'"}')),
    "digits in many texts": lambda: with_field(
        fill(pad(b'"9999999999999999999%s",', MAX_VALUES), b"[", b"1]", MAX_VALUES)
    ),
    # texts
    "a text": lambda: with_field(fill(b"x", b'{"a":"', b'"}')),
    "a text of spaces": lambda: with_field(fill(b" ", b'{"a":"', b'"}')),
    "a text of two bytes a character": lambda: with_field(fill("é".encode(), b'{"a":"', b'"}')),
    "a text of four bytes a character": lambda: with_field(fill("😀".encode(), b'{"a":"', b'"}')),
    "one wide character in a text": lambda: with_field(fill(b"x", b'{"a":"' + "😀".encode(), b'"}')),
    "line breaks": lambda: with_field(fill(b"\\n", b'{"a":"', b'"}')),
    "escaped quotes": lambda: with_field(fill(b'\\"', b'{"a":"', b'"}')),
    "escaped backslashes": lambda: with_field(fill(b"\\\\", b'{"a":"', b'"}')),
    "escaped letters": lambda: with_field(fill(b"\\u0041", b'{"a":"', b'"}')),
    "escaped colons": lambda: with_field(fill(b"\\u003a", b'{"a":"', b'"}')),
    "escaped surrogates": lambda: with_field(fill(b"\\ud83d\\ude00", b'{"a":"', b'"}')),
    "escapes among letters": lambda: with_field(fill(b"x\\n", b'{"a":"', b'"}')),
    "brackets in a text": lambda: with_field(fill(b"[", b'{"a":"', b'"}')),
    "braces and commas in a text": lambda: with_field(fill(b"{,", b'{"a":"', b'"}')),
    "commas and escapes in a text": lambda: with_field(fill(b",\\n", b'{"a":"', b'"}')),
    "colons in a text": lambda: with_field(fill(b":", b'{"a":"', b'"}')),
    "empty texts": lambda: with_field(fill(b'"",', b"[", b'""]', MAX_VALUES)),
    "too many empty texts": lambda: with_field(fill(b'"",', b"[", b'""]')),
    "texts of commas": lambda: with_field(fill(b'",,,,,,,,,,,,,,,,,,,,,,,,,",', b"[", b'""]', MAX_VALUES)),
    "texts of brackets": lambda: with_field(fill(b'"[[[[[[[[[[[[[[[[[[[[[[[[[",', b"[", b'""]', MAX_VALUES)),
    "texts of escapes": lambda: with_field(fill(b'"[\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n",', b"[", b'""]', MAX_VALUES)),
    "medium texts": lambda: with_field(fill(pad(b'"%s",', 1_000), b"[", b'""]', 1_000)),
    "base64 in a Secret": lambda: with_field(fill(b"QUFB", b'{"a":"', b'"}')).replace(b"ConfigMap", b"Secret", 1),
    # keys and structure
    "keys": lambda: with_field(b"{" + join(b'"key-number-%d":"value"', MAX_VALUES) + b"}"),
    "keys and nested values": lambda: with_field(b"{" + join(b'"k%d":{"a":[1]}', MAX_VALUES // 3) + b"}"),
    "unknown fields": lambda: _object()[:-1] + b"," + join(b'"unknown-%d":1', MAX_VALUES) + b"}",
    "a key": lambda: with_field(fill(b"x", b'{"', b'":"a"}')),
    "a key of escapes": lambda: with_field(fill(b"\\u003a", b'{"', b'":"a"}')),
    "long keys": lambda: with_field(b"{" + join(pad(b'"%d%s":""', 1_000).replace(b"%s", b""), 1_000) + b"}"),
    "the same key": lambda: with_field(fill(b'"k":1,', b"{", b'"k":1}', MAX_VALUES)),
    "the same key with an escaped colon": lambda: with_field(fill(b'"k\\u003a":1,', b"{", b'"k":1}', MAX_VALUES)),
    "the same keys in objects": lambda: with_field(fill(b'{"k":1,"k":2},', b"[", b"1]", MAX_VALUES // 3)),
    "empty lists": lambda: with_field(fill(b"[],", b"[", b"[]]", MAX_VALUES // 2)),
    "empty objects": lambda: with_field(fill(b"{},", b"[", b"{}]", MAX_VALUES // 2)),
    "towers": lambda: with_field(fill(b'{"a":' * 150 + b"1" + b"}" * 150 + b",", b"[", b"1]", MAX_VALUES // 300)),
    "towers of lists": lambda: with_field(fill(b"[" * 150 + b"]" * 150 + b",", b"[", b"1]", MAX_VALUES // 300)),
    "nesting without an end": lambda: with_field(fill(b"[")),
    "nesting of objects without an end": lambda: with_field(fill(b'{"a":')),
    "closing brackets": lambda: with_field(fill(b"]")),
    "space": lambda: fill(b" ", _object()),
    "space in the middle": lambda: with_field(fill(b" \n\t\r", b"[", b"1]")),
    "space between values": lambda: with_field(fill(b"1" + b" " * 28 + b",", b"[", b"1]", MAX_VALUES)),
    "words": lambda: with_field(fill(b"null,", b"[", b"true]", MAX_VALUES)),
    # not JSON
    "a text without an end": lambda: with_field(fill(b"x", b'{"a":"'))[:-1],
    "escapes without an end": lambda: with_field(fill(b"\\", b'{"a":"'))[:-1],
    "escaped quotes without an end": lambda: with_field(fill(b'[\\"', b'{"a":"'))[:-1],
    "quotes": lambda: with_field(fill(b'"')),
    "a mistake at the end": lambda: with_field(fill(b"x", b'{"a":"', b'"}')) + b"x",
    "a mistake after many values": lambda: with_field(fill(b"1,", b"[", b"]", MAX_VALUES)),
    "a mistake after many lines": lambda: with_field(fill(b"\n", b"[", b"x]")),
    "a wrong byte at the end": lambda: with_field(fill("é".encode(), b'{"a":"', b'\xff"}')),
    "random bytes": lambda: fill(bytes(range(256))),
    # fields of metadata
    "annotations": lambda: _with_metadata(b'"annotations":{' + join(b'"note-%d":"v"', MAX_VALUES) + b"}"),
    "an annotation": lambda: _with_metadata(fill(b"x", b'"annotations":{"a":"', b'"}')),
    "labels": lambda: _with_metadata(b'"labels":{' + join(b'"example.com/label-%d":"v"', MAX_VALUES) + b"}"),
    "a label": lambda: _with_metadata(fill(b"x", b'"labels":{"a":"', b'"}')),
    "finalizers": lambda: _with_metadata(b'"finalizers":[' + join(b'"example.com/f-%d"', MAX_VALUES) + b"]"),
    "owners": lambda: _with_metadata(
        b'"ownerReferences":['
        + join(b'{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"%d"}', MAX_VALUES // 5)
        + b"]"
    ),
    "a long name": lambda: _object().replace(OBJECT.encode(), b"x" * SIZE),
    "a long kind": lambda: _object().replace(b"ConfigMap", b"x" * SIZE, 1),
    "a manager of many fields": lambda: _with_metadata(
        b'"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",'
        b'"fieldsV1":{"f:data":{' + join(b'"f:key-%d":{}', MAX_VALUES // 2) + b"}}}]"
    ),
    "many managers": lambda: _with_metadata(
        b'"managedFields":['
        + join(
            b'{"manager":"m%d","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{'
            + b",".join(b'"f:k%d":{}' % n for n in range(40)).replace(b"%", b"%%")
            + b"}}}",
            990,
        )
        + b"]"
    ),
    "a manager of list items": lambda: _with_metadata(
        b'"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",'
        b'"fieldsV1":{"f:data":{' + join(b'"k:{\\"name\\":\\"%d\\"}":{}', MAX_VALUES // 2) + b"}}}]"
    ),
}
"""JSON texts of a ConfigMap, valid and not."""
