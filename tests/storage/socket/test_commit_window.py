"""storage/socket/client.py: commits are sent in order, some at a time, and refused when they would wait long."""

import asyncio

import pytest

from fairlead.storage.commit import prepare_commit
from fairlead.storage.contract import StoreUnavailable, Write
from fairlead.storage.socket import client
from fairlead.storage.socket.client import CommitCall, CommitWindow


def build_call(size: int = 10) -> CommitCall:
    commit = prepare_commit([Write(("k",), b"x", 0)], ())
    return CommitCall(commit, bytes(size), asyncio.get_running_loop().create_future())


@pytest.fixture
def sent() -> list[CommitCall]:
    return []


@pytest.fixture
def window(sent: list[CommitCall]) -> CommitWindow:
    return CommitWindow(sent.append)


async def test_commits_beyond_the_number_wait_in_order(
    window: CommitWindow, sent: list[CommitCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_SENT_COMMITS", 3)
    calls = [build_call() for _ in range(6)]
    for call in calls:
        window.submit(call)
    assert sent == calls[:3]
    window.release(calls[1])
    assert sent == calls[:4]
    window.submit(last := build_call())
    for call in (calls[0], calls[2], calls[3]):
        window.release(call)
    assert sent == [*calls, last]


async def test_commits_beyond_the_size_wait_and_a_large_one_is_sent_alone(
    window: CommitWindow, sent: list[CommitCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_SENT_BYTES", 100)
    small, large, after = build_call(60), build_call(1_000), build_call(10)
    for call in (small, large, after):
        window.submit(call)
    assert sent == [small]
    window.release(small)
    assert sent == [small, large]
    window.release(large)
    assert sent == [small, large, after]


async def test_cancelled_commits_are_not_sent(
    window: CommitWindow, sent: list[CommitCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_SENT_COMMITS", 1)
    first, cancelled, last = build_call(), build_call(), build_call()
    for call in (first, cancelled, last):
        window.submit(call)
    cancelled.done.cancel()
    window.release(first)
    assert sent == [first, last]


async def test_a_full_queue_refuses_commits(window: CommitWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_SENT_COMMITS", 1)
    monkeypatch.setattr(client, "MAX_QUEUED_COMMITS", 2)
    first = build_call()
    window.submit(first)
    window.submit(build_call())
    window.submit(build_call())
    with pytest.raises(StoreUnavailable, match="too many writes are waiting for the store; retry later"):
        window.submit(build_call())
    window.release(first)
    window.submit(build_call())


async def test_a_queue_that_does_not_move_refuses_commits(
    window: CommitWindow, sent: list[CommitCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_SENT_COMMITS", 1)
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(client, "current_time", lambda: now)
    first, second = build_call(), build_call()
    window.submit(first)
    window.submit(second)
    now += client.MAX_WAIT_SECONDS
    window.submit(build_call())
    now += 0.001
    with pytest.raises(StoreUnavailable, match="retry later"):
        window.submit(build_call())
    # The next one has not waited as long.
    window.release(first)
    assert sent == [first, second]
    window.submit(build_call())
