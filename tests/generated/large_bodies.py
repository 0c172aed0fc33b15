"""Bodies of nearly the largest size, each expensive in another way: for a parser, a regular expression or a validator.

`templates.py` mixes them into the generated requests, and `beside_large_bodies.py` measures what they cost another
client. A body is built when it is needed: all together they have hundreds of megabytes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT
from tests.security.expensive_bodies import BODY_LIMIT, JSON, PROTOBUF, YAML
from tests.security.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.security.protobuf import encode_envelope, encode_field

SIZE = BODY_LIMIT - 16 * 1024
"""The size of a body. It leaves room for what is around it."""
MAX_VALUES = 99_000
"""Just below the number of values that the server accepts, so that everything after its check sees them."""
MAX_OPERATIONS = 10_000
OBJECT = "large-bodies"
"""The ConfigMap that is patched and replaced. Requests are dry runs: nothing changes it."""

_CREATE, _CHANGE = f"{CONFIGMAPS}?dryRun=All", f"{CONFIGMAPS}/{OBJECT}?dryRun=All"
_APPLY = f"{_CHANGE}&fieldManager=large&force=1"
_MANAGEMENT = f"{MANAGEMENT}/apis/management.service.sh/v1"
_ROLES = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All"


@dataclass(frozen=True, slots=True)
class LargeRequest:
    method: str
    target: str
    media_type: str
    body: bytes


Build = Callable[[], LargeRequest]


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


def _with(content: bytes, field: bytes = b"data") -> bytes:
    """A ConfigMap with a field of this JSON text."""
    return _object()[:-1] + b',"%s":' % field + content + b"}"


def _with_metadata(content: bytes) -> bytes:
    return _object().replace(b'"metadata": {', b'"metadata": {' + content + b", ", 1)


JSON_TEXTS: Mapping[str, Callable[[], bytes]] = {
    # numbers
    "an integer": lambda: _with(fill(b"9")),
    "a negative integer": lambda: _with(fill(b"9", b"-")),
    "an integer that ends as a fraction": lambda: _with(fill(b"9", b"", b".5")),
    "a fraction": lambda: _with(fill(b"3", b"0.")),
    "a fraction of zeros": lambda: _with(fill(b"0", b"1.")),
    "an exponent": lambda: _with(fill(b"9", b"1e")),
    "an exponent of zeros": lambda: _with(fill(b"0", b"1e")),
    "a number of points": lambda: _with(fill(b"1.")),
    "integers of 25 digits": lambda: _with(fill(b"9" * 25 + b",", b"[", b"1]", MAX_VALUES)),
    "integers of 400 digits": lambda: _with(fill(b"9" * 400 + b",", b"[", b"1]")),
    "fractions of 25 digits": lambda: _with(fill(b"0." + b"3" * 25 + b",", b"[", b"1]", MAX_VALUES)),
    "integers of 18 digits": lambda: _with(fill(b"9" * 18 + b",", b"[", b"1]", MAX_VALUES)),
    "small numbers": lambda: _with(fill(b"1,", b"[", b"1]", MAX_VALUES)),
    "too many small numbers": lambda: _with(fill(b"1,", b"[", b"1]")),
    "one long integer and text": lambda: _with(fill(b"x", b'[9999999999999999999,"', b'"]')),
    "digits in a text": lambda: _with(fill(b"9", b'{"a":"', b'"}')),
    "digits in many texts": lambda: _with(fill(pad(b'"9999999999999999999%s",', MAX_VALUES), b"[", b"1]", MAX_VALUES)),
    # texts
    "a text": lambda: _with(fill(b"x", b'{"a":"', b'"}')),
    "a text of spaces": lambda: _with(fill(b" ", b'{"a":"', b'"}')),
    "a text of two bytes a character": lambda: _with(fill("é".encode(), b'{"a":"', b'"}')),
    "a text of four bytes a character": lambda: _with(fill("😀".encode(), b'{"a":"', b'"}')),
    "one wide character in a text": lambda: _with(fill(b"x", b'{"a":"' + "😀".encode(), b'"}')),
    "line breaks": lambda: _with(fill(b"\\n", b'{"a":"', b'"}')),
    "escaped quotes": lambda: _with(fill(b'\\"', b'{"a":"', b'"}')),
    "escaped backslashes": lambda: _with(fill(b"\\\\", b'{"a":"', b'"}')),
    "escaped letters": lambda: _with(fill(b"\\u0041", b'{"a":"', b'"}')),
    "escaped colons": lambda: _with(fill(b"\\u003a", b'{"a":"', b'"}')),
    "escaped surrogates": lambda: _with(fill(b"\\ud83d\\ude00", b'{"a":"', b'"}')),
    "escapes among letters": lambda: _with(fill(b"x\\n", b'{"a":"', b'"}')),
    "brackets in a text": lambda: _with(fill(b"[", b'{"a":"', b'"}')),
    "braces and commas in a text": lambda: _with(fill(b"{,", b'{"a":"', b'"}')),
    "commas and escapes in a text": lambda: _with(fill(b",\\n", b'{"a":"', b'"}')),
    "colons in a text": lambda: _with(fill(b":", b'{"a":"', b'"}')),
    "empty texts": lambda: _with(fill(b'"",', b"[", b'""]', MAX_VALUES)),
    "too many empty texts": lambda: _with(fill(b'"",', b"[", b'""]')),
    "texts of commas": lambda: _with(fill(b'",,,,,,,,,,,,,,,,,,,,,,,,,",', b"[", b'""]', MAX_VALUES)),
    "texts of brackets": lambda: _with(fill(b'"[[[[[[[[[[[[[[[[[[[[[[[[[",', b"[", b'""]', MAX_VALUES)),
    "texts of escapes": lambda: _with(fill(b'"[\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n\\n",', b"[", b'""]', MAX_VALUES)),
    "medium texts": lambda: _with(fill(pad(b'"%s",', 1_000), b"[", b'""]', 1_000)),
    "base64 in a Secret": lambda: _with(fill(b"QUFB", b'{"a":"', b'"}')).replace(b"ConfigMap", b"Secret", 1),
    # keys and structure
    "keys": lambda: _with(b"{" + join(b'"key-number-%d":"value"', MAX_VALUES) + b"}"),
    "keys and nested values": lambda: _with(b"{" + join(b'"k%d":{"a":[1]}', MAX_VALUES // 3) + b"}"),
    "unknown fields": lambda: _object()[:-1] + b"," + join(b'"unknown-%d":1', MAX_VALUES) + b"}",
    "a key": lambda: _with(fill(b"x", b'{"', b'":"a"}')),
    "a key of escapes": lambda: _with(fill(b"\\u003a", b'{"', b'":"a"}')),
    "long keys": lambda: _with(b"{" + join(pad(b'"%d%s":""', 1_000).replace(b"%s", b""), 1_000) + b"}"),
    "the same key": lambda: _with(fill(b'"k":1,', b"{", b'"k":1}', MAX_VALUES)),
    "the same key with an escaped colon": lambda: _with(fill(b'"k\\u003a":1,', b"{", b'"k":1}', MAX_VALUES)),
    "the same keys in objects": lambda: _with(fill(b'{"k":1,"k":2},', b"[", b"1]", MAX_VALUES // 3)),
    "empty lists": lambda: _with(fill(b"[],", b"[", b"[]]", MAX_VALUES // 2)),
    "empty objects": lambda: _with(fill(b"{},", b"[", b"{}]", MAX_VALUES // 2)),
    "towers": lambda: _with(fill(b'{"a":' * 150 + b"1" + b"}" * 150 + b",", b"[", b"1]", MAX_VALUES // 300)),
    "towers of lists": lambda: _with(fill(b"[" * 150 + b"]" * 150 + b",", b"[", b"1]", MAX_VALUES // 300)),
    "nesting without an end": lambda: _with(fill(b"[")),
    "nesting of objects without an end": lambda: _with(fill(b'{"a":')),
    "closing brackets": lambda: _with(fill(b"]")),
    "space": lambda: fill(b" ", _object()),
    "space in the middle": lambda: _with(fill(b" \n\t\r", b"[", b"1]")),
    "space between values": lambda: _with(fill(b"1" + b" " * 28 + b",", b"[", b"1]", MAX_VALUES)),
    "words": lambda: _with(fill(b"null,", b"[", b"true]", MAX_VALUES)),
    # not JSON
    "a text without an end": lambda: _with(fill(b"x", b'{"a":"'))[:-1],
    "escapes without an end": lambda: _with(fill(b"\\", b'{"a":"'))[:-1],
    "escaped quotes without an end": lambda: _with(fill(b'[\\"', b'{"a":"'))[:-1],
    "quotes": lambda: _with(fill(b'"')),
    "a mistake at the end": lambda: _with(fill(b"x", b'{"a":"', b'"}')) + b"x",
    "a mistake after many values": lambda: _with(fill(b"1,", b"[", b"]", MAX_VALUES)),
    "a mistake after many lines": lambda: _with(fill(b"\n", b"[", b"x]")),
    "a wrong byte at the end": lambda: _with(fill("é".encode(), b'{"a":"', b'\xff"}')),
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

_HEAD = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large-bodies}\n"


def _yaml(content: bytes) -> bytes:
    return _HEAD + content


YAML_TEXTS: Mapping[str, Callable[[], bytes]] = {
    "a plain scalar": lambda: _yaml(fill(b"x", b"data: {a: ", b"}\n")),
    "a plain scalar of words": lambda: _yaml(fill(b"x ", b"data: {a: ", b"}\n")),
    "a plain scalar of lines": lambda: _yaml(fill(b"   x\n", b"data:\n  a: x\n")),
    "a number": lambda: _yaml(fill(b"9", b"data: {a: ", b"}\n")),
    "a number with underscores": lambda: _yaml(fill(b"9_", b"data: {a: ", b"}\n")),
    "a tagged number": lambda: _yaml(fill(b"9", b"data: {a: !!int ", b"}\n")),
    "base64": lambda: _yaml(fill(b"QUFB", b"data: {a: !!binary ", b"}\n")),
    "base64 in lines": lambda: _yaml(fill(b"   QUFBQUFBQUFBQUFB\n", b"data:\n  a: !!binary |\n")),
    "a quoted scalar": lambda: _yaml(fill(b"x", b'data: {a: "', b'"}\n')),
    "a quoted scalar of escapes": lambda: _yaml(fill(b"\\x41", b'data: {a: "', b'"}\n')),
    "a quoted scalar of wide escapes": lambda: _yaml(fill(b"\\U0001F600", b'data: {a: "', b'"}\n')),
    "a quoted scalar of lines": lambda: _yaml(fill(b"\n ", b'data: {a: "', b'"}\n')),
    "a quoted scalar of wide characters": lambda: _yaml(fill("😀".encode(), b'data: {a: "', b'"}\n')),
    "a single-quoted scalar": lambda: _yaml(fill(b"''", b"data: {a: '", b"'}\n")),
    "a literal block": lambda: _yaml(fill(b"   x\n", b"data:\n  a: |\n")),
    "a literal block of one line": lambda: _yaml(fill(b"x", b"data:\n  a: |\n   ")),
    "a literal block of empty lines": lambda: _yaml(fill(b"\n", b"data:\n  a: |\n   x\n", b"   x\n")),
    "a folded block": lambda: _yaml(fill(b"   x\n", b"data:\n  a: >\n")),
    "medium scalars": lambda: _yaml(fill(pad(b"  - %s\n", 100), b"data:\n", b"", 100)),
    "a quoted scalar without an end": lambda: _yaml(fill(b"x", b'data: {a: "')),
    "a comment": lambda: _yaml(fill(b"x", b"# ")),
    "comments": lambda: _yaml(fill(b"# x\n")),
    "space": lambda: _yaml(fill(b" ", b"data: ", b"{}\n")),
    "empty lines": lambda: _yaml(fill(b"\n", b"", b"data: {}\n")),
    "empty lines first": lambda: fill(b"\n", b"", _HEAD),
    "a key": lambda: _yaml(fill(b"x", b"data: {? ", b" : a}\n")),
    "a key without a colon": lambda: _yaml(fill(b"x", b"data:\n  ", b"\n")),
    "a quoted key": lambda: _yaml(fill(b"x", b'data: {? "', b'" : a}\n')),
    "keys": lambda: _yaml(b"data:\n" + join(b"  key-%d: value", MAX_VALUES, b"\n")),
    "long keys": lambda: _yaml(b"data:\n" + join(b"  %d" + b"x" * 1_000 + b": v", 3_000, b"\n")),
    "the same key": lambda: _yaml(fill(b"  k: 1\n", b"data:\n")),
    "entries": lambda: _yaml(fill(b" - 1\n", b"data:\n")),
    "flow entries": lambda: _yaml(fill(b"1, ", b"data: [", b"1]\n")),
    "empty flow mappings": lambda: _yaml(fill(b"{}, ", b"data: [", b"1]\n")),
    "floats": lambda: _yaml(fill(b"1.5e3, ", b"data: [", b"1]\n")),
    "float keys": lambda: _yaml(b"data: {" + join(b"%d.5: 1", MAX_VALUES // 2) + b"}\n"),
    "an anchor": lambda: _yaml(fill(b"x", b"data: {a: &", b" y}\n")),
    "anchors": lambda: _yaml(b"data:\n" + join(b" - &a%d x", MAX_VALUES, b"\n")),
    "an alias": lambda: _yaml(fill(b"x", b"data: {a: *", b"}\n")),
    "aliases": lambda: _yaml(fill(b"*a, ", b"data: [&a {k: [1, 2, 3]}, ", b"1]\n")),
    "aliases of a text": lambda: _yaml(fill(b"*a, ", b"data: [&a " + b"x" * 100_000 + b", ", b"1]\n", 1_000)),
    "aliases of a large list": lambda: _yaml(b"data: [&a [" + b"1," * 3_000 + b"1]" + b", *a" * 36 + b"]\n"),
    "merges": lambda: _yaml(b"a: &a {" + join(b"k%d: 1", 500) + b"}\ndata: [" + b"{<<: *a}, " * 200 + b"1]\n"),
    "a tag": lambda: _yaml(fill(b"x", b"data: {a: !", b" y}\n")),
    "a verbatim tag": lambda: _yaml(fill(b"x", b"data: {a: !<", b"> y}\n")),
    "a tag of escapes": lambda: _yaml(fill(b"%41", b"data: {a: !", b" y}\n")),
    "a directive": lambda: fill(b"x", b"%YAML ", b"\n---\n" + _HEAD),
    "an unknown directive": lambda: fill(b"x", b"%X ", b"\n---\n" + _HEAD),
    "directives": lambda: fill(b"%X y\n", b"", b"---\n" + _HEAD),
    "a directive of digits": lambda: fill(b"1", b"%YAML 1.", b"\n---\n" + _HEAD),
    "documents": lambda: fill(b"---\na: 1\n", _HEAD),
    "document ends": lambda: fill(b"...\n", b"", _HEAD),
    "nesting": lambda: _yaml(fill(b"[")),
    "nesting of mappings": lambda: _yaml(fill(b"{a: ")),
    "nesting by indentation": lambda: _yaml(b"".join(b" " * level + b"a:\n" for level in range(190))),
    "sequences of sequences": lambda: _yaml(fill(b"- ")),
    "complex keys": lambda: _yaml(fill(b"? ")),
    "towers": lambda: _yaml(fill(b"[" * 150 + b"]" * 150 + b",\n", b"data: [", b"1]\n")),
    "a wrong byte at the end": lambda: _yaml(fill("é".encode(), b"data: {a: ", b"\xff}\n")),
    "a mistake after many lines": lambda: _yaml(fill(b"\n", b"", b"data: [}\n")),
    "control characters": lambda: _yaml(fill(b"\x01", b"data: {a: ", b"}\n")),
    "a byte order mark": lambda: fill(b"\xef\xbb\xbf", b"", _HEAD),
    "UTF-16": lambda: _yaml(fill(b"x", b"data: {a: ", b"}\n"))[: SIZE // 2].decode().encode("utf-16"),
    "JSON": lambda: b" " + _with(fill(b"1,", b"[", b"1]", MAX_VALUES)),
    "a JSON number": lambda: b" " + _with(fill(b"9")),
    "a JSON text": lambda: b" " + _with(fill(b"x", b'{"a":"', b'"}')),
}
"""YAML texts of a ConfigMap, valid and not."""


def _operations(*operations: Any) -> bytes:
    return json.dumps(operations).encode()


def _value(text: bytes) -> bytes:
    return b'[{"op":"add","path":"/data","value":' + text + b"}]"


JSON_PATCHES: Mapping[str, Callable[[], bytes]] = {
    "additions": lambda: b"[" + join(b'{"op":"add","path":"/data/k%d","value":"v"}', MAX_OPERATIONS) + b"]",
    "additions of long texts": lambda: (
        b"[" + join(b'{"op":"add","path":"/data/k%d","value":"' + b"x" * 200 + b'"}', MAX_OPERATIONS) + b"]"
    ),
    "too many additions": lambda: b"[" + join(b'{"op":"add","path":"/data/k%d","value":"v"}', 30_000) + b"]",
    "a number": lambda: _value(fill(b"9")),
    "a text": lambda: _value(fill(b"x", b'{"a":"', b'"}')),
    "numbers": lambda: _value(fill(b"1,", b"[", b"1]", MAX_VALUES - 10)),
    "tests of a long text": lambda: b"[" + join(b'{"op":"test","path":"/data/large","value":null}', 5_000) + b"]",
    "tests of the whole object": lambda: b"[" + join(b'{"op":"test","path":"","value":null}', 5_000) + b"]",
    "copies": lambda: b"[" + join(b'{"op":"copy","from":"/metadata","path":"/data/k%d"}', MAX_OPERATIONS) + b"]",
    "a path": lambda: _operations({"op": "add", "path": "/" + "x" * SIZE, "value": 1}),
    "a path of slashes": lambda: _operations({"op": "add", "path": "/" * SIZE, "value": 1}),
    "a path of tildes": lambda: _operations({"op": "add", "path": "/" + "~1" * (SIZE // 2), "value": 1}),
    "a path of digits": lambda: _operations({"op": "add", "path": "/data/" + "1" * SIZE, "value": 1}),
    "a long operation": lambda: _operations({"op": "x" * SIZE, "path": "/"}),
    "unknown fields": lambda: b"[{" + join(b'"f%d":1', MAX_VALUES) + b"}]",
    "insertions at the start": lambda: (
        b'[{"op":"add","path":"/metadata/finalizers","value":["a"]},'
        + join(b'{"op":"add","path":"/metadata/finalizers/0","value":"v%d"}', 6_000)
        + b"]"
    ),
    "moves": lambda: (
        b'[{"op":"add","path":"/x","value":{}},' + join(b'{"op":"move","from":"/x","path":"/x"}', 9_000) + b"]"
    ),
}

_STRATEGIC_LIST = b'{"metadata":{"ownerReferences":[' + b"%s" + b"]}}"
STRATEGIC_PATCHES: Mapping[str, Callable[[], bytes]] = {
    "owners by key": lambda: _STRATEGIC_LIST % join(b'{"uid":"%d","name":"a"}', MAX_VALUES // 3),
    "deleted owners": lambda: _STRATEGIC_LIST % join(b'{"uid":"%d","$patch":"delete"}', MAX_VALUES // 3),
    "an order of owners": lambda: (
        b'{"metadata":{"$setElementOrder/ownerReferences":[' + join(b'{"uid":"%d"}', MAX_VALUES // 2) + b"]}}"
    ),
    "deleted finalizers": lambda: (
        b'{"metadata":{"$deleteFromPrimitiveList/finalizers":[' + join(b'"a/%d"', MAX_VALUES) + b"]}}"
    ),
    "an order of finalizers": lambda: (
        b'{"metadata":{"$setElementOrder/finalizers":[' + join(b'"a/%d"', MAX_VALUES) + b"]}}"
    ),
    "kept keys": lambda: b'{"data":{"$retainKeys":[' + join(b'"k%d"', MAX_VALUES) + b"]}}",
    "a number": lambda: fill(b"9", b'{"data":', b"}"),
    "a text": lambda: fill(b"x", b'{"data":{"a":"', b'"}}'),
    "keys": lambda: b'{"data":{' + join(b'"key-%d":"value"', MAX_VALUES) + b"}}",
    "nulls": lambda: b'{"data":{' + join(b'"key-%d":null', MAX_VALUES) + b"}}",
}


def _config_map(*fields: bytes) -> bytes:
    return encode_envelope(b"ConfigMap", encode_field(1, encode_field(1, OBJECT.encode())) + b"".join(fields))


def _entry(key: bytes, value: bytes) -> bytes:
    return encode_field(1, key) + encode_field(2, value)


PROTOBUF_BODIES: Mapping[str, Callable[[], bytes]] = {
    "a text": lambda: _config_map(encode_field(2, _entry(b"a", b"x" * SIZE))),
    "a wide text": lambda: _config_map(encode_field(2, _entry(b"a", "😀".encode() * (SIZE // 4)))),
    "binary data": lambda: _config_map(encode_field(3, _entry(b"a", b"\xff" * SIZE))),
    "entries": lambda: _config_map(*(encode_field(2, _entry(b"key-%d" % n, b"x" * 250)) for n in range(9_900))),
    "too many entries": lambda: _config_map(*(encode_field(2, _entry(b"key-%d" % n, b"v")) for n in range(150_000))),
    "fields of entries": lambda: _config_map(encode_field(2, encode_field(1, b"a") * 9_900) * 99),
    "unknown fields": lambda: _config_map(b"\xf8\x01\x01" * (SIZE // 3)),
    "varints": lambda: _config_map(b"\x20" + b"\xff" * (SIZE // 2)),
    "a wrong text": lambda: _config_map(encode_field(2, _entry(b"a", b"x" * SIZE + b"\xff"))),
}


def _review(name: str, **spec: Any) -> bytes:
    attributes = {"verb": "get", "group": "management.service.sh", "resource": "clusters", "name": "nowhere"}
    return json.dumps(
        {
            "apiVersion": "management.service.sh/v1",
            "kind": name,
            "spec": {"resourceAttributes": attributes, **spec},
        }
    ).encode()


def _scope(rules: int, names: int, **more: Any) -> dict[str, Any]:
    """A scope of rules with distinct names, which together fit into a body."""
    return {
        "rules": [
            {
                "verbs": ["get"],
                "resources": [{"group": "management.service.sh", "resources": ["clusters"]}],
                "resourceNames": [f"name-{rule}-{number}" for number in range(names)],
                **more,
            }
            for rule in range(rules)
        ]
    }


def _batch(scope: Any) -> bytes:
    attributes = {"verb": "get", "group": "management.service.sh", "resource": "clusters"}
    reviews = [{"resourceAttributes": {**attributes, "name": f"n{number}"}} for number in range(200)]
    spec = {"reviews": reviews, "scope": scope}
    body = {"apiVersion": "management.service.sh/v1", "kind": "SelfSubjectAccessReviewBatch", "spec": spec}
    return json.dumps(body).encode()


def _role(rules: int, names: int, resources: int = 1) -> bytes:
    listed = [
        {
            "verbs": ["get"],
            "apiGroups": [""],
            "resources": [f"r{number}" for number in range(resources)],
            "resourceNames": [f"name-{rule}-{number}" for number in range(names)],
        }
        for rule in range(rules)
    ]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "large-bodies"}}
    return json.dumps({**head, "rules": listed}).encode()


def _key(scope: Any) -> bytes:
    head = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "large-bodies"}}
    return json.dumps({**head, "spec": {"user": "admin", "scope": scope}}).encode()


_REVIEWS = f"{_MANAGEMENT}/selfsubjectaccessreviews"
_NAMESPACES = {"namespaces": [f"ns-{number}" for number in range(20)]}


def _post(target: str, build: Callable[[], bytes], media_type: str = JSON) -> Build:
    return lambda: LargeRequest("POST", target, media_type, build())


ACCESS: Mapping[str, Build] = {
    "a review of 1,000 rules of 80 names": _post(
        _REVIEWS, lambda: _review("SelfSubjectAccessReview", scope=_scope(1_000, 80))
    ),
    "a review of 40 rules of 2,000 names": _post(
        _REVIEWS, lambda: _review("SelfSubjectAccessReview", scope=_scope(40, 2_000))
    ),
    "a review of rules with namespaces": _post(
        _REVIEWS, lambda: _review("SelfSubjectAccessReview", scope=_scope(1_000, 60, **_NAMESPACES))
    ),
    "a review of projects": _post(
        _REVIEWS,
        lambda: _review("SelfSubjectAccessReview", scope={"projects": [{"project": f"p{n}"} for n in range(1_000)]}),
    ),
    "a review of groups": _post(
        f"{_MANAGEMENT}/subjectaccessreviews",
        lambda: _review("SubjectAccessReview", user="a", groups=[f"g{n}" + "x" * 500 for n in range(5_000)]),
    ),
    "a batch of reviews of a scope": _post(
        f"{_MANAGEMENT}/selfsubjectaccessreviewbatches", lambda: _batch(_scope(1_000, 80))
    ),
    "an access key of 1,000 rules of 80 names": _post(
        f"{_MANAGEMENT}/ownedaccesskeys?dryRun=All", lambda: _key(_scope(1_000, 80))
    ),
    "a role of rules": _post(_ROLES, lambda: _role(5_000, 15)),
    "a role of names": _post(_ROLES, lambda: _role(9, 10_000)),
    "a role of resources": _post(_ROLES, lambda: _role(90, 1, 1_000)),
    "a binding of subjects": _post(
        _ROLES.replace("clusterroles", "clusterrolebindings"),
        lambda: json.dumps(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "large-bodies"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [
                    {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"u{n}" + "x" * 150}
                    for n in range(10_000)
                ],
            }
        ).encode(),
    ),
}
"""What is decided by many rules or names."""


def _write(method: str, target: str, media_type: str, build: Callable[[], bytes]) -> Build:
    return lambda: LargeRequest(method, target, media_type, build())


def _iter_requests() -> Iterator[tuple[str, Build]]:
    for name, text in JSON_TEXTS.items():
        target = _CREATE.replace("configmaps", "secrets") if "Secret" in name else _CREATE
        yield f"JSON: {name}", _write("POST", target, JSON, text)
    for name in ("a text", "keys", "keys and nested values", "annotations", "a manager of many fields"):
        yield f"replace: {name}", _write("PUT", _CHANGE, JSON, JSON_TEXTS[name])
        yield f"merge patch: {name}", _write("PATCH", _CHANGE, MERGE, JSON_TEXTS[name])
        yield f"apply: {name}", _write("PATCH", _APPLY, APPLY, JSON_TEXTS[name])
    for name, text in YAML_TEXTS.items():
        yield f"YAML: {name}", _write("POST", _CREATE, YAML, text)
    for name in ("a plain scalar", "keys", "entries", "JSON"):
        yield f"apply: {name} in YAML", _write("PATCH", _APPLY, APPLY, YAML_TEXTS[name])
    for name, text in JSON_PATCHES.items():
        yield f"JSON patch: {name}", _write("PATCH", _CHANGE, JSON_PATCH, text)
    for name, text in STRATEGIC_PATCHES.items():
        yield f"strategic merge patch: {name}", _write("PATCH", _CHANGE, STRATEGIC, text)
    for name, text in PROTOBUF_BODIES.items():
        yield f"protobuf: {name}", _write("POST", _CREATE, PROTOBUF, text)
    for name, build in ACCESS.items():
        yield f"access: {name}", build


LARGE_REQUESTS: Mapping[str, Build] = dict(_iter_requests())
"""All requests by name. A request is the same each time it is built."""
