"""Continue tokens: what one says is what was put in, and what nobody put in is a bad request."""

import base64
from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import BadRequest
from fairlead.registry.list import LATEST_REVISION, ContinueToken, parse_continue_token


def forged(document: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


@given(st.integers(-1, 2**63 - 1), st.tuples(st.text(max_size=70), st.text(max_size=260)))
def test_a_token_leads_back_to_its_position(revision: int, after: tuple[str, str]) -> None:
    try:
        token = ContinueToken(revision, after).encode()
    except orjson.JSONEncodeError:  # lone surrogates, which no name has
        return
    assert parse_continue_token(token) == ContinueToken(revision, after)


@given(st.tuples(st.text("abcdefghijklmnopqrstuvwxyz-.0123456789", max_size=253)).map(lambda each: ("demo", *each)))
def test_a_token_can_stand_in_a_url_as_it_is(after: tuple[str, str]) -> None:
    assert ContinueToken(LATEST_REVISION, after).encode().replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "token",
    [
        *("x", "abc", "====", "äöü", "!!!!", "a b", "%00", "YWJj", "bnVsbA", "\x00"),
        *map(forged, [None, 5, [], {}, "text", {"rv": 5}, {"after": ["", "a"]}, {"rv": "5", "after": ["", "a"]}]),
        *map(forged, [{"rv": True, "after": ["", "a"]}, {"rv": 1.5, "after": ["", "a"]}, {"rv": None, "after": []}]),
        *map(
            forged, [{"rv": 5, "after": value} for value in (None, "abc", ["a"], ["a", "b", "c"], [1, "a"], {"a": 1})]
        ),
        forged({"rv": 5, "after": ["a", "b"]})[:-1],
        "A" * 100_000,
    ],
)
def test_what_is_no_token_of_ours_is_a_bad_request(token: str) -> None:
    with pytest.raises(BadRequest, match="continue key is not valid"):
        parse_continue_token(token)


@given(st.text(max_size=40))
def test_no_text_makes_the_parser_stumble(text: str) -> None:
    with suppress(BadRequest):
        parse_continue_token(text)
