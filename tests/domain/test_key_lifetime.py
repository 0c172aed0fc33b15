"""Tests of `fairlead.domain.key_lifetime`: when a key expires, and how often its last use is recorded."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.core.clock import timestamp
from fairlead.core.objects import Object
from fairlead.domain.key_lifetime import COOLDOWN_LABEL, MAX_TTL_SECONDS, cooldown_seconds, expires_at, is_sliding

CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def build_key(last_used: float | None = None, label: str | None = None, **spec: Any) -> Object:
    key: Object = {"metadata": {"creationTimestamp": timestamp(CREATED)}, "spec": spec}
    if label is not None:
        key["metadata"]["labels"] = {COOLDOWN_LABEL: label}
    if last_used is not None:
        key["status"] = {"lastActivity": timestamp(after(last_used))}
    return key


def after(seconds: float) -> datetime:
    return CREATED + timedelta(seconds=seconds)


@pytest.mark.parametrize("spec", [{}, {"ttl": 0}, {"ttl": None}, {"ttl": 0, "ttlAfterLastActivity": True}])
def test_a_key_without_a_ttl_does_not_expire(spec: Object) -> None:
    assert expires_at(build_key(**spec)) is None


def test_a_ttl_is_counted_from_creation() -> None:
    assert expires_at(build_key(ttl=60)) == after(60)
    assert expires_at(build_key(ttl=60, last_used=30), after(40)) == after(60)


def test_a_sliding_ttl_is_counted_from_the_last_known_use() -> None:
    assert expires_at(build_key(ttl=60, ttlAfterLastActivity=True)) == after(60)
    assert expires_at(build_key(ttl=60, ttlAfterLastActivity=True, last_used=30)) == after(90)
    assert expires_at(build_key(ttl=60, ttlAfterLastActivity=True, last_used=30), after(40)) == after(100)
    assert expires_at(build_key(ttl=60, ttlAfterLastActivity=True, last_used=30), after(20)) == after(90)


def test_a_use_before_the_creation_does_not_shorten_the_lifetime() -> None:
    assert expires_at(build_key(ttl=60, ttlAfterLastActivity=True, last_used=-500)) == after(60)


def test_a_key_with_a_ttl_and_no_creation_time_has_expired() -> None:
    end = expires_at({"metadata": {}, "spec": {"ttl": 60}})
    assert end is not None and end < CREATED


def test_a_ttl_over_the_maximum_is_cut_to_the_maximum() -> None:
    end = expires_at(build_key(ttl=2**63 - 1))
    assert end == after(MAX_TTL_SECONDS)


def test_only_a_key_with_a_ttl_can_be_sliding() -> None:
    assert is_sliding(build_key(ttl=1, ttlAfterLastActivity=True))
    assert not is_sliding(build_key(ttl=0, ttlAfterLastActivity=True))
    assert not is_sliding(build_key(ttl=1))


@pytest.mark.parametrize(
    ("key", "seconds"),
    [
        (build_key(), 60),
        (build_key(ttl=10), 60),
        (build_key(ttl=1, ttlAfterLastActivity=True), 60),
        (build_key(ttl=300, ttlAfterLastActivity=True), 60),
        (build_key(ttl=86_400, ttlAfterLastActivity=True), 60),
        (build_key(label="3600"), 3_600),
        (build_key(label="3600", ttl=300, ttlAfterLastActivity=True), 60),
        (build_key(label="3600", ttl=1_200, ttlAfterLastActivity=True), 120),
        (build_key(label="5"), 60),
        (build_key(label="0"), 60),
        (build_key(label="59", ttl=5, ttlAfterLastActivity=True), 60),
        (build_key(label="soon"), 60),
        (build_key(label="-5"), 60),
        (build_key(label="٣"), 60),
        (build_key(label="9" * 63), 60),
    ],
)
def test_the_last_use_is_recorded_at_most_once_a_minute(key: Object, seconds: float) -> None:
    assert cooldown_seconds(key) == seconds
