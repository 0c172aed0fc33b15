"""Generates request bodies: objects of every kind with faults in them, as JSON or YAML that may be malformed."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import yaml

from tests.requests import values
from tests.requests.api_resources import Resource
from tests.requests.malformed_fields import KIND_FIELDS, METADATA


def mutate_object(random: Random, obj: Any, resource: Resource) -> Any:
    """Returns a copy of the object with one change."""
    obj = deepcopy(obj)
    paths = list(values.iter_paths(obj))
    if not isinstance(obj, dict) or not paths:
        return values.choose_odd_value(random)
    path = random.choice(paths)
    parent = values.get_parent(obj, path)
    match random.randrange(10):
        case 0 | 1:
            parent[path[-1]] = values.choose_odd_value(random)
        case 2:
            del parent[path[-1]]
        case 3:
            obj[random.choice(("x", "", "é", "a\nb", "$patch", "status", "spec", "metadata", "items"))] = (
                values.choose_odd_value(random)
            )
        case 4 | 5:
            obj["metadata"] = {**_dict_or_empty(obj.get("metadata")), **deepcopy(random.choice(METADATA))}
        case 6 | 7:
            generated = values.generate_value(random, resource.schema)
            obj |= {
                name: value
                for name, value in _dict_or_empty(generated).items()
                if name not in ("metadata", "kind", "apiVersion")
            }
        case 8:
            obj |= deepcopy(random.choice(KIND_FIELDS.get(resource.kind, ({},))))
        case _:
            return values.choose_odd_value(random)
    return obj


def _dict_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def encode_json(random: Random, value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=random.random() < 0.5).encode()


def encode_yaml(random: Random, value: Any) -> bytes:
    """Falls back to JSON, which is valid YAML, where the value nests too deep for the library."""
    try:
        text: str = yaml.dump(value, Dumper=yaml.CSafeDumper, allow_unicode=random.random() < 0.5)
    except RecursionError:
        return encode_json(random, value)
    return text.encode()


_YAML_BOMBS = (
    b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nd: &d [*c,*c,*c]\ne: [*d,*d,*d]\n",
    b"&a [*a]", b"a: &a {<<: *a}", b"x: *nowhere", b"&a a: *a", b"? [a]\n: b", b"? {a: b}",
    b"!!python/object:os.system x",
    b"{0x1F: 0b11, 017: 08, 1.5: 1_000, 1e30: 1e3, true: off, .5: -0.0, +1: 2001-01-01}", b"a: !!float 1",
    b"? 1.0e+400\n",
    b"a: &x {b: 1}\nc: {<<: *x, b: 2, <<: [*x, *x]}", b"a: &x 1.5\n*x : *x", b"a: !!int x", b"a: !!binary aGk=",
    b"{1: a, 1: b}",
    b"!!binary x", b"!!set {a}", b"!<x> y", b"%YAML 9.9\n---\na", b"%TAG ! x\n---\n!a b", b"---\n---\n", b"...", b"\t",
    b"- " * 900,
    b"[" * 900, b"{a: " * 900, b"a: 1e999", b"a: .inf", b"a: 0x" + b"f" * 99, b"a: 1:2:3", b"a: ~\n~: a", b"<<: 1",
    b"<<: [1]",
    b"a: |9999999999\n x", b"a: >-\n" + b" x\n" * 999, b'"\\ud800"', b'"\\x00": 1', b"a: @x", b"\xef\xbb\xbfa: 1", b"'",
    b"- &" + b"a" * 999,
)  # fmt: skip


def corrupt_body(random: Random, body: bytes) -> bytes:
    """Returns the body with one corruption."""
    at = random.randrange(len(body) + 1)
    corruptions: tuple[Callable[[], bytes], ...] = (
        lambda: body[:at],
        lambda: (
            body[:at] + random.choice((b"\xff", b"\x00", b"{", b"]", b'"', b"\\", b",", b"\xc3", b"NaN")) + body[at:]
        ),
        lambda: body + body,
        lambda: body.replace(b'":', b'":1,"x":', 1),
        lambda: body[:-1] + b"," + body[1:] if body else b"{}",
        lambda: b"\xef\xbb\xbf" + body,
        lambda: body.decode(errors="replace").encode("utf-16"),
        lambda: body.replace(b'"', b"'"),
        lambda: body.replace(b"{", b'{"a":1,"a":2,', 2),
        lambda: body.replace(b"}", b',"n":' + b"9" * random.choice((19, 400, 5000)) + b"}", 1),
        lambda: b"[" * 3000 + body,
        lambda: random.choice(_YAML_BOMBS),
        lambda: random.randbytes(random.choice((1, 50, 5000))),
        lambda: b"",
    )
    return random.choice(corruptions)()
