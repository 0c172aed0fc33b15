"""The Authorization header: a bearer token, or nothing. Everything else is invalid, and nothing else gets in."""

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
"""Always the same one, because tests are named after it, and several processes must agree on their names."""
FUZZED = 10_000


def token(*authorization: str) -> str | None:
    return bearer_token(call(headers={"authorization": authorization} if authorization else {}))


def refused(*authorization: str) -> bool:
    with pytest.raises(Unauthorized) as caught:
        token(*authorization)
    return caught.value.message == INVALID_TOKEN


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_may_be_written_in_any_case(scheme: str) -> None:
    assert token(f"{scheme} {KEY}") == KEY


def test_spaces_around_the_token_do_not_matter() -> None:
    assert token(f"Bearer   {KEY} ") == KEY


def test_t10_a_header_that_the_http_server_could_not_read_is_invalid_and_not_absent() -> None:
    with pytest.raises(Unauthorized, match=INVALID_TOKEN):
        bearer_token(call(headers={"authorization": ()}))


def test_a_call_without_the_header_is_not_ours_to_judge() -> None:
    assert token() is None


@pytest.mark.parametrize(
    "header",
    ["", " ", "\t", "Bearer", "bearer", "Bearer ", "Bearer    ", "Bearer \t", KEY, f"Bearer{KEY}", f"Bearer\t{KEY}"],
)
def test_t10_a_header_without_a_scheme_and_a_token_is_invalid(header: str) -> None:
    assert refused(header)


@pytest.mark.parametrize("header", [f" Bearer {KEY}", f"Basic {KEY}", f"Token {KEY}", f"Bearer:{KEY}"])
def test_t10_another_scheme_is_invalid(header: str) -> None:
    assert refused(header)


def test_t10_a_basic_credential_with_the_key_as_password_is_invalid() -> None:
    assert refused("Basic " + base64.b64encode(f"alice:{KEY}".encode()).decode())


@pytest.mark.parametrize("other", [f"Bearer {KEY}", "", "Basic x"])
def test_t10_two_headers_are_invalid_whatever_they_hold(other: str) -> None:
    assert refused(f"Bearer {KEY}", other)
    assert refused(other, f"Bearer {KEY}")
    assert refused(other, other)


def test_t10_an_oversized_header_is_invalid() -> None:
    largest = "x" * (MAX_HEADER_BYTES - len("Bearer "))
    assert token(f"Bearer {largest}") == largest
    assert refused(f"Bearer {largest}x")
    assert refused(f"Bearer {KEY}{' ' * MAX_HEADER_BYTES}")
    assert refused(f"Bearer {'x' * 65_000}")


@pytest.mark.parametrize("text", ["ü", "Bearer ü", f"Bearer {KEY}\u00a0", f"Bearer\u2003{KEY}", "Bearer \ud800"])
def test_t10_what_is_not_ascii_is_invalid(text: str) -> None:
    assert refused(text)


# --- and what gets through that is still no key


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
async def test_a_token_that_is_not_exactly_the_key_opens_nothing(directory: KeyDirectory, header: str) -> None:
    await directory.user("alice")
    await directory.key("alices-key", KEY, "alice")
    assert directory.opens(KEY)
    assert directory.refuses(header)


def spoilt(chance: random.Random) -> str:
    """The right header with something wrong about it, or nothing like it at all."""
    header = f"Bearer {KEY}"
    at = chance.randrange(len(header))
    another = chance.choice(string.printable + "äß\u00a0\u2028\U0001f511")
    makers: list[Callable[[], str]] = [
        lambda: header[:at] + another + header[at:],
        lambda: header[:at] + another + header[at + 1 :],
        lambda: header[:at] + header[at + 1 :],
        lambda: header[:at],
        lambda: header[at:],
        header.swapcase,
        lambda: "".join(chance.sample(header, len(header))),
        lambda: "".join(chance.choices(string.printable, k=chance.randrange(80))),
        lambda: header + another * chance.randrange(1, 5_000),
        lambda: f"Bearer {generate_key()}",
    ]
    return chance.choice(makers)()


def fuzzed() -> Iterator[str]:
    chance = random.Random(20260102)
    while True:
        header = spoilt(chance)
        scheme, _, rest = header.partition(" ")
        if (scheme.lower(), rest.strip()) != ("bearer", KEY):  # an added space or another case is no fault
            yield header


def is_refused(directory: KeyDirectory, header: str) -> bool:
    try:
        directory.ask(header)
    except Unauthorized:
        return True
    return False


async def test_t45_ten_thousand_spoilt_headers_open_nothing(directory: KeyDirectory) -> None:
    await directory.user("alice")
    await directory.key("alices-key", KEY, "alice")
    let_in = [header for header in islice(fuzzed(), FUZZED) if not is_refused(directory, header)]
    assert let_in == []
    assert directory.opens(KEY)
