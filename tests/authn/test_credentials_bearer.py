"""The Authorization header: exactly one bearer token; everything else is invalid."""

import base64
import random
import string
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from fairlead.authn.access_keys import KEY_PREFIX, generate_key
from fairlead.authn.credentials import INVALID_TOKEN, MAX_HEADER_BYTES, bearer_token
from fairlead.core.errors import Unauthorized
from tests.harness.access_keys import PEPPER, KeyDirectory
from tests.harness.calls import call

KEY = KEY_PREFIX + base64.urlsafe_b64encode(bytes(range(32))).rstrip(b"=").decode()
"""Constant, because it is part of test ids, which must be the same in all test processes."""
HEADER_COUNT = 10_000


def parse_token(*authorization: str) -> str | None:
    return bearer_token(call(headers={"authorization": authorization} if authorization else {}))


def is_invalid(*authorization: str) -> bool:
    with pytest.raises(Unauthorized) as error:
        parse_token(*authorization)
    return error.value.message == INVALID_TOKEN


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_may_be_written_in_any_case(scheme: str) -> None:
    assert parse_token(f"{scheme} {KEY}") == KEY


def test_spaces_around_the_token_do_not_matter() -> None:
    assert parse_token(f"Bearer   {KEY} ") == KEY


def test_t10_an_unreadable_header_is_invalid_rather_than_absent() -> None:
    with pytest.raises(Unauthorized, match=INVALID_TOKEN):
        bearer_token(call(headers={"authorization": ()}))


def test_a_request_without_the_header_has_no_token() -> None:
    assert parse_token() is None


@pytest.mark.parametrize(
    "header",
    ["", " ", "\t", "Bearer", "bearer", "Bearer ", "Bearer    ", "Bearer \t", KEY, f"Bearer{KEY}", f"Bearer\t{KEY}"],
)
def test_t10_a_header_without_a_scheme_and_a_token_is_invalid(header: str) -> None:
    assert is_invalid(header)


@pytest.mark.parametrize("header", [f" Bearer {KEY}", f"Basic {KEY}", f"Token {KEY}", f"Bearer:{KEY}"])
def test_t10_another_scheme_is_invalid(header: str) -> None:
    assert is_invalid(header)


def test_t10_a_basic_credential_with_the_key_as_password_is_invalid() -> None:
    assert is_invalid("Basic " + base64.b64encode(f"alice:{KEY}".encode()).decode())


@pytest.mark.parametrize("other", [f"Bearer {KEY}", "", "Basic x"])
def test_t10_two_headers_are_invalid_whatever_they_contain(other: str) -> None:
    assert is_invalid(f"Bearer {KEY}", other)
    assert is_invalid(other, f"Bearer {KEY}")
    assert is_invalid(other, other)


def test_t10_an_oversized_header_is_invalid() -> None:
    largest = "x" * (MAX_HEADER_BYTES - len("Bearer "))
    assert parse_token(f"Bearer {largest}") == largest
    assert is_invalid(f"Bearer {largest}x")
    assert is_invalid(f"Bearer {KEY}{' ' * MAX_HEADER_BYTES}")
    assert is_invalid(f"Bearer {'x' * 65_000}")


@pytest.mark.parametrize("text", ["ü", "Bearer ü", f"Bearer {KEY}\u00a0", f"Bearer\u2003{KEY}", "Bearer \ud800"])
def test_t10_a_header_that_is_not_ascii_is_invalid(text: str) -> None:
    assert is_invalid(text)


# --- tokens that are not the key


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer Bearer {KEY}",
        f"Bearer {KEY} {KEY}",
        f"Bearer {KEY},{KEY}",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY}x",
        f"Bearer {KEY.upper()}",
        f"Bearer {KEY.removeprefix(KEY_PREFIX)}",
        f"Bearer {KEY}\x00",
        f'Bearer "{KEY}"',
        "Bearer null",
        "Bearer None",
        f"Bearer {PEPPER.digest(KEY)}",
    ],
)
async def test_a_token_that_is_not_exactly_the_key_is_rejected(directory: KeyDirectory, header: str) -> None:
    await directory.add_user("alice")
    await directory.add_key("alices-key", KEY, "alice")
    assert directory.accepts(KEY)
    assert directory.rejects(header)


def mutate_header(random_source: random.Random) -> str:
    """A valid header with a random change, or a random header."""
    header = f"Bearer {KEY}"
    position = random_source.randrange(len(header))
    character = random_source.choice(string.printable + "äß\u00a0\u2028\U0001f511")
    mutations: list[Callable[[], str]] = [
        lambda: header[:position] + character + header[position:],
        lambda: header[:position] + character + header[position + 1 :],
        lambda: header[:position] + header[position + 1 :],
        lambda: header[:position],
        lambda: header[position:],
        header.swapcase,
        lambda: "".join(random_source.sample(header, len(header))),
        lambda: "".join(random_source.choices(string.printable, k=random_source.randrange(80))),
        lambda: header + character * random_source.randrange(1, 5_000),
        lambda: f"Bearer {generate_key()}",
    ]
    return random_source.choice(mutations)()


def invalid_headers() -> Iterator[str]:
    random_source = random.Random(20260102)
    while True:
        header = mutate_header(random_source)
        scheme, _, rest = header.partition(" ")
        if (scheme.lower(), rest.strip()) != ("bearer", KEY):  # extra spaces and another case are valid
            yield header


def is_rejected(directory: KeyDirectory, header: str) -> bool:
    try:
        directory.authenticate(header)
    except Unauthorized:
        return True
    return False


async def test_t45_ten_thousand_invalid_headers_are_rejected(directory: KeyDirectory) -> None:
    await directory.add_user("alice")
    await directory.add_key("alices-key", KEY, "alice")
    accepted = [header for header in islice(invalid_headers(), HEADER_COUNT) if not is_rejected(directory, header)]
    assert accepted == []
    assert directory.accepts(KEY)
