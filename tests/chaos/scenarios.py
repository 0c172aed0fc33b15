"""Which faults, on which store, how often. `SCENARIOS` is all of it; the short form takes a few rounds of some."""

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import disks, faults, stores
from tests.chaos.clocks import Clocks, wall_clocks
from tests.chaos.deployment import world
from tests.chaos.election import TALKATIVE, jealous
from tests.chaos.schedule import Outcome, run
from tests.chaos.stores import Named, Setting

LITTLE_HISTORY = {"history_seconds": "1", "history_revisions": "20"}

Plan = Callable[[Sequence[Named]], Iterable[Named]]
Play = Callable[[Path, Plan], Coroutine[Any, Any, Outcome]]
Store = Callable[[Path, int], AbstractAsyncContextManager[Setting]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`play` is given a folder of its own, and a plan that makes rounds out of the faults that it has to offer."""

    name: str
    play: Play
    full: Mapping[str, int]
    """Rounds by fault in the full form."""
    short: Mapping[str, int] = field(default_factory=dict)


def rounds(counts: Mapping[str, int]) -> Plan:
    """Each fault as often as it says, in an order left to chance."""

    def plan(offered: Sequence[Named]) -> Iterable[Named]:
        by_name = dict(offered)
        chosen = [(name, by_name[name]) for name, count in counts.items() for _ in range(count)]
        random.shuffle(chosen)
        return chosen

    return plan


ON_REPLICAS: tuple[Named, ...] = (
    ("kill -9", faults.kill_one),
    ("kill -9 of all but one", faults.kill_all_but_one),
    ("kill -9 of all", faults.kill_all),
    ("SIGSTOP", faults.freeze_one),
    ("SIGSTOP past the lease", faults.freeze_past_the_lease),
    ("restart", faults.restart_one),
    ("compaction", faults.let_time_pass),
)


@asynccontextmanager
async def sqlite(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    yield Setting([f"sqlite:{folder / 'store.db'}"], ())


@asynccontextmanager
async def small_sqlite(folder: Path, replicas: int) -> AsyncIterator[Setting]:
    with disks.small_disk(16, folder / "disk") as disk:
        full = (("disk full", disks.fill_disk(disk)), ("disk full and kill -9", disks.fill_disk_and_kill(disk)))
        yield Setting([f"sqlite:{disk / 'store.db'}"], full)


def on(store: Store, replicas: int = 1, settings: Mapping[str, str] | None = None) -> Play:
    async def play(folder: Path, plan: Plan) -> Outcome:
        async with store(folder, replicas) as setting, world(folder, setting.addresses, settings) as made:
            return await run(made, plan((*ON_REPLICAS, *setting.faults)))

    return play


def on_jumping_clocks(store: Store, replicas: int = 1) -> Play:
    """Each replica has a wall clock of its own; the store's is right."""

    async def play(folder: Path, plan: Plan) -> Outcome:
        with wall_clocks(folder, replicas) as clocks:
            around = [clock.variables for clock in clocks]
            async with (
                store(folder, replicas) as setting,
                world(folder, setting.addresses, TALKATIVE, around) as made,
                jealous(made) as jealousy,
            ):
                return await run(made, plan((*ON_REPLICAS, *Clocks(clocks, jealousy).faults)))

    return play


SHARED = {"kill -9": 30, "kill -9 of all": 4, "SIGSTOP": 4, "SIGSTOP past the lease": 1, "restart": 3}
THREE = {"kill -9": 20, "kill -9 of all but one": 8, "kill -9 of all": 2, "SIGSTOP": 2, "restart": 2}
WIRES = {"store unreachable": 5, "answers lost": 5}
COMPACTING = {"compaction": 8, "kill -9": 2}
ALONE = {"clock forwards": 4, "clock backwards": 4, "clock wrong at the start": 3}
CLOCKS = {**ALONE, "clock back while it stands still": 2, "kill -9": 4}

SCENARIOS = (
    Scenario("sqlite", on(sqlite), {"kill -9": 100, "SIGSTOP": 5, "restart": 5}, {"kill -9": 2}),
    Scenario("sqlite, compaction", on(sqlite, 1, LITTLE_HISTORY), COMPACTING),
    Scenario(
        "sqlite, small disk",
        on(small_sqlite, 1, LITTLE_HISTORY),
        {"disk full": 8, "disk full and kill -9": 4},
        {"disk full": 1},
    ),
    Scenario("sqlite, clocks", on_jumping_clocks(sqlite), ALONE),
    Scenario(
        "postgres, 2 replicas",
        on(stores.postgres, 2),
        {**SHARED, **WIRES, "store crashes": 5, "store stands still": 3},
        {"kill -9": 1, "store crashes": 1, "answers lost": 1},
    ),
    Scenario("postgres, 3 replicas", on(stores.postgres, 3), {**THREE, "store crashes": 2}),
    Scenario("postgres, compaction", on(stores.postgres, 2, LITTLE_HISTORY), COMPACTING),
    Scenario(
        "postgres, small disk", on(stores.postgres_with_small_disk, 2, LITTLE_HISTORY), {"disk full": 6, "kill -9": 2}
    ),
    Scenario(
        "postgres, small disk for its log", on(stores.postgres_with_small_log, 2, LITTLE_HISTORY), {"disk full": 4}
    ),
    Scenario("postgres, clocks", on_jumping_clocks(stores.postgres, 2), CLOCKS, {"clock forwards": 1}),
    Scenario(
        "etcd of 3, 2 replicas",
        on(stores.etcd, 2),
        {
            **SHARED,
            **WIRES,
            "store crashes": 3,
            "member killed": 4,
            "member stands still": 2,
            "etcd's leader killed": 8,
            "etcd's leader stands still": 6,
        },
        {"kill -9": 1, "etcd's leader killed": 1, "answers lost": 1},
    ),
    Scenario("etcd of 3, 3 replicas", on(stores.etcd, 3), {**THREE, "etcd's leader killed": 2}),
    Scenario("etcd, compaction", on(stores.etcd, 2, LITTLE_HISTORY), COMPACTING),
    Scenario("etcd, small disks", on(stores.small_etcd, 2), {"a member's disk full": 4, "all members' disks full": 3}),
    Scenario("etcd, quota", on(stores.etcd_with_quota, 2), {"quota reached": 4, "kill -9": 2}),
    Scenario("etcd, clocks", on_jumping_clocks(stores.etcd, 2), CLOCKS),
)
