"""PasswordHasher: salted hashes, the same cost with and without a stored hash, and limited concurrency."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.concurrency import CURRENT_ACCOUNT, Account
from fairlead.core.errors import TooManyRequests
from fairlead.signin import passwords
from fairlead.signin.passwords import DEFAULT_COST, MAX_BYTES, Cost, PasswordHasher, password_problem
from tests.harness.eventually import eventually
from tests.harness.properties import at_least

CHEAP_COST = Cost(memory=8, passes=1)
PASSWORD = "correct horse battery staple"


@pytest.fixture
def hasher() -> PasswordHasher:
    return PasswordHasher(CHEAP_COST)


async def test_a_password_matches_its_own_hash_only(hasher: PasswordHasher) -> None:
    stored = await hasher.hash(PASSWORD)
    assert await hasher.verify(PASSWORD, stored)
    assert not await hasher.verify(PASSWORD + " ", stored)
    assert not await hasher.verify(PASSWORD.upper(), stored)
    assert not await hasher.verify("", stored)


async def test_the_same_password_has_a_different_hash_each_time(hasher: PasswordHasher) -> None:
    assert await hasher.hash(PASSWORD) != await hasher.hash(PASSWORD)


async def test_the_hash_contains_its_parameters_and_not_the_password() -> None:
    stored = await PasswordHasher().hash(PASSWORD)
    assert stored.startswith(f"$argon2id$v=19$m={DEFAULT_COST.memory},t={DEFAULT_COST.passes},p=1$")
    assert PASSWORD not in stored


def test_the_default_cost_is_at_least_the_recommended_minimum() -> None:
    """The common recommendation for logins is 19 MiB and two passes."""
    assert DEFAULT_COST.memory >= 19 * 1024 and DEFAULT_COST.passes >= 2


async def test_a_hash_of_another_cost_matches_and_is_outdated(hasher: PasswordHasher) -> None:
    old_hash = await hasher.hash(PASSWORD)
    new_hasher = PasswordHasher(Cost(memory=16, passes=2))
    assert await new_hasher.verify(PASSWORD, old_hash)
    assert new_hasher.is_outdated(old_hash) and not hasher.is_outdated(old_hash)
    assert not new_hasher.is_outdated(await new_hasher.hash(PASSWORD))


async def test_a_hash_created_by_other_software_matches(hasher: PasswordHasher) -> None:
    argon2 = Argon2id(salt=b"saltsaltsalt", length=24, iterations=2, lanes=2, memory_cost=64)
    assert await hasher.verify(PASSWORD, argon2.derive_phc_encoded(PASSWORD.encode()))


async def test_composed_and_decomposed_characters_are_the_same(hasher: PasswordHasher) -> None:
    stored = await hasher.hash("Gr\u00fc\u00dfe aus K\u00f6ln")
    assert await hasher.verify("Gru\u0308\u00dfe aus Ko\u0308ln", stored)


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "hunter2hunter2",
        "$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g",
        "$argon2id$v=16$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g",
        "$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g",
        "$argon2id$v=19$m=8,t=99,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g",
        "$argon2id$v=19$m=8,t=1,p=99$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g",
        "$argon2id$v=19$m=0,t=0,p=0$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g",
        "$argon2id$v=19$m=8,t=1,p=1$$",
    ],
)
async def test_an_invalid_or_too_expensive_hash_matches_nothing(hasher: PasswordHasher, stored: str) -> None:
    assert not await hasher.verify(PASSWORD, stored)
    assert not await hasher.verify("", stored)
    assert not await hasher.verify(stored, stored)


class HashProbe:
    """Replaces the comparison of hashes and counts its calls."""

    def __init__(self) -> None:
        self.costs: list[str] = []
        self.running = 0
        self.max_running = 0
        self.released = threading.Event()
        self._lock = threading.Lock()

    def matches(self, password: bytes, stored: str) -> bool:
        with self._lock:
            self.costs.append(stored.split("$")[3])
            self.running += 1
            self.max_running = max(self.max_running, self.running)
        self.released.wait(60)
        with self._lock:
            self.running -= 1
        return False


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[HashProbe]:
    hash_probe = HashProbe()
    hash_probe.released.set()
    monkeypatch.setattr(passwords, "_matches", hash_probe.matches)
    yield hash_probe
    hash_probe.released.set()


async def test_rejecting_a_user_without_a_password_costs_as_much_as_with_one(
    hasher: PasswordHasher, probe: HashProbe
) -> None:
    """Counts hashes instead of time: one of the same cost, with or without a stored hash."""
    stored = await hasher.hash(PASSWORD)
    for stored_hash in (
        stored,
        None,
        "",
        "no hash",
        "$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNo",
    ):
        probe.costs.clear()
        assert not await hasher.verify("wrong password", stored_hash)
        assert probe.costs == ["m=8,t=1,p=1"]


async def test_rejecting_an_invalid_password_costs_as_much_too(hasher: PasswordHasher, probe: HashProbe) -> None:
    stored = await hasher.hash(PASSWORD)
    for password in ("x" * 1025, "\ud800" * 12, ""):
        probe.costs.clear()
        assert not await hasher.verify(password, stored)
        assert len(probe.costs) == 1


async def test_the_number_of_concurrent_hashes_is_limited(probe: HashProbe) -> None:
    hasher = PasswordHasher(CHEAP_COST, max_concurrent=2, max_waiting=8)
    probe.released.clear()
    tasks = [asyncio.create_task(hasher.verify("wrong", None)) for _ in range(10)]
    await eventually(lambda: probe.running == 2)
    await asyncio.sleep(0.01)
    assert probe.running == 2
    probe.released.set()
    assert await asyncio.gather(*tasks) == [False] * 10
    assert probe.max_running == 2 and len(probe.costs) == 10


async def test_a_full_queue_gets_429_with_retry_after(probe: HashProbe) -> None:
    hasher = PasswordHasher(CHEAP_COST, max_concurrent=1, max_waiting=1)
    probe.released.clear()
    tasks = [asyncio.create_task(hasher.verify("wrong", None)) for _ in range(2)]
    await eventually(lambda: probe.running == 1)
    with pytest.raises(TooManyRequests, match="try again") as error:
        await hasher.verify("wrong", None)
    assert error.value.details.retry_after == 1
    probe.released.set()
    await asyncio.gather(*tasks)
    assert not await hasher.verify("wrong", None)


async def test_a_slot_is_not_free_before_its_thread_is_done(probe: HashProbe) -> None:
    """Otherwise cancelled requests would allow any number of concurrent hashes."""
    hasher = PasswordHasher(CHEAP_COST, max_concurrent=1, max_waiting=1)
    probe.released.clear()
    cancelled = asyncio.create_task(hasher.verify("wrong", None))
    await eventually(lambda: probe.running == 1)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    later = asyncio.create_task(hasher.verify("wrong", None))
    await asyncio.sleep(0.01)
    assert probe.max_running == 1 and not later.done()
    probe.released.set()
    assert await later is False
    assert probe.max_running == 1


async def test_a_cancelled_waiter_frees_its_slot(probe: HashProbe) -> None:
    hasher = PasswordHasher(CHEAP_COST, max_concurrent=1, max_waiting=1)
    probe.released.clear()
    first = asyncio.create_task(hasher.verify("wrong", None))
    await eventually(lambda: probe.running == 1)
    waiting = asyncio.create_task(hasher.verify("wrong", None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    third = asyncio.create_task(hasher.verify("wrong", None))
    await asyncio.sleep(0)
    probe.released.set()
    assert not any(await asyncio.gather(first, third))


def test_a_password_needs_twelve_characters_and_nothing_else() -> None:
    assert password_problem("a" * 12) is None and password_problem("\u00e4" * 12) is None
    too_short = password_problem("a" * 11)
    assert too_short is not None and "at least 12 characters" in too_short.message


def test_the_length_counts_composed_characters() -> None:
    assert password_problem("u\u0308" * 11) is not None


def test_the_length_in_bytes_is_limited() -> None:
    assert password_problem("a" * MAX_BYTES) is None
    for password in ("a" * (MAX_BYTES + 1), "\u00e4" * (MAX_BYTES // 2 + 1), "\ud800" * 12):
        problem = password_problem(password)
        assert problem is not None and problem.field == "password"


async def test_a_password_that_is_too_long_is_never_truncated(hasher: PasswordHasher) -> None:
    with pytest.raises(ValueError, match="too long"):
        await hasher.hash("a" * (MAX_BYTES + 1))


@settings(max_examples=at_least(50), deadline=None)
@given(st.text(max_size=40))
def test_no_error_quotes_the_password(suffix: str) -> None:
    for text in ("canary" + suffix, ("canary" + suffix) * 200):
        problem = password_problem(text)
        assert problem is None or "canary" not in str(problem)


async def test_the_dummy_hash_matches_no_password_and_differs_per_process() -> None:
    one, other = PasswordHasher(CHEAP_COST), PasswordHasher(CHEAP_COST)
    assert one._dummy != other._dummy
    assert not await one.verify("", other._dummy)


async def test_one_account_cannot_use_all_slots() -> None:
    """Clients are distinguished by the account that flow control assigned to the request."""
    hasher, busy_account, other_account = (
        PasswordHasher(CHEAP_COST, max_concurrent=1, max_waiting=7),
        Account(),
        Account(),
    )

    async def verify(account: Account) -> bool:
        CURRENT_ACCOUNT.set(account)
        return await hasher.verify("a long password", None)

    tasks = [asyncio.create_task(verify(busy_account)) for _ in range(20)]
    tasks.append(asyncio.create_task(verify(other_account)))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    rejected = [result for result in results if isinstance(result, TooManyRequests)]
    assert len(rejected) == 16, "one account gets half of the eight slots"
    assert "too many of your" in str(rejected[0])
    assert results[-1] is False
    assert await verify(busy_account) is False, "its slots are free again"
