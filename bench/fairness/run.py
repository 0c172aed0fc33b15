"""Runs the rounds: the quiet user alone, then during an attack, and again. Each pair is a reading of two rows."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from bench.aims import times_alone
from bench.connection import Connection
from bench.failure import Failure
from bench.fairness.attacks import ATTACKS, CONFIGMAPS, GROUP
from bench.fairness.quiet import Latencies, measure_latencies
from bench.figures import Compared, Reading
from bench.fill import fill
from bench.objects import APPS, build_app, name_object, name_team
from bench.scale import Scale
from bench.servers import Server, run_fairlead

OBJECTS, QUICK_OBJECTS = 16_000, 500
PROCESSES = 2
WARM_SECONDS = 1.0
REST_SECONDS, MAX_REST_SECONDS, IDLE_SHARE = 0.5, 15.0, 0.1
"""After an attack: the polling interval, the maximum wait, and the share of a core that counts as idle."""
LARGE_BYTES = 900_000
EXTRA_SECONDS = 45.0
"""An attacker ends by itself this long after the end of its round."""
READY_SECONDS = 30.0
RBAC = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]
RULES: dict[str, list[dict[str, Any]]] = {
    "quiet": [{"apiGroups": [GROUP], "resources": ["apps"], "verbs": ["get", "create"]}],
    "mallory": [
        {"apiGroups": [GROUP], "resources": ["apps"], "verbs": READ},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": [*READ, "create"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
    ],
    "powerless": [],
}
"""The users and their permissions."""

ReportProgress = Callable[[str], None]
Wants = Callable[[str], bool]


def row_names(attack: str) -> tuple[str, str]:
    return f"fairness: GET beside {attack}", f"fairness: CREATE beside {attack}"


def select_attacks(wants: Wants) -> list[str]:
    return [attack for attack in ATTACKS if any(wants(name) for name in row_names(attack))]


async def measure_fairness(
    folder: Path, scale: Scale, attacks: Sequence[str], report_progress: ReportProgress
) -> list[Compared]:
    """Measures two rows for each attack. The ceiling is the same user alone, right before."""
    objects = QUICK_OBJECTS if scale.quick else OBJECTS
    async with _run_filled_server(folder / "fairness", objects) as (server, keys):
        quiet = replace(server, headers={"authorization": f"Bearer {keys['quiet']}"})
        await measure_latencies(quiet, scale.seconds)  # the first requests are slower
        rows: list[Compared] = []
        for attack in attacks:
            pairs = []
            for _ in range(scale.rounds):
                alone = await measure_latencies(quiet, scale.seconds)
                async with _run_attack(server, keys, attack, scale.seconds) as responses:
                    await asyncio.sleep(WARM_SECONDS)
                    attacked = await measure_latencies(quiet, scale.seconds)
                pairs.append((alone, attacked))
                report_progress(f"fairness: {attack}: {_format_counts(responses)}")
                await _wait_until_idle(server)
            rows += _build_rows(attack, pairs)
        return rows


async def _wait_until_idle(server: Server) -> None:
    """Waits until the server has finished all work of an attack."""
    for _ in range(int(MAX_REST_SECONDS / REST_SECONDS)):
        before = server.cpu_seconds() or 0.0
        await asyncio.sleep(REST_SECONDS)
        if (server.cpu_seconds() or 0.0) - before < IDLE_SHARE * REST_SECONDS:
            return


def _build_rows(attack: str, pairs: Sequence[tuple[Latencies, Latencies]]) -> list[Compared]:
    get, create = row_names(attack)
    alone, attacked = [each for each, _ in pairs], [each for _, each in pairs]
    return [
        Compared(
            name=get,
            unit="ms, p99",
            falling=True,
            ours=_build_readings(f.get for f in attacked),
            ceiling=_build_readings(f.get for f in alone),
            aim=times_alone(),
        ),
        Compared(
            name=create,
            unit="ms, p99",
            falling=True,
            ours=_build_readings(f.create for f in attacked),
            ceiling=_build_readings(f.create for f in alone),
            aim=times_alone(),
        ),
    ]


def _build_readings(figures: Any) -> list[Reading]:
    return [Reading(figure, None, None) for figure in figures]


def _format_counts(responses: Counter[str]) -> str:
    return ", ".join(f"{number:,} x {status}" for status, number in sorted(responses.items())) or "nothing"


@asynccontextmanager
async def _run_filled_server(folder: Path, objects: int) -> AsyncIterator[tuple[Server, dict[str, str]]]:
    """Starts a server with many objects, and yields it with a key for each user."""
    await asyncio.to_thread(folder.mkdir)
    async with run_fairlead(folder) as server, Connection.to(server) as connection:
        await connection.request("POST", APPS, build_app(name_object(0), {"team": name_team(0)}))
    await fill(folder / "data", objects)
    async with run_fairlead(folder) as server, Connection.to(server) as connection:
        keys = {name: await _create_user(connection, name, rules) for name, rules in RULES.items()}
        large = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "large"},
            "data": {"x": "x" * LARGE_BYTES},
        }
        await connection.request("POST", CONFIGMAPS, orjson.dumps(large))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mallory"}}
        await connection.request("POST", "/api/v1/namespaces/default/serviceaccounts", orjson.dumps(account))
        yield server, keys


async def _create_user(connection: Connection, name: str, rules: list[dict[str, Any]]) -> str:
    """Creates a user, with a role if there are rules, and returns the key."""
    metadata = {"name": name}

    async def create(version: str, kind: str, **fields: Any) -> Any:
        body = orjson.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, **fields})
        return orjson.loads(await connection.request("POST", f"/apis/{version}/{kind.lower()}s", body))

    if rules:
        role, subject = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, {"kind": "User", "name": name}
        await create(f"{RBAC}/v1", "ClusterRole", rules=rules)
        await create(f"{RBAC}/v1", "ClusterRoleBinding", roleRef=role, subjects=[subject])
    await create(f"{GROUP}/v1", "User", spec={})
    created = await create(f"{GROUP}/v1", "OwnedAccessKey", spec={"user": name})
    return str(created["spec"]["key"])


@asynccontextmanager
async def _run_attack(server: Server, keys: dict[str, str], attack: str, seconds: float) -> AsyncIterator[Counter[str]]:
    """Runs an attack during the context. The counts of responses are complete after it."""
    responses: Counter[str] = Counter()
    options = {
        "attack": attack,
        "host": server.host,
        "port": server.port,
        "root": server.root,
        "ca_file": str(server.ca_file),
        "key": keys["mallory"],
        "powerless_key": keys["powerless"],
        "share": PROCESSES,
        "seconds": seconds + WARM_SECONDS + EXTRA_SECONDS,
    }
    processes: list[Process] = []
    try:
        for _ in range(PROCESSES):
            processes.append(await _start(orjson.dumps(options) + b"\n"))
        yield responses
        for process in processes:
            with suppress(ProcessLookupError):  # it has ended itself
                process.terminate()
        for process in processes:
            output, _ = await asyncio.wait_for(process.communicate(), READY_SECONDS)
            responses.update(orjson.loads(output or b"{}"))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if not responses:
        raise Failure(f"the attack with {attack} got no responses, so nothing was measured")


async def _start(options: bytes) -> Process:
    command = (sys.executable, "-m", "bench.fairness.attacker")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("started without pipes")
    process.stdin.write(options)
    if not await asyncio.wait_for(process.stdout.readline(), READY_SECONDS):
        raise Failure("an attacker ended before it was ready")
    return process
