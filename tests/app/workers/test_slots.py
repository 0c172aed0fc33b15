"""When a process is started again, and when its event loop counts as stuck."""

import os
import socket
from collections.abc import Iterator

import pytest

from fairlead.app.workers.child_process import ChildProcess
from fairlead.app.workers.slots import MAX_QUEUE_SECONDS, RESTART, STABLE_SECONDS, STUCK_CHECKS, Slot


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ChildProcess(os.getpid(), ours)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def run_for(slot: Slot, child: ChildProcess, began: float, seconds: float, start_seconds: float = 0.5) -> float:
    """A process that becomes ready and ends after some time. Returns the delay before the next one."""
    slot.occupy(child, began)
    slot.set_ready(began + start_seconds)
    return slot.release(began + seconds)


def can_connect(listener: socket.socket) -> bool:
    try:
        socket.create_connection(listener.getsockname()).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_process_that_has_run_for_long_is_replaced_at_once(child: ChildProcess) -> None:
    slot = Slot(1, "worker-1")
    assert [run_for(slot, child, at, STABLE_SECONDS) for at in (0.0, 100.0, 200.0)] == [0.0, 0.0, 0.0]


def test_the_delay_doubles_while_a_process_ends_soon_after_its_start(child: ChildProcess) -> None:
    slot = Slot(1, "worker-1")
    delays = [run_for(slot, child, 0.0, 1.0) for _ in range(12)]
    assert delays[:5] == [0.0, 0.25, 0.5, 1.0, 2.0]
    assert delays[-1] == RESTART.max_seconds
    assert slot.start_at == 1.0 + RESTART.max_seconds
    assert run_for(slot, child, 0.0, STABLE_SECONDS) == 0.0
    assert run_for(slot, child, 0.0, 1.0) == 0.0


def test_a_process_that_never_became_ready_counts_as_failed_however_long_it_took(child: ChildProcess) -> None:
    slot = Slot(1, "worker-1")
    delays = []
    for _ in range(2):
        slot.occupy(child, 0.0)
        delays.append(slot.release(STABLE_SECONDS + 1))
    assert delays == [0.0, 0.25]


def test_connections_wait_for_a_replacement_that_will_be_ready_soon(
    child: ChildProcess, listener: socket.socket
) -> None:
    slot = Slot(1, "worker-1", listener)
    run_for(slot, child, 0.0, 100.0, start_seconds=MAX_QUEUE_SECONDS / 2)
    assert can_connect(listener)
    run_for(slot, child, 0.0, 100.0, start_seconds=MAX_QUEUE_SECONDS * 2)
    assert not can_connect(listener)
    listener.listen()
    assert can_connect(listener)


def test_connections_do_not_wait_for_a_process_that_could_not_start(
    child: ChildProcess, listener: socket.socket
) -> None:
    slot = Slot(1, "worker-1", listener)
    slot.occupy(child, 0.0)
    slot.release(0.1)
    assert not can_connect(listener)


def test_a_listener_works_after_a_process_that_could_not_start_twice(
    child: ChildProcess, listener: socket.socket
) -> None:
    slot = Slot(1, "worker-1", listener)
    for _ in range(2):
        slot.occupy(child, 0.0)
        slot.release(0.1)
    listener.listen()
    with socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"hello")
            assert client.recv(5) == b"hello"


def test_a_process_may_end_after_its_listener_was_closed(child: ChildProcess, listener: socket.socket) -> None:
    slot = Slot(1, "worker-1", listener)
    slot.occupy(child, 0.0)
    slot.close_listener()
    slot.release(0.1)
    assert listener.fileno() == -1


def test_a_process_without_heartbeats_is_stuck_only_after_many_checks(child: ChildProcess) -> None:
    slot = Slot(1, "worker-1")
    slot.occupy(child, 0.0)
    assert not any(slot.is_stuck(7) for _ in range(2 * STUCK_CHECKS)), "it has not started yet"
    slot.set_ready(1.0)
    assert [slot.is_stuck(7) for _ in range(STUCK_CHECKS)] == [False] * (STUCK_CHECKS - 1) + [True]
    assert not slot.is_stuck(8)
    assert not any(slot.is_stuck(8) for _ in range(STUCK_CHECKS - 1))
