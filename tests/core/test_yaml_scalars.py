"""Tests of `core/yaml.py`: the meaning of YAML scalars as values and as keys."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core import yaml


def parse_value(text: str) -> Any:
    value, duplicates = yaml.decode(f"v: {text}\n".encode())
    assert duplicates == []
    return value["v"]


def is_same(actual: Any, expected: Any) -> bool:
    return type(actual) is type(expected) and actual == expected


@pytest.mark.parametrize("word", ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
def test_these_words_are_true(word: str) -> None:
    assert parse_value(word) is True


@pytest.mark.parametrize("word", ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
def test_these_words_are_false(word: str) -> None:
    assert parse_value(word) is False


@pytest.mark.parametrize("word", ["", "~", "null", "Null", "NULL"])
def test_these_words_are_null(word: str) -> None:
    assert parse_value(word) is None


@pytest.mark.parametrize(
    "word",
    [
        "yEs",
        "tRUE",
        "nULL",
        "none",
        "yess",
        "inf",
        "nan",
        "NaN",
        "Infinity",
        "=",
        "<<",
        "2001-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "2001-12-14 21:59:43",
        "12:30",
        "190:20:30",
        "190:20:30.15",
        "-1:30",
        "1.2.3",
        "1,000",
        "0x",
        "0xZ",
        "0b2",
        "0o8",
        "1e",
        "1e400",
        "-1e999",
        "._5",
        ".1_000",
        "..",
        "-a",
        "+",
        "_1",
        "0x1p4",
        "50cent_of_dollar",
        "1" * 500,
        "٣",
        "https://example.com",
        "v1",
        "a*b",
    ],
)
def test_these_words_are_text_as_written(word: str) -> None:
    assert is_same(parse_value(word), word)


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("1_000", 1000),
        ("1__0_", 10),
        ("0x1F", 31),
        ("0X1f", 31),
        ("-0x1F", -31),
        ("0x_0A_74_AE", 685230),
        ("0b1010", 10),
        ("-0b101010", -42),
        ("0B11", 3),
        ("0o17", 15),
        ("0O17", 15),
        ("017", 15),
        ("-017", -15),
        ("00", 0),
        ("02472256", 685230),
        ("08", 8),
        ("019", 19),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0x7fffffffffffffff", 2**63 - 1),
        ("-0b1" + "0" * 63, -(2**63)),
        # Whole floats: Kubernetes passes them through JSON, where they are integers.
        ("1.0", 1),
        ("1.", 1),
        ("-1.0", -1),
        ("1e3", 1000),
        ("123456e1", 1234560),
        ("-0.0", 0),
    ],
)
def test_these_words_are_integers(word: str, number: int) -> None:
    assert is_same(parse_value(word), number)


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("1.5", 1.5),
        ("-1.5", -1.5),
        ("+1.5", 1.5),
        (".5", 0.5),
        ("-.5", -0.5),
        (".5e3", 500),
        ("1e-3", 0.001),
        ("1.5E2", 150),
        ("685_230.15", 685230.15),
        ("685.230_15e+03", 685230.15),
        ("1e30", 1e30),
        ("1e-400", 0),
    ],
)
def test_these_words_are_floats(word: str, number: float) -> None:
    assert parse_value(word) == number


@pytest.mark.parametrize(
    "word", [".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF"]
)
def test_numbers_without_a_json_form_are_rejected(word: str) -> None:
    with pytest.raises(yaml.Malformed, match=r"yaml: line 1: .*cannot be represented in JSON; quote it"):
        parse_value(word)


@pytest.mark.parametrize(
    "word",
    [
        "9223372036854775808",
        "-9223372036854775809",
        "1" * 30,
        "0" + "9" * 30,
        "0x" + "f" * 17,
        "0b" + "1" * 64,
    ],
)
def test_integers_beyond_64_bits_become_floats(word: str) -> None:
    value = parse_value(word)
    assert type(value) is float
    assert value == float(int(word, 0) if word[:2] in ("0x", "0b") else int(word))


def test_integers_beyond_all_floats_are_rejected() -> None:
    with pytest.raises(yaml.Malformed, match="is too large; quote it"):
        parse_value("1" * 390)


@pytest.mark.parametrize("word", ["yes", "null", "~", "12", "0x1F", "1.5", ".inf", "<<", "1" * 30, ""])
@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "|-\n  {}", ">-\n  {}", "!!str {}"])
def test_quoted_scalars_are_text(word: str, quoted: str) -> None:
    assert parse_value(quoted.format(word)) == word


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("!!str 5", "5"),
        ("!!str", ""),
        ("!!int 5", 5),
        ("!!int '5'", 5),
        ("!!float 1.5", 1.5),
        ("!!float 1", 1),
        ("!!bool yes", True),
        ('!!bool "off"', False),
        ("!!null ''", None),
        ("!!null ~", None),
        ("!!timestamp 2001-01-01", "2001-01-01"),
        ("!!binary aGVsbG8=", "hello"),
        ("!!binary |\n  aGVs\n  bG8=\n", "hello"),
        ("!<tag:yaml.org,2002:int> 7", 7),
        ("! text", "text"),
        ("! 5", 5),
        ("! [1]", [1]),
        ("!!map {a: 1}", {"a": 1}),
        ("!!seq [1]", [1]),
    ],
)
def test_tags_of_scalars_are_applied(text: str, value: Any) -> None:
    assert is_same(parse_value(text), value)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system [id]",
        "!!python/name:os.system",
        "!!python/tuple [1]",
        "!custom 5",
        "!custom {a: 1}",
        "!<tag:example.com,2020:x> 5",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!merge <<",
        "!!map 5",
        "!!map [1]",
        "!!seq {a: 1}",
        "!!str [1]",
    ],
)
def test_other_tags_are_rejected(text: str) -> None:
    with pytest.raises(yaml.Malformed, match="is not supported; remove it"):
        parse_value(text)


@pytest.mark.parametrize(
    "text", ["!!int x", "!!int 1.5", "!!int yes", "!!bool 1", "!!null x", "!!float x", "!!float yes", "!!int ''"]
)
def test_a_value_that_does_not_match_its_tag_is_rejected(text: str) -> None:
    with pytest.raises(yaml.Malformed, match="cannot be read as !!"):
        parse_value(text)


@pytest.mark.parametrize("text", ["!!binary '***'", "!!binary gIGC", "!!binary abc", "!!binary é"])
def test_binary_that_is_not_text_is_rejected(text: str) -> None:
    with pytest.raises(yaml.Malformed, match="remove the tag"):
        parse_value(text)


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("a", "a"),
        ("1", "1"),
        ("0x10", "16"),
        ("-5", "-5"),
        ("yes", "true"),
        ("on", "true"),
        ("n", "false"),
        ("1.5", "1.5"),
        ("1.0", "1"),
        ("-0.25", "-0.25"),
        ("0.1", "0.1"),
        ("3.14159265", "3.1415927"),
        ("100000.0", "100000"),
        ("1000000.0", "1e+06"),
        ("1.5e-7", "1.5e-07"),
        ("1e300", ".inf"),
        ("-1e300", "-.inf"),
        (".nan", ".nan"),
        ("-.inf", "-.inf"),
        ("2001-01-01", "2001-01-01"),
        ("'null'", "null"),
        ("!!str ~", "~"),
        ("''", ""),
        ("=", "="),
        ("'<<'", "<<"),
    ],
)
def test_keys_become_text(written: str, key: str) -> None:
    assert yaml.decode(f"{written}: v\n".encode()) == ({key: "v"}, [])


@pytest.mark.parametrize("written", ["~", "null", "", "!!null ''"])
def test_a_null_key_is_rejected(written: str) -> None:
    with pytest.raises(yaml.Malformed, match="a key is null or empty"):
        yaml.decode(f"a: 1\n? {written}\n: v\n".encode())
