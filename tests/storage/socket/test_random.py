"""storage/socket: the views of workers stay complete while workers stop reading and compaction overtakes them."""

import asyncio
import random
from pathlib import Path

import pytest

from fairlead.storage.contract import Key, RevisionConflict, Write
from fairlead.storage.socket import SocketStore
from fairlead.storage.view.view import View
from tests.storage.socket.owners import Owner, continue_reading, run_owner, stop_reading
from tests.storage.view.views import build_entry

WORKERS, WRITERS, COMMITS = 3, 4, 60
KEYS: list[Key] = [("g", "things", "", str(number)) for number in range(12)]


async def write(worker: SocketStore, view: View, rng: random.Random) -> None:
    """Writes what its view shows as current. Only a commit of another worker in between may cause a conflict."""
    for _ in range(COMMITS):
        changes = []
        await view.wait_current()
        for key in rng.sample(KEYS, rng.randint(1, 3)):
            entry = view.get(key)
            value = None if entry is not None and rng.random() < 0.3 else rng.randbytes(rng.choice([10, 60_000]))
            changes.append(Write(key, value, entry.revision if entry is not None else 0))
        try:
            revision = await worker.commit(changes)
        except RevisionConflict as conflict:
            assert conflict.actual != conflict.expected
            continue
        assert worker._link.feed.revision >= revision, "a worker is never behind its own commit"


async def disturb(owner: Owner, workers: list[SocketStore], rng: random.Random) -> None:
    while True:
        worker = rng.choice(workers)
        stop_reading(worker)
        await asyncio.sleep(rng.choice([0.001, 0.05]))
        if rng.random() < 0.5:
            await owner.store.compact(await owner.store.revision())
        continue_reading(worker)
        await asyncio.sleep(rng.choice([0, 0.005]))


@pytest.mark.parametrize("seed", range(3))
async def test_views_stay_complete(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.storage.socket.server.MAX_BEHIND_BYTES", 20_000)
    monkeypatch.setattr("fairlead.storage.watch_feed.MAX_PENDING_BYTES", 200_000)
    monkeypatch.setattr("fairlead.storage.view.view.RETRY_SECONDS", 0.01)
    rng = random.Random(seed)
    async with asyncio.timeout(100), run_owner(tmp_path) as owner:
        workers = [await owner.connect() for _ in range(WORKERS)]
        views = [View(worker, build_entry) for worker in workers]
        for view in views:
            await view.start()
        disturbance = asyncio.create_task(disturb(owner, workers, rng))
        try:
            await asyncio.gather(
                *[
                    write(worker, view, random.Random(rng.random()))
                    for worker, view in zip(workers, views, strict=True)
                    for _ in range(WRITERS)
                ]
            )
        finally:
            disturbance.cancel()
            for worker in workers:
                continue_reading(worker)
        expected = {record.key: record.value for record in (await owner.store.scan(())).records}
        for view in views:
            await view.wait_current()
            assert {entry.key: entry.body for entry in view.entries("g", "things")} == expected
            await view.stop()
