"""A runner that listens: which tokens it accepts, how often it asks the server for keys, and its address."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.client import ClientError
from fairlead.core.crypto.link_tokens import issue_link_token
from fairlead.core.crypto.signing import SigningKey, generate_signing_key
from fairlead.core.files import FileProblem
from fairlead.runner.listening import FETCH_SECONDS, TokenVerifier, listen, split_address

PRINT = "a" * 64
KEY = generate_signing_key(datetime.now(UTC), 60)


class ManualClock:
    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()


class Keys:
    """The part of the server that the verifier uses."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = keys
        self.requests = 0
        self.is_down = False

    async def get_config(self) -> dict[str, Any]:
        self.requests += 1
        if self.is_down:
            raise ClientError("down")
        return {"tokenCaCert": "".join(key.public for key in self.keys)}

    async def get_runner(self) -> dict[str, Any]:
        return {"metadata": {"uid": "u1"}}


def new_verifier(keys: Keys, clock: ManualClock) -> TokenVerifier:
    return TokenVerifier(keys, PRINT, clock)  # type: ignore[arg-type]


async def test_a_token_is_accepted_once() -> None:
    keys, clock = Keys(KEY), ManualClock()
    verifier, token = new_verifier(keys, clock), issue_link_token(KEY, "u1", PRINT, clock.now())
    assert await verifier.verify(token) == ""
    assert await verifier.verify(token) == "the token was used before"
    assert await verifier.verify(issue_link_token(KEY, "u1", PRINT, clock.now())) == ""
    assert keys.requests == 1


async def test_new_keys_are_fetched_and_connections_of_others_do_not_cause_many_requests() -> None:
    keys, clock, rotated = Keys(KEY), ManualClock(), generate_signing_key(datetime.now(UTC), 60)
    verifier = new_verifier(keys, clock)
    for _ in range(20):
        assert await verifier.verify(issue_link_token(rotated, "u1", PRINT, clock.now())) != ""
    assert keys.requests == 1
    keys.keys = (rotated, KEY)
    clock.time += timedelta(seconds=FETCH_SECONDS)
    assert await verifier.verify(issue_link_token(rotated, "u1", PRINT, clock.now())) == ""
    assert keys.requests == 2


async def test_known_keys_are_used_while_the_server_does_not_respond_and_nothing_is_accepted_without() -> None:
    keys, clock = Keys(KEY), ManualClock()
    keys.is_down = True
    verifier = new_verifier(keys, clock)
    assert await verifier.verify(issue_link_token(KEY, "u1", PRINT, clock.now())) != ""
    keys.is_down = False
    clock.time += timedelta(seconds=FETCH_SECONDS)
    assert await verifier.verify(issue_link_token(KEY, "u1", PRINT, clock.now())) == ""
    keys.is_down = True
    clock.time += timedelta(hours=1)
    assert await verifier.verify(issue_link_token(KEY, "u1", PRINT, clock.now())) == ""


async def test_a_token_for_another_runner_is_rejected() -> None:
    clock = ManualClock()
    token = issue_link_token(KEY, "u2", PRINT, clock.now())
    assert await new_verifier(Keys(KEY), clock).verify(token) == "the token is for another runner"


def test_addresses() -> None:
    assert split_address("0.0.0.0:8445") == ("0.0.0.0", 8445)
    assert split_address("[::1]:0") == ("::1", 0)


@pytest.mark.parametrize("text", ["8445", "host:8445", "0.0.0.0", "0.0.0.0:", "0.0.0.0:99999", "0.0.0.0:-1", ":1"])
def test_an_address_that_cannot_be_listened_on_is_rejected(text: str) -> None:
    with pytest.raises(FileProblem, match="must be an IP address and a port"):
        split_address(text)


def test_a_port_that_is_taken_is_reported() -> None:
    with listen("127.0.0.1:0") as taken, pytest.raises(FileProblem, match="choose another --listen"):
        listen(f"127.0.0.1:{taken.getsockname()[1]}")
