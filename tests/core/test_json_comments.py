"""JSON with comments: what is read, what is refused, and that hostile texts take no longer than others."""

import subprocess
import sys

import pytest

from fairlead.core.body_errors import Malformed
from fairlead.core.json import parse_jsonc


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('// first\n{"a": [1, 2, /* inside */ ], } // last', {"a": [1, 2]}),
        (
            '{"a": "//x /* y */", "b": "\\"//", "c": ",]", "d": "\\\\"}',
            {"a": "//x /* y */", "b": '"//', "c": ",]", "d": "\\"},
        ),
        ('{/***/"a":/* * / **/2,\n\t}', {"a": 2}),
    ],
)
def test_comments_and_trailing_commas_are_read(text: str, value: object) -> None:
    assert parse_jsonc(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "unexpected end"),
        ("[]", "not an object"),
        ("null", "not an object"),
        ('{"a": 1', "unexpected end"),
        ('{"a": "x', "unexpected end"),
        ('{"a": "\\', "unexpected end"),
        ('{"a": 1} /* x', "has no end"),
        ('{"a": 1 / 2}', "invalid JSON"),
        ('{,"a": 1}', "invalid JSON"),
        ("[" * 5000, "nest|depth|levels"),
    ],
)
def test_other_texts_are_refused(text: str, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        parse_jsonc(text)


HOSTILE = """
from fairlead.core.body_errors import Malformed
from fairlead.core.json import parse_jsonc

for piece in ("/*", "/* ", '\\\\"', '"', "/**/", "//", ",", ', "",', "*/", '"/*', "\\\\"):
    try:
        parse_jsonc("{" + piece * (1_000_000 // len(piece)))
    except Malformed:
        print("refused")
"""


def test_a_hostile_text_takes_as_long_as_any_other() -> None:
    """With a search that begins anew at each piece, such a text would take hours. In a process of its own: nothing else
    runs in one while it searches a text."""
    result = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, timeout=120, check=True, text=True)
    assert result.stdout.split() == ["refused"] * 11
