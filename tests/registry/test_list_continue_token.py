"""registry/list.py: continue tokens are encoded and parsed; foreign tokens are rejected."""

import base64
from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import BadRequest
from fairlead.registry.list import LATEST_REVISION, ContinueToken, parse_continue_token


def forge_token(document: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


@given(st.integers(-1, 2**63 - 1), st.tuples(st.text(max_size=70), st.text(max_size=260)))
def test_a_token_round_trips(revision: int, after: tuple[str, str]) -> None:
    try:
        token = ContinueToken(revision, after).encode()
    except orjson.JSONEncodeError:  # lone surrogates, which no name contains
        return
    assert parse_continue_token(token) == ContinueToken(revision, after)


@given(st.tuples(st.text("abcdefghijklmnopqrstuvwxyz-.0123456789", max_size=253)).map(lambda each: ("demo", *each)))
def test_a_token_needs_no_url_escaping(after: tuple[str, str]) -> None:
    assert ContinueToken(LATEST_REVISION, after).encode().replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "token",
    [
        *("x", "abc", "====", "äöü", "!!!!", "a b", "%00", "YWJj", "bnVsbA", "\x00"),
        *map(forge_token, [None, 5, [], {}, "text", {"rv": 5}, {"after": ["", "a"]}, {"rv": "5", "after": ["", "a"]}]),
        *map(
            forge_token, [{"rv": True, "after": ["", "a"]}, {"rv": 1.5, "after": ["", "a"]}, {"rv": None, "after": []}]
        ),
        *map(
            forge_token,
            [{"rv": 5, "after": value} for value in (None, "abc", ["a"], ["a", "b", "c"], [1, "a"], {"a": 1})],
        ),
        forge_token({"rv": 5, "after": ["a", "b"]})[:-1],
        "A" * 100_000,
    ],
)
def test_an_invalid_token_is_a_bad_request(token: str) -> None:
    with pytest.raises(BadRequest, match="continue key is not valid"):
        parse_continue_token(token)


@given(st.text(max_size=40))
def test_any_string_is_a_valid_token_or_a_bad_request(text: str) -> None:
    with suppress(BadRequest):
        parse_continue_token(text)
