"""When a key is in force: until it expires, by whichever clock, and never again afterwards."""

import pytest

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.core.objects import Object
from tests.harness.access_keys import PEPPER, KeyDirectory

KEY, OLD = "the-key-of-alice", "the-old-key-of-alice"
HOUR = 3_600.0
SLIDING: Object = {"ttl": 60, "ttlAfterLastActivity": True}


@pytest.fixture(autouse=True)
async def alice(directory: KeyDirectory) -> None:
    await directory.user("alice")


def is_over(directory: KeyDirectory) -> bool:
    return directory.refuses(f"Bearer {KEY}")


# --- a fixed life


@pytest.mark.parametrize("ttl", [None, 0])
async def test_a_key_without_a_ttl_lives_for_ever(directory: KeyDirectory, ttl: int | None) -> None:
    await directory.key("k", KEY, "alice", ttl=ttl)
    directory.clock.tick(50 * 365 * 24 * HOUR)
    assert directory.opens(KEY)


async def test_a_key_expires_without_anybody_touching_it(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", ttl=60)
    directory.clock.tick(59)
    assert directory.opens(KEY)
    directory.clock.tick(1)
    assert is_over(directory)


async def test_use_does_not_lengthen_a_fixed_life(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", ttl=60)
    for _ in range(59):
        directory.clock.tick(1)
        assert directory.opens(KEY)
    directory.clock.tick(1)
    assert is_over(directory)


async def test_a_key_that_the_server_has_found_expired_is_over_whatever_its_ttl_says(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", status={"expired": directory.at(-5)})
    assert is_over(directory)
    await directory.key("k", KEY, "alice", ttl=10_000, status={"expired": directory.at(-5)})
    assert is_over(directory)


async def test_a_shorter_life_takes_effect_at_once(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", ttl=600)
    created = directory.at(0)
    directory.clock.tick(100)
    assert directory.opens(KEY)
    await directory.key("k", KEY, "alice", ttl=50, meta={"creationTimestamp": created})
    assert is_over(directory)


# --- a life by use


async def test_a_key_that_lives_by_its_use_lives_as_long_as_it_is_used(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", **SLIDING)
    for _ in range(10):
        directory.clock.tick(59)
        assert directory.opens(KEY)
    directory.clock.tick(60)
    assert is_over(directory)


async def test_a_key_that_was_never_used_lives_from_its_creation(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", **SLIDING)
    directory.clock.tick(60)
    assert is_over(directory)


async def test_a_use_that_another_process_has_written_down_counts(directory: KeyDirectory) -> None:
    created = {"creationTimestamp": directory.at(0)}
    await directory.key("k", KEY, "alice", **SLIDING)
    directory.clock.tick(50)
    await directory.key("k", KEY, "alice", meta=created, status={"lastActivity": directory.at(0)}, **SLIDING)
    directory.clock.tick(59)
    assert directory.opens(KEY)


async def test_looking_at_a_key_is_no_use_of_it(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", **SLIDING)
    directory.clock.tick(50)
    assert directory.authenticate.user_of_key("k")
    assert directory.ask(f"Bearer {KEY}")
    directory.clock.tick(10)
    assert is_over(directory)


# --- clocks that jump


async def test_r7_a_clock_that_is_set_back_does_not_bring_an_expired_key_back(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", ttl=60)
    directory.clock.tick(60)
    assert is_over(directory)
    directory.clock.jump(-HOUR)
    assert is_over(directory)
    await directory.user("alice", email="somebody@example.com")
    assert is_over(directory)


async def test_r7_nor_one_that_nobody_has_tried_meanwhile(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", ttl=60)
    assert directory.opens(KEY)
    directory.clock.tick(60)
    directory.clock.jump(-HOUR)
    assert is_over(directory)


async def test_r7_a_clock_that_is_set_back_does_not_lengthen_a_life(directory: KeyDirectory) -> None:
    created = {"creationTimestamp": directory.at(0)}
    await directory.key("k", KEY, "alice", ttl=60)
    assert directory.opens(KEY)
    directory.clock.jump(-HOUR)
    # Its use is written down meanwhile, so that the object is looked at again.
    await directory.key("k", KEY, "alice", ttl=60, meta=created, status={"lastActivity": directory.at(0)})
    directory.clock.tick(59)
    assert directory.opens(KEY)
    directory.clock.tick(1)
    assert is_over(directory)


async def test_r7_a_key_from_the_future_lives_no_longer_than_its_ttl(directory: KeyDirectory) -> None:
    """Made before the clock was set back; the process has started since."""
    await directory.key("k", KEY, "alice", ttl=60, meta={"creationTimestamp": directory.at(HOUR)})
    assert directory.opens(KEY)
    directory.clock.tick(60)
    assert is_over(directory)


async def test_r7_an_expired_key_stays_so_when_it_is_written_to(directory: KeyDirectory) -> None:
    created = {"creationTimestamp": directory.at(0)}
    await directory.key("k", KEY, "alice", ttl=60)
    assert directory.opens(KEY)
    directory.clock.jump(60)
    assert is_over(directory)
    directory.clock.jump(-60)
    await directory.key("k", KEY, "alice", ttl=60, meta={**created, "labels": {"a": "b"}})
    assert is_over(directory)


async def test_a_key_of_the_same_name_that_is_made_later_has_a_life_of_its_own(directory: KeyDirectory) -> None:
    await directory.key("k", KEY, "alice", ttl=60)
    directory.clock.tick(60)
    assert is_over(directory)
    await directory.remove(ACCESS_KEYS, "k")
    await directory.key("k", KEY, "alice", ttl=60, meta={"uid": "another"})
    assert directory.opens(KEY)


# --- values from before a rotation


async def test_t27_an_old_value_works_until_its_time_is_over(directory: KeyDirectory) -> None:
    previous = [{"key": PEPPER.digest(OLD), "until": directory.at(60)}]
    await directory.key("k", KEY, "alice", status={"previous": previous})
    assert directory.who(KEY) == directory.who(OLD)
    directory.clock.tick(59)
    assert directory.opens(OLD)
    directory.clock.tick(1)
    assert directory.refuses(f"Bearer {OLD}")
    assert directory.opens(KEY)


async def test_t27_a_clock_that_is_set_back_does_not_lengthen_that_time(directory: KeyDirectory) -> None:
    previous = [{"key": PEPPER.digest(OLD), "until": directory.at(60)}]
    await directory.key("k", KEY, "alice", status={"previous": previous})
    assert directory.opens(OLD)
    directory.clock.jump(-HOUR)
    directory.clock.tick(60)
    assert directory.refuses(f"Bearer {OLD}")


@pytest.mark.parametrize("spec", [{"disabled": True}, {"ttl": 5}])
async def test_t27_an_old_value_ends_with_its_key(directory: KeyDirectory, spec: Object) -> None:
    previous = [{"key": PEPPER.digest(OLD), "until": directory.at(60)}]
    await directory.key("k", KEY, "alice", status={"previous": previous}, **spec)
    directory.clock.tick(5)
    assert directory.refuses(f"Bearer {OLD}")


@pytest.mark.parametrize("entry", [{"key": PEPPER.digest(OLD)}, {"key": PEPPER.digest(OLD), "until": "soon"}, {}])
async def test_an_old_value_without_an_end_does_not_work(directory: KeyDirectory, entry: dict[str, str]) -> None:
    await directory.key("k", KEY, "alice", status={"previous": [entry]})
    assert directory.refuses(f"Bearer {OLD}")
    assert directory.opens(KEY)
