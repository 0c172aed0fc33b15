"""Request bodies within the size limit that need far more work or memory than their size suggests."""

import json
from collections.abc import Callable
from typing import Any

from tests.harness.server_process import configmap
from tests.requests.protobuf import encode_envelope, encode_field

BODY_LIMIT = 3 * 1024 * 1024
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
Body = tuple[str, bytes]


def build_nested_aliases(line: str = "{0}: &{0} [{1}]\n") -> bytes:
    """Builds a billion-laughs document: every level refers nine times to the one below."""
    lines = [line.format("a0", ", ".join(["{k: 1}"] * 9))]
    lines += [line.format(f"a{level}", ", ".join([f"*a{level - 1}"] * 9)) for level in range(1, 30)]
    return "".join(lines).encode()


def repeat_numbered(pattern: bytes, count: int, offsets: tuple[int, ...] = (0,)) -> bytes:
    """Formats the pattern with each number, plus the offsets."""
    return b"".join(pattern % tuple(number + offset for offset in offsets) for number in range(1, count))


def fill_body(piece: bytes, start: bytes = b"", end: bytes = b"") -> bytes:
    """Repeats the piece up to the body limit."""
    return start + piece * ((BODY_LIMIT - len(start) - len(end)) // len(piece)) + end


YAML_BOMBS: dict[str, Callable[[], bytes]] = {
    "aliases of aliases": build_nested_aliases,
    "merges of merges": lambda: build_nested_aliases("{0}: &{0} {{<<: [{1}]}}\n"),
    "aliases of a long text": lambda: b"a: &a " + b"x" * 100_000 + b"\nb: [" + b"*a," * 100_000 + b"]\n",
    "a chain of merges": lambda: (
        b"m0: &m0 {k: 1}\n" + repeat_numbered(b"m%d: &m%d {<<: *m%d, k%d: 1}\n", 9000, (0, 0, -1, 0))
    ),
    "an alias of itself": lambda: b"a: &a [*a]\n",
    "a merge of itself": lambda: b"a: &a {<<: *a}\n",
    "deep lists": lambda: fill_body(b"["),
    "deep mappings": lambda: fill_body(b"{a: "),
    "deep indentation": lambda: b"".join(b" " * level + b"a:\n" for level in range(2400)),
    "deep aliases": lambda: b"- &a0 x\n" + repeat_numbered(b"- &a%d [*a%d]\n", 1000, (0, -1)),
    "many entries": lambda: fill_body(b"- a\n"),
    "many keys": lambda: repeat_numbered(b"%x:\n", 400_000),
    "many anchors": lambda: repeat_numbered(b"- &%x a\n", 200_000),
    "many tags": lambda: repeat_numbered(b"%%TAG !%x! x\n", 150_000),
    "a Python tag": lambda: b"!!python/object/apply:os.system [id]\n",
    "many complex keys": lambda: fill_body(b"? "),
}

JSON_BOMBS: dict[str, Callable[[], bytes]] = {
    "deep lists": lambda: fill_body(b"["),
    "deep objects": lambda: fill_body(b'{"a":'),
    "deep and well-formed": lambda: b"[" * 100_000 + b"]" * 100_000,
    "just too deep": lambda: b'{"a":' * 201 + b"1" + b"}" * 201,
    "an endless number": lambda: fill_body(b"9", b'{"a":', b"}"),
    "many long numbers": lambda: fill_body(b"9" * 25 + b",", b"[", b"1]"),
    "an endless exponent": lambda: b'{"a":1e' + b"9" * 1000 + b"}",
    "quotes": lambda: fill_body(b'"'),
    "backslashes": lambda: fill_body(b"\\", b'{"a":"'),
    "half a surrogate": lambda: b'{"a":"\\ud800"}',
}


def _encode_json(obj: dict[str, Any]) -> Body:
    return JSON, json.dumps(obj).encode()


def _encode_configmap(**metadata: Any) -> Body:
    return _encode_json({**configmap("many-faults"), "metadata": {"name": "many-faults", **metadata}})


REPEATED_FAULTS: dict[str, Callable[[], Body]] = {
    "bad labels": lambda: _encode_configmap(labels={f"-{number}": "-" for number in range(100_000)}),
    "bad annotations": lambda: _encode_configmap(annotations={f"-{number}": "" for number in range(150_000)}),
    "bad finalizers": lambda: _encode_configmap(finalizers=[f"-{number}" for number in range(200_000)]),
    "owners without names": lambda: _encode_configmap(ownerReferences=[{}] * 500_000),
    "owners that are not objects": lambda: _encode_configmap(ownerReferences=[1] * 900_000),
    "values of the wrong type": lambda: _encode_json(
        {**configmap("many-faults"), "data": dict.fromkeys(map(str, range(200_000)), 1)}
    ),
    "invalid keys": lambda: _encode_json({**configmap("many-faults"), "data": {f"/{n}": "" for n in range(150_000)}}),
    "unknown fields": lambda: _encode_json(
        {**configmap("many-faults"), **{f"f{number}": 1 for number in range(200_000)}}
    ),
    "unknown fields in metadata": lambda: _encode_configmap(**{f"f{number}": 1 for number in range(200_000)}),
    "repeated fields": lambda: (JSON, b"{" + b",".join(b'"%x":1,"%x":1' % (n, n) for n in range(120_000)) + b"}"),
    "many field managers": lambda: _encode_configmap(managedFields=[{"manager": "\n"}] * 100_000),
    "owners in protobuf": lambda: (
        PROTOBUF,
        encode_envelope(b"ConfigMap", encode_field(1, encode_field(13, b"") * 1_000_000)),
    ),
    "unknown fields in protobuf": lambda: (PROTOBUF, encode_envelope(b"ConfigMap", b"\xf8\x01\x01" * 900_000)),
}
"""Bodies with the same mistake many times."""
