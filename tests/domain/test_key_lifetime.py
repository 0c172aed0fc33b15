"""How long a key lives, and how often its use is written down."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object
from fairlead.domain.key_lifetime import COOLDOWN_LABEL, MAX_TTL_SECONDS, cooldown_seconds, expires_at, is_sliding

CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def key(used: float | None = None, label: str | None = None, **spec: Any) -> Object:
    made: Object = {"metadata": {"creationTimestamp": timestamp(CREATED)}, "spec": spec}
    if label is not None:
        made["metadata"]["labels"] = {COOLDOWN_LABEL: label}
    if used is not None:
        made["status"] = {"lastActivity": timestamp(after(used))}
    return made


def after(seconds: float) -> datetime:
    return CREATED + timedelta(seconds=seconds)


@pytest.mark.parametrize("spec", [{}, {"ttl": 0}, {"ttl": None}, {"ttl": 0, "ttlAfterLastActivity": True}])
def test_a_key_without_a_ttl_does_not_expire(spec: Object) -> None:
    assert expires_at(key(**spec)) is None


def test_a_life_is_counted_from_creation() -> None:
    assert expires_at(key(ttl=60)) == after(60)
    assert expires_at(key(ttl=60, used=30), after(40)) == after(60)


def test_or_from_the_last_use_that_anybody_knows_of() -> None:
    assert expires_at(key(ttl=60, ttlAfterLastActivity=True)) == after(60)
    assert expires_at(key(ttl=60, ttlAfterLastActivity=True, used=30)) == after(90)
    assert expires_at(key(ttl=60, ttlAfterLastActivity=True, used=30), after(40)) == after(100)
    assert expires_at(key(ttl=60, ttlAfterLastActivity=True, used=30), after(20)) == after(90)


def test_a_use_before_the_creation_does_not_shorten_a_life() -> None:
    assert expires_at(key(ttl=60, ttlAfterLastActivity=True, used=-500)) == after(60)


def test_a_key_that_expires_but_nobody_knows_since_when_has_expired() -> None:
    end = expires_at({"metadata": {}, "spec": {"ttl": 60}})
    assert end is not None and end < CREATED


def test_the_longest_life_there_is_can_be_told() -> None:
    end = expires_at(key(ttl=2**63 - 1))
    assert end == after(MAX_TTL_SECONDS)


def test_only_a_key_that_expires_can_slide() -> None:
    assert is_sliding(key(ttl=1, ttlAfterLastActivity=True))
    assert not is_sliding(key(ttl=0, ttlAfterLastActivity=True))
    assert not is_sliding(key(ttl=1))


@pytest.mark.parametrize(
    ("made", "seconds"),
    [
        (key(), 60),
        (key(ttl=10), 60),
        (key(ttl=1, ttlAfterLastActivity=True), 60),
        (key(ttl=300, ttlAfterLastActivity=True), 60),
        (key(ttl=86_400, ttlAfterLastActivity=True), 60),
        (key(label="3600"), 3_600),
        (key(label="3600", ttl=300, ttlAfterLastActivity=True), 60),
        (key(label="3600", ttl=1_200, ttlAfterLastActivity=True), 120),
        (key(label="5"), 60),
        (key(label="0"), 60),
        (key(label="59", ttl=5, ttlAfterLastActivity=True), 60),
        (key(label="soon"), 60),
        (key(label="-5"), 60),
        (key(label="٣"), 60),
        (key(label="9" * 63), 60),
    ],
)
def test_the_last_use_is_written_once_a_minute_at_most_whatever_the_key_says(made: Object, seconds: float) -> None:
    assert cooldown_seconds(made) == seconds
