"""Large texts of a ConfigMap in YAML: scalars, keys, anchors, tags, directives, documents and mistakes."""

from collections.abc import Callable, Mapping

from tests.requests.large_json import MAX_VALUES, SIZE, fill, join, pad, with_field

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
    "JSON": lambda: b" " + with_field(fill(b"1,", b"[", b"1]", MAX_VALUES)),
    "a JSON number": lambda: b" " + with_field(fill(b"9")),
    "a JSON text": lambda: b" " + with_field(fill(b"x", b'{"a":"', b'"}')),
}
"""YAML texts of a ConfigMap, valid and not."""
