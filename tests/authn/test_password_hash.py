"""Hashes of passwords: each with its own salt and cost, checked alike for everybody, and never too many at once."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.authn import password_hash
from fairlead.authn.password_hash import DEFAULT_COST, MAX_BYTES, Cost, PasswordHasher, password_problem
from fairlead.core.concurrency import CURRENT_ACCOUNT, Account
from fairlead.core.errors import TooManyRequests

CHEAP = Cost(memory=8, passes=1)
SECRET = "correct horse battery staple"


@pytest.fixture
def cheap() -> PasswordHasher:
    return PasswordHasher(CHEAP)


async def test_a_password_fits_its_own_hash_and_no_other(cheap: PasswordHasher) -> None:
    stored = await cheap.hash(SECRET)
    assert await cheap.verify(SECRET, stored)
    assert not await cheap.verify(SECRET + " ", stored)
    assert not await cheap.verify(SECRET.upper(), stored)
    assert not await cheap.verify("", stored)


async def test_the_same_password_has_another_hash_each_time(cheap: PasswordHasher) -> None:
    assert await cheap.hash(SECRET) != await cheap.hash(SECRET)


async def test_the_hash_says_what_it_was_made_with_and_not_of_what() -> None:
    stored = await PasswordHasher().hash(SECRET)
    assert stored.startswith(f"$argon2id$v=19$m={DEFAULT_COST.memory},t={DEFAULT_COST.passes},p=1$")
    assert SECRET not in stored


def test_the_cost_is_more_than_what_is_recommended_at_least() -> None:
    """19 MiB and two passes are the common advice for sign-ins that must not take long."""
    assert DEFAULT_COST.memory >= 19 * 1024 and DEFAULT_COST.passes >= 2


async def test_a_hash_of_another_cost_still_fits_and_is_known_to_be_outdated(cheap: PasswordHasher) -> None:
    older = await cheap.hash(SECRET)
    today = PasswordHasher(Cost(memory=16, passes=2))
    assert await today.verify(SECRET, older)
    assert today.is_outdated(older) and not cheap.is_outdated(older)
    assert not today.is_outdated(await today.hash(SECRET))


async def test_a_hash_that_other_software_has_made_fits(cheap: PasswordHasher) -> None:
    argon = Argon2id(salt=b"saltsaltsalt", length=24, iterations=2, lanes=2, memory_cost=64)
    assert await cheap.verify(SECRET, argon.derive_phc_encoded(SECRET.encode()))


async def test_an_umlaut_is_the_same_however_the_keyboard_sends_it(cheap: PasswordHasher) -> None:
    stored = await cheap.hash("Gr\u00fc\u00dfe aus K\u00f6ln")
    assert await cheap.verify("Gru\u0308\u00dfe aus Ko\u0308ln", stored)


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
async def test_what_is_no_hash_of_ours_or_would_cost_too_much_fits_nothing(cheap: PasswordHasher, stored: str) -> None:
    assert not await cheap.verify(SECRET, stored)
    assert not await cheap.verify("", stored)
    assert not await cheap.verify(stored, stored)


class HashProbe:
    """Stands in for the library and keeps count of what was asked of it."""

    def __init__(self) -> None:
        self.costs: list[str] = []
        self.running = 0
        self.most = 0
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def fits(self, material: bytes, stored: str) -> bool:
        with self._lock:
            self.costs.append(stored.split("$")[3])
            self.running += 1
            self.most = max(self.most, self.running)
        self.go_on.wait(10)
        with self._lock:
            self.running -= 1
        return False


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[HashProbe]:
    made = HashProbe()
    made.go_on.set()
    monkeypatch.setattr(password_hash, "_matches", made.fits)
    yield made
    made.go_on.set()


async def test_whoever_has_no_password_costs_as_much_to_refuse_as_who_has_one(
    cheap: PasswordHasher, probe: HashProbe
) -> None:
    """Counted, not timed: one hash of the same cost, whether or not there is anything to compare with."""
    stored = await cheap.hash(SECRET)
    for known in (stored, None, "", "no hash", "$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNo"):
        probe.costs.clear()
        assert not await cheap.verify("wrong password", known)
        assert probe.costs == ["m=8,t=1,p=1"]


async def test_a_password_that_is_too_long_or_no_text_costs_as_much_too(
    cheap: PasswordHasher, probe: HashProbe
) -> None:
    stored = await cheap.hash(SECRET)
    for password in ("x" * 1025, "\ud800" * 12, ""):
        probe.costs.clear()
        assert not await cheap.verify(password, stored)
        assert len(probe.costs) == 1


async def until(condition: Callable[[], bool]) -> None:
    """Threads tell no event loop about themselves, so they are looked at again and again."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to that")


