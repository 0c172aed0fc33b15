"""storage/socket: real processes that are stopped and killed while they write."""

import asyncio
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fairlead.storage.contract import FIRST_REVISION, Event, Record, Write
from fairlead.storage.socket import SocketStore, server
from fairlead.storage.sqlite import SqliteStore
from tests.storage.socket.child_process import TASKS, open_shared_revision

ROOT = Path(__file__).resolve().parents[3]
CHILD = Path(__file__).with_name("child_process.py")
MIB = 1024 * 1024


@dataclass
class Child:
    process: "subprocess.Popen[bytes]"
    output: Path

    def lines(self) -> list[list[str]]:
        """What it has printed, without an incomplete last line."""
        return [line.split() for line in self.output.read_text().split("\n")[:-1]]

    def acknowledged(self) -> list[tuple[str, int, int]]:
        """Task, count and revision of each commit."""
        lines = [line for line in self.lines() if line[0] not in ("ready", "lost")]
        return [(task, int(count), int(revision)) for task, count, revision in lines]

    def lost(self) -> list[str]:
        return [" ".join(line[1:]) for line in self.lines() if line[0] == "lost"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not happened in time"
        time.sleep(0.01)


def have_acknowledged(workers: Sequence[Child], count: int) -> bool:
    return all(len(worker.acknowledged()) > count for worker in workers)


@contextmanager
def running_child(folder: Path, mode: str) -> Iterator[Child]:
    output = folder / f"{mode}-{time.monotonic_ns()}.out"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(CHILD), str(folder), mode], stdout=file, env=environment, cwd=ROOT
        )
    child = Child(process, output)
    try:
        wait_until(lambda: child.lines() or process.poll() is not None)
        assert child.lines()[0] == ["ready"]
        yield child
    finally:
        process.kill()
        process.wait()


def create_shared_memory(folder: Path) -> None:
    (folder / "shared").write_bytes(bytes(mmap.PAGESIZE))


async def check_stored(folder: Path, acknowledged: list[tuple[str, int, int]]) -> None:
    """Every acknowledged commit is in the history, whole and with its revision."""
    store = await SqliteStore.open(folder / "store.db")
    found: dict[tuple[str, int], list[Event]] = {}
    newest = await store.revision()
    async for batch in store.watch((), FIRST_REVISION):
        for event in batch:
            assert event.value is not None
            found.setdefault((event.key[1], int(event.value.split()[0])), []).append(event)
        if batch[-1].revision == newest:
            break
    await store.close()
    for task, count, revision in acknowledged:
        assert [event.revision for event in found[task, count]] == [revision, revision]
    assert all(len(events) == 2 for events in found.values()), "no commit is stored partially"


def test_a_killed_owner_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    create_shared_memory(tmp_path)
    acknowledged: list[tuple[str, int, int]] = []
    for round in range(3):
        with (
            running_child(tmp_path, "own") as owner,
            running_child(tmp_path, "write") as one,
            running_child(tmp_path, "write") as two,
        ):
            workers = (one, two)
            wait_until(partial(have_acknowledged, workers, 50 + 70 * round))
            owner.kill()
            for worker in workers:
                assert worker.process.wait(60) == 0, "a worker notices that its owner has ended"
                acknowledged += worker.acknowledged()
                assert len(worker.lost()) == TASKS
                assert all("the process that owns the store has ended" in message for message in worker.lost())
        asyncio.run(check_stored(tmp_path, acknowledged))


def test_a_killed_worker_affects_neither_its_commits_nor_the_other_workers(tmp_path: Path) -> None:
    create_shared_memory(tmp_path)
    with running_child(tmp_path, "own") as owner, running_child(tmp_path, "write") as survivor:
        killed: list[Child] = []
        for _ in range(3):
            with running_child(tmp_path, "write") as child:
                wait_until(partial(have_acknowledged, [child], 50))
                child.kill()
                killed.append(child)
        count = len(survivor.acknowledged())
        wait_until(lambda: len(survivor.acknowledged()) > count + 50)
        assert owner.process.poll() is None
        survivor.kill()
        owner.kill()
        acknowledged = [each for child in (survivor, *killed) for each in child.acknowledged()]
    asyncio.run(check_stored(tmp_path, acknowledged))


def test_the_shared_revision_is_never_behind_an_acknowledged_commit(tmp_path: Path) -> None:
    create_shared_memory(tmp_path)
    shared = open_shared_revision(tmp_path)
    with running_child(tmp_path, "own"), running_child(tmp_path, "write") as worker:
        acknowledged: list[tuple[str, int, int]] = []
        while len(acknowledged) < 1_000:
            acknowledged = worker.acknowledged()
            assert shared.revision >= max([revision for _, _, revision in acknowledged], default=0)


def test_a_stopped_worker_misses_nothing_and_does_not_hold_up_the_others(tmp_path: Path) -> None:
    create_shared_memory(tmp_path)
    with running_child(tmp_path, "own"), running_child(tmp_path, "follow") as stopped:
        stopped.process.send_signal(signal.SIGSTOP)
        first, last = asyncio.run(write_much(tmp_path))
        stopped.process.send_signal(signal.SIGCONT)
        wait_until(lambda: stopped.lines()[-1] == [str(last)])
        assert stopped.lines() == [["ready"], *[[str(revision)] for revision in range(first, last + 1)]]


async def write_much(folder: Path) -> tuple[int, int]:
    """Commits much more than the owner keeps for a worker that does not read. Returns the first and last revision."""
    store = await SocketStore.connect(folder / "store.socket", open_shared_revision(folder))
    revisions = [await store.commit([Write(("k",), bytes(MIB), 0)])]
    for _ in range(4 * server.MAX_BEHIND_BYTES // MIB):
        revisions.append(await store.commit([Write(("k",), bytes(MIB), revisions[-1])]))
    assert await store.read(("k",)) == Record(("k",), bytes(MIB), revisions[-1])
    await store.close()
    return revisions[0], revisions[-1]
