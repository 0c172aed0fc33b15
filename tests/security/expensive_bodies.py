"""Bodies that are small, or fit into a request, and ask for far more work than their size suggests."""

import json
from collections.abc import Callable
from typing import Any

from tests.harness.server_process import configmap
from tests.security.protobuf import envelope, field

BODY_LIMIT = 3 * 1024 * 1024
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
Body = tuple[str, bytes]


def laughs(line: str = "{0}: &{0} [{1}]\n") -> bytes:
    """Every level names the one below nine times."""
    lines = [line.format("a0", ", ".join(["{k: 1}"] * 9))]
    lines += [line.format(f"a{level}", ", ".join([f"*a{level - 1}"] * 9)) for level in range(1, 30)]
    return "".join(lines).encode()


def repeated(pattern: bytes, count: int, offsets: tuple[int, ...] = (0,)) -> bytes:
    """The pattern with each number in turn, or numbers beside it."""
    return b"".join(pattern % tuple(number + offset for offset in offsets) for number in range(1, count))


def filled(piece: bytes, start: bytes = b"", end: bytes = b"") -> bytes:
    """As large as a body may be."""
    return start + piece * ((BODY_LIMIT - len(start) - len(end)) // len(piece)) + end


YAML_BOMBS: dict[str, Callable[[], bytes]] = {
    "aliases of aliases": laughs,
    "merges of merges": lambda: laughs("{0}: &{0} {{<<: [{1}]}}\n"),
    "aliases of a long text": lambda: b"a: &a " + b"x" * 100_000 + b"\nb: [" + b"*a," * 100_000 + b"]\n",
    "a chain of merges": lambda: b"m0: &m0 {k: 1}\n" + repeated(b"m%d: &m%d {<<: *m%d, k%d: 1}\n", 9000, (0, 0, -1, 0)),
    "an alias of itself": lambda: b"a: &a [*a]\n",
    "a merge of itself": lambda: b"a: &a {<<: *a}\n",
    "deep lists": lambda: filled(b"["),
    "deep mappings": lambda: filled(b"{a: "),
    "deep indentation": lambda: b"".join(b" " * level + b"a:\n" for level in range(2400)),
    "deep aliases": lambda: b"- &a0 x\n" + repeated(b"- &a%d [*a%d]\n", 1000, (0, -1)),
    "many entries": lambda: filled(b"- a\n"),
    "many keys": lambda: repeated(b"%x:\n", 400_000),
    "many anchors": lambda: repeated(b"- &%x a\n", 200_000),
    "many tags": lambda: repeated(b"%%TAG !%x! x\n", 150_000),
    "a tag of another language": lambda: b"!!python/object/apply:os.system [id]\n",
    "many complex keys": lambda: filled(b"? "),
}

JSON_BOMBS: dict[str, Callable[[], bytes]] = {
    "deep lists": lambda: filled(b"["),
    "deep objects": lambda: filled(b'{"a":'),
    "deep and closed": lambda: b"[" * 100_000 + b"]" * 100_000,
    "just too deep": lambda: b'{"a":' * 201 + b"1" + b"}" * 201,
    "a number without end": lambda: filled(b"9", b'{"a":', b"}"),
    "many long numbers": lambda: filled(b"9" * 25 + b",", b"[", b"1]"),
    "an exponent without end": lambda: b'{"a":1e' + b"9" * 1000 + b"}",
    "quotes": lambda: filled(b'"'),
    "backslashes": lambda: filled(b"\\", b'{"a":"'),
    "half a surrogate": lambda: b'{"a":"\\ud800"}',
}


def _written(obj: dict[str, Any]) -> Body:
    return JSON, json.dumps(obj).encode()


def _with(**metadata: Any) -> Body:
    return _written({**configmap("flood"), "metadata": {"name": "flood", **metadata}})


FLOODS: dict[str, Callable[[], Body]] = {
    "bad labels": lambda: _with(labels={f"-{number}": "-" for number in range(100_000)}),
    "bad annotations": lambda: _with(annotations={f"-{number}": "" for number in range(150_000)}),
    "bad finalizers": lambda: _with(finalizers=[f"-{number}" for number in range(200_000)]),
    "owners without names": lambda: _with(ownerReferences=[{}] * 500_000),
    "owners that are none": lambda: _with(ownerReferences=[1] * 900_000),
    "values of the wrong type": lambda: _written(
        {**configmap("flood"), "data": dict.fromkeys(map(str, range(200_000)), 1)}
    ),
    "keys that are none": lambda: _written({**configmap("flood"), "data": {f"/{n}": "" for n in range(150_000)}}),
    "unknown fields": lambda: _written({**configmap("flood"), **{f"f{number}": 1 for number in range(200_000)}}),
    "unknown fields in metadata": lambda: _with(**{f"f{number}": 1 for number in range(200_000)}),
    "repeated fields": lambda: (JSON, b"{" + b",".join(b'"%x":1,"%x":1' % (n, n) for n in range(120_000)) + b"}"),
    "records of managers": lambda: _with(managedFields=[{"manager": "\n"}] * 100_000),
    "owners in protobuf": lambda: (PROTOBUF, envelope(b"ConfigMap", field(1, field(13, b"") * 1_000_000))),
    "unknown fields in protobuf": lambda: (PROTOBUF, envelope(b"ConfigMap", b"\xf8\x01\x01" * 900_000)),
}
"""One mistake, made over and over."""