async def test_only_a_few_are_reckoned_at_once(probe: HashProbe) -> None:
    few = PasswordHasher(CHEAP, max_concurrent=2, max_waiting=8)
    probe.go_on.clear()
    asked = [asyncio.create_task(few.verify("wrong", None)) for _ in range(10)]
    await until(lambda: probe.running == 2)
    await asyncio.sleep(0.01)
    assert probe.running == 2
    probe.go_on.set()
    assert await asyncio.gather(*asked) == [False] * 10
    assert probe.most == 2 and len(probe.costs) == 10


async def test_who_would_have_to_wait_too_long_is_told_to_come_again(probe: HashProbe) -> None:
    few = PasswordHasher(CHEAP, max_concurrent=1, max_waiting=1)
    probe.go_on.clear()
    asked = [asyncio.create_task(few.verify("wrong", None)) for _ in range(2)]
    await until(lambda: probe.running == 1)
    with pytest.raises(TooManyRequests, match="try again") as caught:
        await few.verify("wrong", None)
    assert caught.value.details.retry_after == 1
    probe.go_on.set()
    await asyncio.gather(*asked)
    assert not await few.verify("wrong", None)


async def test_a_place_is_not_free_before_its_thread_is_done(probe: HashProbe) -> None:
    """Or impatient clients could have any number of hashes reckoned side by side."""
    few = PasswordHasher(CHEAP, max_concurrent=1, max_waiting=1)
    probe.go_on.clear()
    impatient = asyncio.create_task(few.verify("wrong", None))
    await until(lambda: probe.running == 1)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    later = asyncio.create_task(few.verify("wrong", None))
    await asyncio.sleep(0.01)
    assert probe.most == 1 and not later.done()
    probe.go_on.set()
    assert await later is False
    assert probe.most == 1


async def test_who_gives_up_while_waiting_leaves_the_place_to_others(probe: HashProbe) -> None:
    few = PasswordHasher(CHEAP, max_concurrent=1, max_waiting=1)
    probe.go_on.clear()
    first = asyncio.create_task(few.verify("wrong", None))
    await until(lambda: probe.running == 1)
    waiting = asyncio.create_task(few.verify("wrong", None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    another = asyncio.create_task(few.verify("wrong", None))
    await asyncio.sleep(0)
    probe.go_on.set()
    assert not any(await asyncio.gather(first, another))


def test_a_password_needs_twelve_characters_and_no_rules() -> None:
    assert password_problem("a" * 12) is None and password_problem("\u00e4" * 12) is None
    too_short = password_problem("a" * 11)
    assert too_short is not None and "at least 12 characters" in too_short.message


def test_characters_count_as_they_are_composed() -> None:
    assert password_problem("u\u0308" * 11) is not None


def test_a_password_has_an_upper_limit_in_bytes() -> None:
    assert password_problem("a" * MAX_BYTES) is None
    for long in ("a" * (MAX_BYTES + 1), "\u00e4" * (MAX_BYTES // 2 + 1), "\ud800" * 12):
        wrong = password_problem(long)
        assert wrong is not None and wrong.field == "password"


async def test_what_is_too_long_is_never_cut_off_and_hashed(cheap: PasswordHasher) -> None:
    with pytest.raises(ValueError, match="too long"):
        await cheap.hash("a" * (MAX_BYTES + 1))


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_no_problem_quotes_the_password(tail: str) -> None:
    for text in ("canary" + tail, ("canary" + tail) * 200):
        found = password_problem(text)
        assert found is None or "canary" not in str(found)


async def test_nobodys_hash_fits_no_password_and_is_another_one_in_each_process() -> None:
    one, other = PasswordHasher(CHEAP), PasswordHasher(CHEAP)
    assert one._dummy != other._dummy
    assert not await one.verify("", other._dummy)


async def test_one_address_leaves_room_for_others_to_sign_in() -> None:
    """Whoever asks is known by the account that flow control has put the request down to."""
    crowded, crowd, quiet = PasswordHasher(CHEAP, max_concurrent=1, max_waiting=7), Account(), Account()

    async def verify(account: Account) -> bool:
        CURRENT_ACCOUNT.set(account)
        return await crowded.verify("a long password", None)

    tasks = [asyncio.create_task(verify(crowd)) for _ in range(20)]
    tasks.append(asyncio.create_task(verify(quiet)))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, TooManyRequests)]
    assert len(refused) == 16, "half of the eight places are for one"
    assert "too many of your" in str(refused[0])
    assert answers[-1] is False
    assert await verify(crowd) is False, "its places are free again"
