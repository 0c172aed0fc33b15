"""The scenarios: which faults on which store, and how often. The short form runs a few rounds of some."""

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import disks, faults, stores
from tests.chaos.clocks import ClockFaults, create_wall_clocks
from tests.chaos.deployment import run_deployment
from tests.chaos.election import JSON_LOG, monitor_leaders
from tests.chaos.schedule import Outcome, run
from tests.chaos.stores import NamedFault, StoreSetup

THREE_WORKERS = {"workers": "3"}
SHORT_HISTORY = {"history_seconds": "1", "history_revisions": "20"}

Plan = Callable[[Sequence[NamedFault]], Iterable[NamedFault]]
ScenarioRunner = Callable[[Path, Plan], Coroutine[Any, Any, Outcome]]
Store = Callable[[Path, int], AbstractAsyncContextManager[StoreSetup]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`run_scenario` gets a folder and a plan, which chooses the rounds from the available faults."""

    name: str
    run_scenario: ScenarioRunner
    full: Mapping[str, int]
    """Rounds by fault in the full form."""
    short: Mapping[str, int] = field(default_factory=dict)


def plan_rounds(counts: Mapping[str, int]) -> Plan:
    """Plans each fault as often as given, in random order."""

    def plan(available: Sequence[NamedFault]) -> Iterable[NamedFault]:
        by_name = dict(available)
        chosen = [(name, by_name[name]) for name, count in counts.items() for _ in range(count)]
        random.shuffle(chosen)
        return chosen

    return plan


REPLICA_FAULTS: tuple[NamedFault, ...] = (
    ("kill -9", faults.kill_one),
    ("kill -9 of all but one", faults.kill_all_but_one),
    ("kill -9 of all", faults.kill_all),
    ("SIGSTOP", faults.freeze_one),
    ("SIGSTOP past the lease", faults.freeze_past_the_lease),
    ("restart", faults.restart_one),
    ("compaction", faults.wait_for_compaction),
)
WORKER_FAULTS: tuple[NamedFault, ...] = (
    ("kill -9 of a worker", faults.kill_worker),
    ("kill -9 of the owner", faults.kill_owner),
    ("SIGSTOP of a worker", faults.freeze_worker),
)


@asynccontextmanager
async def create_sqlite(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    yield StoreSetup([f"sqlite:{folder / 'store.db'}"], ())


@asynccontextmanager
async def create_small_sqlite(folder: Path, replicas: int) -> AsyncIterator[StoreSetup]:
    with disks.mount_small_disk(16, folder / "disk") as disk:
        disk_faults = (("disk full", disks.fill_disk(disk)), ("disk full and kill -9", disks.fill_disk_and_kill(disk)))
        yield StoreSetup([f"sqlite:{disk / 'store.db'}"], disk_faults)


def build_runner(store: Store, replicas: int = 1, settings: Mapping[str, str] | None = None) -> ScenarioRunner:
    async def run_scenario(folder: Path, plan: Plan) -> Outcome:
        async with store(folder, replicas) as setting, run_deployment(folder, setting.addresses, settings) as running:
            return await run(running, plan((*REPLICA_FAULTS, *WORKER_FAULTS, *setting.faults)))

    return run_scenario


def build_clock_runner(store: Store, replicas: int = 1) -> ScenarioRunner:
    """Each replica has a wall clock of its own. The store's clock is right."""

    async def run_scenario(folder: Path, plan: Plan) -> Outcome:
        with create_wall_clocks(folder, replicas) as clocks:
            extra_environment = [clock.variables for clock in clocks]
            async with (
                store(folder, replicas) as setting,
                run_deployment(folder, setting.addresses, JSON_LOG, extra_environment) as running,
                monitor_leaders(running) as leader_monitor,
            ):
                return await run(running, plan((*REPLICA_FAULTS, *ClockFaults(clocks, leader_monitor).faults)))

    return run_scenario


TWO_REPLICA_ROUNDS = {"kill -9": 30, "kill -9 of all": 4, "SIGSTOP": 4, "SIGSTOP past the lease": 1, "restart": 3}
THREE_REPLICA_ROUNDS = {"kill -9": 20, "kill -9 of all but one": 8, "kill -9 of all": 2, "SIGSTOP": 2, "restart": 2}
NETWORK_ROUNDS = {"store unreachable": 5, "responses lost": 5}
COMPACTION_ROUNDS = {"compaction": 8, "kill -9": 2}
WORKER_KILLS = {"kill -9 of a worker": 50, "kill -9 of the owner": 30, "kill -9": 20}
WORKER_ROUNDS = {**WORKER_KILLS, "SIGSTOP of a worker": 10, "restart": 5}
SINGLE_CLOCK_ROUNDS = {"clock forwards": 4, "clock backwards": 4, "clock wrong at the start": 3}
CLOCK_ROUNDS = {**SINGLE_CLOCK_ROUNDS, "clock back during SIGSTOP": 2, "kill -9": 4}

SCENARIOS = (
    Scenario("sqlite", build_runner(create_sqlite), {"kill -9": 100, "SIGSTOP": 5, "restart": 5}, {"kill -9": 2}),
    Scenario(
        "sqlite, 3 workers",
        build_runner(create_sqlite, 1, THREE_WORKERS),
        WORKER_ROUNDS,
        {"kill -9 of a worker": 2, "kill -9 of the owner": 1, "SIGSTOP of a worker": 1},
    ),
    Scenario(
        "sqlite, 3 workers, compaction",
        build_runner(create_sqlite, 1, {**SHORT_HISTORY, **THREE_WORKERS}),
        {**COMPACTION_ROUNDS, "SIGSTOP of a worker": 8},
    ),
    Scenario("sqlite, compaction", build_runner(create_sqlite, 1, SHORT_HISTORY), COMPACTION_ROUNDS),
    Scenario(
        "sqlite, small disk",
        build_runner(create_small_sqlite, 1, SHORT_HISTORY),
        {"disk full": 8, "disk full and kill -9": 4},
        {"disk full": 1},
    ),
    Scenario("sqlite, clocks", build_clock_runner(create_sqlite), SINGLE_CLOCK_ROUNDS),
    Scenario(
        "postgres, 2 replicas",
        build_runner(stores.create_postgres, 2),
        {**TWO_REPLICA_ROUNDS, **NETWORK_ROUNDS, "store crashes": 5, "store frozen": 3},
        {"kill -9": 1, "store crashes": 1, "responses lost": 1},
    ),
    Scenario(
        "postgres, 3 replicas", build_runner(stores.create_postgres, 3), {**THREE_REPLICA_ROUNDS, "store crashes": 2}
    ),
    Scenario("postgres, compaction", build_runner(stores.create_postgres, 2, SHORT_HISTORY), COMPACTION_ROUNDS),
    Scenario(
        "postgres, small disk",
        build_runner(stores.create_postgres_with_small_disk, 2, SHORT_HISTORY),
        {"disk full": 6, "kill -9": 2},
    ),
    Scenario(
        "postgres, small disk for its log",
        build_runner(stores.create_postgres_with_small_log, 2, SHORT_HISTORY),
        {"disk full": 4},
    ),
    Scenario("postgres, clocks", build_clock_runner(stores.create_postgres, 2), CLOCK_ROUNDS, {"clock forwards": 1}),
    Scenario(
        "etcd of 3, 2 replicas",
        build_runner(stores.create_etcd, 2),
        {
            **TWO_REPLICA_ROUNDS,
            **NETWORK_ROUNDS,
            "store crashes": 3,
            "member killed": 4,
            "member frozen": 2,
            "etcd's leader killed": 8,
            "etcd's leader frozen": 6,
        },
        {"kill -9": 1, "etcd's leader killed": 1, "responses lost": 1},
    ),
    Scenario(
        "etcd of 3, 3 replicas",
        build_runner(stores.create_etcd, 3),
        {**THREE_REPLICA_ROUNDS, "etcd's leader killed": 2},
    ),
    Scenario("etcd, compaction", build_runner(stores.create_etcd, 2, SHORT_HISTORY), COMPACTION_ROUNDS),
    Scenario(
        "etcd, small disks",
        build_runner(stores.create_small_etcd, 2),
        {"a member's disk full": 4, "all members' disks full": 3},
    ),
    Scenario("etcd, quota", build_runner(stores.create_etcd_with_quota, 2), {"quota reached": 4, "kill -9": 2}),
    Scenario("etcd, clocks", build_clock_runner(stores.create_etcd, 2), CLOCK_ROUNDS),
)
