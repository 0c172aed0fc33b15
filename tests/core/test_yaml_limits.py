"""Tests of `core/yaml.py`: expensive YAML is rejected, or parsed with bounded work and memory.

Time is not asserted. Without the budgets these tests would not fail, they would not end.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from fairlead.core import yaml
from fairlead.core.body_errors import MAX_DEPTH
from fairlead.core.yaml import MAX_COST, NODE_COST

BODY_LIMIT = 3 * 2**20


def fill_body(piece: bytes, start: bytes = b"", end: bytes = b"") -> bytes:
    """Repeats the piece up to the size limit."""
    return start + piece * ((BODY_LIMIT - len(start) - len(end)) // len(piece)) + end


def build_nested_aliases(levels: int, line: str = "{0}: &{0} [{1}]\n") -> bytes:
    """Builds a billion-laughs document: every level refers nine times to the one below."""
    lines = [line.format("a0", ", ".join(["lol"] * 9))]
    lines += [line.format(f"a{level}", ", ".join([f"*a{level - 1}"] * 9)) for level in range(1, levels)]
    return "".join(lines).encode()


def get_error(data: bytes) -> str:
    with pytest.raises(yaml.Malformed) as caught:
        yaml.decode(data)
    return str(caught.value)


def build_merge_chain() -> Iterator[bytes]:
    yield b"m0: &m0 {k: 1}\n"
    for link in range(1, 5000):
        yield b"m%d: &m%d {<<: *m%d, k%d: 1}\n" % (link, link, link - 1, link)


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_nested_aliases(10),
        lambda: build_nested_aliases(10_000),
        lambda: b"a: &a " + b"x" * 100_000 + b"\nb: [" + b"*a," * 100_000 + b"]\n",
        lambda: b"- &m {" + b",".join(b"k%d: 1" % n for n in range(1000)) + b"}\n- <<: [" + b"*m," * 10_000 + b"]\n",
        lambda: b"- &m {" + b",".join(b"k%d: 1" % n for n in range(1000)) + b"}\n-\n" + b"  <<: *m\n" * 10_000,
        lambda: b"".join(build_merge_chain()),
        lambda: fill_body(b"a,", b"[", b"]"),
        lambda: fill_body(b"[],", b"[", b"]"),
        lambda: fill_body(b"a: 1,", b"{", b"}"),
        lambda: fill_body(b"*a,", b"[&a a,", b"]"),
        lambda: fill_body(b"- \n"),
        lambda: fill_body(b"- a\n"),
        lambda: fill_body(b'{"a":[1,2,{"b":null}]},', b"[", b"0]"),
        lambda: b"".join(b"%x:\n" % key for key in range(1_000_000)),
        lambda: b"{a: " * 190 + b"{" + b"a: {x: 1,x: 1}," * 40_000 + b"}" + b"}" * 190,
    ],
    ids=[
        "laughs", "many laughs", "long text", "merge list", "merges", "merge chain", "list", "empty lists", "one key",
        "aliases", "empty entries", "entries", "json", "a million keys", "deep repetition",
    ],
)  # fmt: skip
def test_a_document_that_expands_too_far_is_rejected(build: Callable[[], bytes]) -> None:
    assert "too many nodes or aliases" in get_error(build())


@pytest.mark.parametrize(
    "build",
    [
        lambda: fill_body(b"["),
        lambda: fill_body(b"{a: "),
        lambda: fill_body(b"[{a: "),
        lambda: fill_body(b"- "),
        lambda: b"".join(b" " * level + b"a:\n" for level in range(2000)),
        lambda: b"- &a0 x\n" + b"".join(b"- &a%d [*a%d]\n" % (level, level - 1) for level in range(1, 1000)),
    ],
    ids=["lists", "mappings", "both", "dashes", "indentation", "aliases"],
)
def test_a_document_that_nests_too_deep_is_rejected(build: Callable[[], bytes]) -> None:
    assert f"deeper than {MAX_DEPTH} levels" in get_error(build())


@pytest.mark.parametrize(
    "data",
    [
        fill_body(b"{"),
        fill_body(b"? "),
        fill_body(b"?\n"),
        fill_body(b": "),
        fill_body(b","),
        fill_body(b"*"),
        fill_body(b"& "),
        fill_body(b"!"),
        fill_body(b"a: "),
        fill_body(b"a", b'"'),
        fill_body(b"\t"),
        fill_body(b"\0"),
        fill_body(b"\xff"),
        fill_body(b"a\n", b"{"),
        fill_body(b"1" * 390 + b",", b"[", b"]"),
        fill_body(b"%YAML 1.1\n"),
    ],
    ids=lambda data: repr(data[:8]),
)
def test_malformed_documents_are_rejected(data: bytes) -> None:
    get_error(data)


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n", "\x85", "\u2028"])
def test_many_tag_directives_are_rejected_before_they_are_compared(line_break: str) -> None:
    lines = line_break.join(f"%TAG !t{number}! tag:example.com,2020:" for number in range(70_000))
    assert get_error(lines.encode()) == "yaml: too many %TAG lines; remove them"


def test_a_text_can_contain_tag_directives() -> None:
    text = "%TAG " * 1000
    assert yaml.decode(f"a: '{text}'\n".encode()) == ({"a": text}, [])
    assert yaml.decode(b"%TAG !y! tag:yaml.org,2002:\n---\n!y!int '1'\n") == (1, [])


@pytest.mark.parametrize("piece", [b" ", b"\n", b"#\n", b"\r", "\x85".encode()], ids=repr)
def test_a_large_empty_body_is_null(piece: bytes) -> None:
    assert yaml.decode(fill_body(piece)) == (None, [])


@pytest.mark.parametrize("piece", [b"a", b"a,", b"1", b"a "], ids=repr)
def test_a_large_body_of_one_text_is_that_text(piece: bytes) -> None:
    data = fill_body(piece)
    assert yaml.decode(data) == (data.decode().strip(), [])


def test_aliases_within_the_budget_are_expanded() -> None:
    value, _ = yaml.decode(build_nested_aliases(4))
    assert value["a3"] == [[[["lol"] * 9] * 9] * 9] * 9


def test_the_maximum_number_of_nodes_is_accepted() -> None:
    count = MAX_COST // (NODE_COST + 1) - 1
    assert yaml.decode(b"[" + b"a," * count + b"]") == (["a"] * count, [])
    assert "too many nodes" in get_error(b"[" + b"a," * (count + 1) + b"]")


def test_nesting_up_to_the_limit_is_accepted() -> None:
    value, _ = yaml.decode(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == []
    assert "deeper than" in get_error(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


def test_an_alias_counts_with_its_own_depth() -> None:
    half = MAX_DEPTH // 2
    deep = b"- &d " + b"[" * half + b"]" * half + b"\n"
    room = MAX_DEPTH - half - 1
    assert yaml.decode(deep + b"- " + b"[" * room + b"*d" + b"]" * room)
    assert "deeper than" in get_error(deep + b"- " + b"[" * (room + 1) + b"*d" + b"]" * (room + 1))


def test_a_chain_of_merges_is_not_deep() -> None:
    last = MAX_DEPTH + 20
    links = b"".join(b"m%d: &m%d {<<: [*m%d]}\n" % (link, link, link - 1) for link in range(1, last + 1))
    value, _ = yaml.decode(b"m0: &m0 {k: 1}\n" + links)
    assert value[f"m{last}"] == {"k": 1}


@pytest.mark.parametrize(
    "data",
    [build_nested_aliases(1000), build_nested_aliases(1000, "{0}: &{0} {{<<: [{1}]}}\n").replace(b"lol", b"{k: 1}")],
)
def test_a_bomb_takes_little_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        get_error(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20
