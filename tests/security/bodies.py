"""Bodies: objects of every kind with something wrong in them, written in JSON, YAML or protobuf, or not quite."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import yaml

from tests.security import values
from tests.security.api_resources import Resource
from tests.security.malformed_fields import METADATA, PARTS


def twisted(random: Random, obj: Any, resource: Resource) -> Any:
    """The object with one thing changed."""
    obj = deepcopy(obj)
    places = list(values.paths(obj))
    if not isinstance(obj, dict) or not places:
        return values.odd(random)
    place = random.choice(places)
    holder = values.parent(obj, place)
    match random.randrange(10):
        case 0 | 1:
            holder[place[-1]] = values.odd(random)
        case 2:
            del holder[place[-1]]
        case 3:
            obj[random.choice(("x", "", "é", "a\nb", "$patch", "status", "spec", "metadata", "items"))] = values.odd(
                random
            )
        case 4 | 5:
            obj["metadata"] = {**_as_dict(obj.get("metadata")), **deepcopy(random.choice(METADATA))}
        case 6 | 7:
            made = values.made(random, resource.schema)
            obj |= {
                name: value for name, value in _as_dict(made).items() if name not in ("metadata", "kind", "apiVersion")
            }
        case 8:
            obj |= deepcopy(random.choice(PARTS.get(resource.kind, ({},))))
        case _:
            return values.odd(random)
    return obj


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_json(random: Random, value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=random.random() < 0.5).encode()


def as_yaml(random: Random, value: Any) -> bytes:
    """What nests too deep for the library is written as JSON, which is YAML as well."""
    try:
        text: str = yaml.dump(value, Dumper=yaml.CSafeDumper, allow_unicode=random.random() < 0.5)
    except RecursionError:
        return as_json(random, value)
    return text.encode()


_BOMBS = (
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


def broken(random: Random, body: bytes) -> bytes:
    """Text that is no longer what it was."""
    at = random.randrange(len(body) + 1)
    breaks: tuple[Callable[[], bytes], ...] = (
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
        lambda: random.choice(_BOMBS),
        lambda: random.randbytes(random.choice((1, 50, 5000))),
        lambda: b"",
    )
    return random.choice(breaks)()
