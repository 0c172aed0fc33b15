"""app.worker_limits: what several workers use together is about what one process may use."""

from dataclasses import replace

import pytest

from fairlead.app import worker_limits
from fairlead.server.audit.log_writer import MAX_QUEUED_BYTES, MAX_QUEUED_EVENTS
from fairlead.server.flow import control
from fairlead.server.http.memory_budgets import MAX_UNREAD_CONNECTIONS
from fairlead.server.http.unsent import REQUEST_BODY_LIMITS, RESPONSE_LIMITS
from fairlead.settings import Settings
from fairlead.signin.passwords import MAX_CONCURRENT_HASHES, MAX_WAITING_HASHES
from fairlead.storage.view.view import MAX_HISTORY_BYTES
from tests.harness.audit import MemoryLog

MAX_WORKERS = 8
"""The default on a large machine."""
SETTINGS = Settings()


def memory_limits(workers: int) -> tuple[object, ...]:
    limiter = worker_limits.build_memory_limiter(SETTINGS, workers)
    return limiter._response_budget._limits, limiter._body_budget._limits, limiter.whole_responses._max_unread


async def test_a_server_with_one_process_has_the_ordinary_limits() -> None:
    assert memory_limits(1) == (RESPONSE_LIMITS, REQUEST_BODY_LIMITS, MAX_UNREAD_CONNECTIONS)
    assert worker_limits.queued_body_bytes(SETTINGS, 1) == control.MAX_QUEUED_BYTES
    assert worker_limits.history_bytes(1) == MAX_HISTORY_BYTES
    quotas = worker_limits.audit_quotas(SETTINGS, 1)
    assert (quotas.rejected_per_minute, quotas.reads_per_minute) == (SETTINGS.audit_rejected, SETTINGS.audit_reads)
    hasher = worker_limits.build_password_hasher(1)
    assert hasher._slots == MAX_CONCURRENT_HASHES + MAX_WAITING_HASHES
    writer = worker_limits.build_audit_writer(MemoryLog(), 1)
    await writer.close()
    assert (writer._max_events, writer._max_bytes) == (MAX_QUEUED_EVENTS, MAX_QUEUED_BYTES)


@pytest.mark.parametrize("workers", range(2, MAX_WORKERS + 1))
def test_workers_together_have_the_memory_of_one_process(workers: int) -> None:
    limiter = worker_limits.build_memory_limiter(SETTINGS, workers)
    for budget, whole in (
        (limiter._response_budget, RESPONSE_LIMITS),
        (limiter._body_budget, REQUEST_BODY_LIMITS),
    ):
        limits = budget._limits
        assert limits.total * workers <= whole.total
        assert limits.connection == whole.connection <= limits.user <= limits.total
    assert limiter.whole_responses._max_unread * workers <= MAX_UNREAD_CONNECTIONS


@pytest.mark.parametrize("workers", [2, MAX_WORKERS, 64])
def test_a_share_still_serves_the_largest_request(workers: int) -> None:
    largest = replace(SETTINGS, body_limit=10_000_000)
    assert worker_limits.queued_body_bytes(largest, workers) >= largest.body_limit
    assert worker_limits.history_bytes(workers) >= worker_limits.MIN_HISTORY_BYTES
    hasher = worker_limits.build_password_hasher(workers)
    assert hasher._slots >= 2 and hasher._semaphore._value == 1


@pytest.mark.parametrize("workers", [2, 3, MAX_WORKERS])
def test_workers_together_record_about_as_many_audit_events_as_one_process(workers: int) -> None:
    quotas = worker_limits.audit_quotas(SETTINGS, workers)
    assert SETTINGS.audit_rejected <= quotas.rejected_per_minute * workers < SETTINGS.audit_rejected + workers
    assert SETTINGS.audit_reads <= quotas.reads_per_minute * workers < SETTINGS.audit_reads + workers


def test_a_quota_that_is_off_stays_off() -> None:
    quotas = worker_limits.audit_quotas(replace(SETTINGS, audit_rejected=0, audit_reads=0), 4)
    assert (quotas.rejected_per_minute, quotas.reads_per_minute) == (0, 0)
