"""Which faults, on which store, how often. `SCENARIOS` is all of it; the short form takes a few rounds of each."""

import asyncio
import random
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults import faults
from tests.faults.faults import Fault
from tests.faults.rounds import Outcome, run
from tests.faults.world import world
from tests.storage import etcd_server, postgres_server
from tests.storage.etcd_proxy import Proxy

LITTLE_HISTORY = {"history_seconds": "1", "history_revisions": "20"}

Named = tuple[str, Fault]
Plan = Callable[[Sequence[Named]], Iterable[Named]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`play` is given a folder of its own, and a plan that makes rounds out of the faults that it has to offer."""

    name: str
    play: Callable[[Path, Plan], Coroutine[Any, Any, Outcome]]
    full: dict[str, int]
    """Rounds by fault in the full form."""
    short: dict[str, int]


def rounds(counts: dict[str, int]) -> Plan:
    """Each fault as often as it says, in an order left to chance."""

    def plan(offered: Sequence[Named]) -> Iterable[Named]:
        by_name = dict(offered)
        chosen = [(name, by_name[name]) for name, count in counts.items() for _ in range(count)]
        random.shuffle(chosen)
        return chosen

    return plan


ON_REPLICAS: tuple[Named, ...] = (
    ("kill -9", faults.kill_one),
    ("kill -9 of all", faults.kill_all),
    ("SIGSTOP", faults.freeze_one),
    ("SIGSTOP past the lease", faults.freeze_past_the_lease),
    ("restart", faults.restart_one),
    ("compaction", faults.let_time_pass),
)


async def sqlite(folder: Path, plan: Plan) -> Outcome:
    async with world(folder, [f"sqlite:{folder / 'store.db'}"]) as made:
        return await run(made, plan(ON_REPLICAS))


async def sqlite_compacting(folder: Path, plan: Plan) -> Outcome:
    async with world(folder, [f"sqlite:{folder / 'store.db'}"], **LITTLE_HISTORY) as made:
        return await run(made, plan(ON_REPLICAS))


async def sqlite_full_disk(folder: Path, plan: Plan) -> Outcome:
    with small_disk(folder / "disk") as disk:
        offered = (
            ("disk full", faults.fill_disk(disk)),
            ("disk full and kill -9", faults.fill_disk_and_kill(disk)),
        )
        async with world(folder, [f"sqlite:{disk / 'store.db'}"], **LITTLE_HISTORY) as made:
            return await run(made, plan(offered))


async def postgres(folder: Path, plan: Plan) -> Outcome:
    return await _on_postgres(folder, plan, {})


async def postgres_compacting(folder: Path, plan: Plan) -> Outcome:
    return await _on_postgres(folder, plan, LITTLE_HISTORY)


async def _on_postgres(folder: Path, plan: Plan, variables: dict[str, str]) -> Outcome:
    """Two replicas; the second one reaches the store through a wire that can be cut."""
    postgres_server.require_postgres()
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(postgres_server.Server, None, "trust")
        stack.callback(server.remove)
        proxy = await _proxy(stack, server.port)
        addresses = [server.url, server.url.replace(f":{server.port}/", f":{proxy.port}/")]
        made = await stack.enter_async_context(world(folder, addresses, **variables))
        offered = (
            *ON_REPLICAS,
            ("store crashes", faults.crash_postgres(server)),
            ("store stands still", faults.freeze_postgres(server)),
            ("store unreachable", faults.cut_off([proxy])),
            ("answers lost", faults.swallow([proxy])),
        )
        return await run(made, plan(offered))


async def etcd(folder: Path, plan: Plan) -> Outcome:
    return await _on_etcd(folder, plan, {})


async def etcd_compacting(folder: Path, plan: Plan) -> Outcome:
    return await _on_etcd(folder, plan, LITTLE_HISTORY)


async def _on_etcd(folder: Path, plan: Plan, variables: dict[str, str]) -> Outcome:
    """Three members and two replicas; the second one reaches the members through wires that can be cut."""
    async with AsyncExitStack() as stack:
        cluster = etcd_server.launch(folder / "etcd", 3)
        stack.callback(cluster.stop)
        await cluster.ready()
        proxies = [await _proxy(stack, member.port) for member in cluster.members]
        through = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
        addresses = [f"etcd:{cluster.url('faults')}", f"etcd://{through}/faults"]
        made = await stack.enter_async_context(world(folder, addresses, **variables))
        offered = (
            *ON_REPLICAS,
            ("store crashes", faults.kill_all_members(cluster)),
            ("member killed", faults.kill_member(cluster)),
            ("member stands still", faults.freeze_member(cluster)),
            ("store unreachable", faults.cut_off(proxies)),
            ("answers lost", faults.swallow(proxies)),
        )
        return await run(made, plan(offered))


async def _proxy(stack: AsyncExitStack, port: int) -> Proxy:
    proxy = Proxy(port)
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few megabytes, which only root may make."""
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("mount is not installed")
    options = ("-t", "tmpfs", "-o", "size=16m", "fairlead-faults", str(folder))
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


SHARED = {"kill -9": 30, "kill -9 of all": 4, "SIGSTOP": 4, "SIGSTOP past the lease": 1, "restart": 3}
WIRES = {"store unreachable": 5, "answers lost": 5}
COMPACTING = {"compaction": 8, "kill -9": 2}

SCENARIOS = (
    Scenario("sqlite", sqlite, {"kill -9": 100, "SIGSTOP": 5, "restart": 5}, {"kill -9": 2}),
    Scenario("sqlite, compaction", sqlite_compacting, COMPACTING, {}),
    Scenario("sqlite, small disk", sqlite_full_disk, {"disk full": 8, "disk full and kill -9": 4}, {"disk full": 1}),
    Scenario(
        "postgres, 2 replicas",
        postgres,
        {**SHARED, **WIRES, "store crashes": 5, "store stands still": 3},
        {"kill -9": 1, "store crashes": 1, "answers lost": 1},
    ),
    Scenario("postgres, compaction", postgres_compacting, COMPACTING, {}),
    Scenario(
        "etcd of 3, 2 replicas",
        etcd,
        {**SHARED, **WIRES, "store crashes": 3, "member killed": 6, "member stands still": 3},
        {"kill -9": 1, "member killed": 1, "answers lost": 1},
    ),
    Scenario("etcd, compaction", etcd_compacting, COMPACTING, {}),
)
