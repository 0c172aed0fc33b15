"""Expiry of access keys: a fixed TTL, a TTL after the last use, clock changes and previous values."""

import pytest

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.core.objects import Object
from tests.harness.access_keys import PEPPER, KeyDirectory

KEY, OLD_KEY = "the-key-of-alice", "the-old-key-of-alice"
HOUR = 3_600.0
SLIDING: Object = {"ttl": 60, "ttlAfterLastActivity": True}


@pytest.fixture(autouse=True)
async def create_alice(directory: KeyDirectory) -> None:
    await directory.add_user("alice")


def is_rejected(directory: KeyDirectory) -> bool:
    return directory.rejects(f"Bearer {KEY}")


# --- a fixed TTL


@pytest.mark.parametrize("ttl", [None, 0])
async def test_a_key_without_a_ttl_never_expires(directory: KeyDirectory, ttl: int | None) -> None:
    await directory.add_key("k", KEY, "alice", ttl=ttl)
    directory.clock.tick(50 * 365 * 24 * HOUR)
    assert directory.accepts(KEY)


async def test_a_key_expires_after_its_ttl(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", ttl=60)
    directory.clock.tick(59)
    assert directory.accepts(KEY)
    directory.clock.tick(1)
    assert is_rejected(directory)


async def test_use_does_not_extend_a_fixed_ttl(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", ttl=60)
    for _ in range(59):
        directory.clock.tick(1)
        assert directory.accepts(KEY)
    directory.clock.tick(1)
    assert is_rejected(directory)


async def test_a_key_marked_as_expired_is_rejected_whatever_its_ttl(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", status={"expired": directory.timestamp_after(-5)})
    assert is_rejected(directory)
    await directory.add_key("k", KEY, "alice", ttl=10_000, status={"expired": directory.timestamp_after(-5)})
    assert is_rejected(directory)


async def test_a_shorter_ttl_takes_effect_immediately(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", ttl=600)
    created = directory.timestamp_after(0)
    directory.clock.tick(100)
    assert directory.accepts(KEY)
    await directory.add_key("k", KEY, "alice", ttl=50, meta={"creationTimestamp": created})
    assert is_rejected(directory)


# --- a TTL after the last use


async def test_a_sliding_ttl_is_extended_by_each_use(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", **SLIDING)
    for _ in range(10):
        directory.clock.tick(59)
        assert directory.accepts(KEY)
    directory.clock.tick(60)
    assert is_rejected(directory)


async def test_a_sliding_ttl_starts_with_the_creation(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", **SLIDING)
    directory.clock.tick(60)
    assert is_rejected(directory)


async def test_a_use_stored_by_another_process_counts(directory: KeyDirectory) -> None:
    created = {"creationTimestamp": directory.timestamp_after(0)}
    await directory.add_key("k", KEY, "alice", **SLIDING)
    directory.clock.tick(50)
    await directory.add_key(
        "k", KEY, "alice", meta=created, status={"lastActivity": directory.timestamp_after(0)}, **SLIDING
    )
    directory.clock.tick(59)
    assert directory.accepts(KEY)


async def test_looking_up_a_key_does_not_count_as_use(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", **SLIDING)
    directory.clock.tick(50)
    assert directory.authenticator.user_of_key("k")
    assert directory.authenticate(f"Bearer {KEY}")
    directory.clock.tick(10)
    assert is_rejected(directory)


# --- clock changes


async def test_r7_setting_the_clock_back_does_not_revive_an_expired_key(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", ttl=60)
    directory.clock.tick(60)
    assert is_rejected(directory)
    directory.clock.jump(-HOUR)
    assert is_rejected(directory)
    await directory.add_user("alice", email="alice@example.com")
    assert is_rejected(directory)


async def test_r7_setting_the_clock_back_does_not_revive_an_unused_expired_key(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", ttl=60)
    assert directory.accepts(KEY)
    directory.clock.tick(60)
    directory.clock.jump(-HOUR)
    assert is_rejected(directory)


async def test_r7_setting_the_clock_back_does_not_extend_the_ttl(directory: KeyDirectory) -> None:
    created = {"creationTimestamp": directory.timestamp_after(0)}
    await directory.add_key("k", KEY, "alice", ttl=60)
    assert directory.accepts(KEY)
    directory.clock.jump(-HOUR)
    # The last use is stored meanwhile, so that the object is read again.
    await directory.add_key(
        "k", KEY, "alice", ttl=60, meta=created, status={"lastActivity": directory.timestamp_after(0)}
    )
    directory.clock.tick(59)
    assert directory.accepts(KEY)
    directory.clock.tick(1)
    assert is_rejected(directory)


async def test_r7_a_key_created_in_the_future_lives_no_longer_than_its_ttl(directory: KeyDirectory) -> None:
    """The key was created before the clock was set back, and the server restarted since."""
    await directory.add_key("k", KEY, "alice", ttl=60, meta={"creationTimestamp": directory.timestamp_after(HOUR)})
    assert directory.accepts(KEY)
    directory.clock.tick(60)
    assert is_rejected(directory)


async def test_r7_an_expired_key_stays_expired_when_it_is_updated(directory: KeyDirectory) -> None:
    created = {"creationTimestamp": directory.timestamp_after(0)}
    await directory.add_key("k", KEY, "alice", ttl=60)
    assert directory.accepts(KEY)
    directory.clock.jump(60)
    assert is_rejected(directory)
    directory.clock.jump(-60)
    await directory.add_key("k", KEY, "alice", ttl=60, meta={**created, "labels": {"a": "b"}})
    assert is_rejected(directory)


async def test_r7_a_key_that_was_used_before_stays_expired_when_the_clock_is_corrected(directory: KeyDirectory) -> None:
    """Nothing has changed meanwhile but the clock. The other spelling of the header was not seen while it was ahead."""
    await directory.add_key("k", KEY, "alice", ttl=600)
    assert directory.authenticate(f"Bearer {KEY}")
    assert directory.authenticate(f"bearer {KEY}")
    directory.clock.jump(HOUR)
    assert is_rejected(directory)
    directory.clock.jump(-HOUR)
    assert is_rejected(directory)
    assert directory.rejects(f"bearer {KEY}")


async def test_a_new_key_of_the_same_name_has_its_own_ttl(directory: KeyDirectory) -> None:
    await directory.add_key("k", KEY, "alice", ttl=60)
    directory.clock.tick(60)
    assert is_rejected(directory)
    await directory.remove(ACCESS_KEYS, "k")
    await directory.add_key("k", KEY, "alice", ttl=60, meta={"uid": "another"})
    assert directory.accepts(KEY)


# --- previous values after a rotation


async def test_t27_a_previous_value_is_valid_until_its_end(directory: KeyDirectory) -> None:
    previous = [{"key": PEPPER.digest(OLD_KEY), "until": directory.timestamp_after(60)}]
    await directory.add_key("k", KEY, "alice", status={"previous": previous})
    assert directory.use_key(KEY) == directory.use_key(OLD_KEY)
    directory.clock.tick(59)
    assert directory.accepts(OLD_KEY)
    directory.clock.tick(1)
    assert directory.rejects(f"Bearer {OLD_KEY}")
    assert directory.accepts(KEY)


async def test_t27_setting_the_clock_back_does_not_extend_a_previous_value(directory: KeyDirectory) -> None:
    previous = [{"key": PEPPER.digest(OLD_KEY), "until": directory.timestamp_after(60)}]
    await directory.add_key("k", KEY, "alice", status={"previous": previous})
    assert directory.accepts(OLD_KEY)
    directory.clock.jump(-HOUR)
    directory.clock.tick(60)
    assert directory.rejects(f"Bearer {OLD_KEY}")


@pytest.mark.parametrize("spec", [{"disabled": True}, {"ttl": 5}])
async def test_t27_a_previous_value_ends_with_its_key(directory: KeyDirectory, spec: Object) -> None:
    previous = [{"key": PEPPER.digest(OLD_KEY), "until": directory.timestamp_after(60)}]
    await directory.add_key("k", KEY, "alice", status={"previous": previous}, **spec)
    directory.clock.tick(5)
    assert directory.rejects(f"Bearer {OLD_KEY}")


@pytest.mark.parametrize(
    "entry", [{"key": PEPPER.digest(OLD_KEY)}, {"key": PEPPER.digest(OLD_KEY), "until": "soon"}, {}]
)
async def test_a_previous_value_without_a_valid_end_is_rejected(directory: KeyDirectory, entry: dict[str, str]) -> None:
    await directory.add_key("k", KEY, "alice", status={"previous": [entry]})
    assert directory.rejects(f"Bearer {OLD_KEY}")
    assert directory.accepts(KEY)
