"""The rounds: the quiet user alone, then beside an attack, and again. Each pair makes a reading of two rows."""

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

from bench.aims import of_alone
from bench.connection import Connection
from bench.failure import Failure
from bench.fairness.attacks import ATTACKS, CONFIGMAPS, GROUP
from bench.fairness.quiet import Felt, feel
from bench.figures import Compared, Reading
from bench.fill import fill
from bench.objects import APPS, app, name_of, team_of
from bench.scale import Scale
from bench.servers import Server, fairlead

OBJECTS, QUICK_OBJECTS = 16_000, 500
PROCESSES = 2
WARM_SECONDS = 1.0
REST_SECONDS, LONGEST_REST, IDLE_SHARE = 0.5, 15.0, 0.1
"""After an attack, the server is looked at so often, for so long at most, until it uses this share of a core."""
LARGE_BYTES = 900_000
EXTRA_SECONDS = 45.0
"""An attacker ends by itself so long after its round should have been over."""
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
"""Who there is, and what they may do."""

Say = Callable[[str], None]
Wants = Callable[[str], bool]


def row_names(attack: str) -> tuple[str, str]:
    return f"fairness: GET beside {attack}", f"fairness: CREATE beside {attack}"


def wanted_attacks(wants: Wants) -> list[str]:
    return [attack for attack in ATTACKS if any(wants(name) for name in row_names(attack))]


async def fairness(folder: Path, scale: Scale, attacks: Sequence[str], say: Say) -> list[Compared]:
    """Two rows for each attack. In the ceiling's place is the same user alone, right before."""
    objects = QUICK_OBJECTS if scale.quick else OBJECTS
    async with _furnished(folder / "fairness", objects) as (server, keys):
        quiet = replace(server, headers={"authorization": f"Bearer {keys['quiet']}"})
        await feel(quiet, scale.seconds)  # the first ones of everything are slower
        found: list[Compared] = []
        for attack in attacks:
            pairs = []
            for _ in range(scale.rounds):
                alone = await feel(quiet, scale.seconds)
                async with _attacked(server, keys, attack, scale.seconds) as answers:
                    await asyncio.sleep(WARM_SECONDS)
                    beside = await feel(quiet, scale.seconds)
                pairs.append((alone, beside))
                say(f"fairness: {attack}: {_told(answers)}")
                await _rest(server)
            found += _rows(attack, pairs)
        return found


async def _rest(server: Server) -> None:
    """Waits until nothing of an attack is under way any more: alone is alone."""
    for _ in range(int(LONGEST_REST / REST_SECONDS)):
        before = server.cpu_seconds() or 0.0
        await asyncio.sleep(REST_SECONDS)
        if (server.cpu_seconds() or 0.0) - before < IDLE_SHARE * REST_SECONDS:
            return


def _rows(attack: str, pairs: Sequence[tuple[Felt, Felt]]) -> list[Compared]:
    get, create = row_names(attack)
    alone, beside = [each for each, _ in pairs], [each for _, each in pairs]
    return [
        Compared(get, "ms, p99", True, _readings(f.get for f in beside), _readings(f.get for f in alone), of_alone()),
        Compared(
            create, "ms, p99", True, _readings(f.create for f in beside), _readings(f.create for f in alone), of_alone()
        ),
    ]


def _readings(figures: Any) -> list[Reading]:
    return [Reading(figure, None, None) for figure in figures]


def _told(answers: Counter[str]) -> str:
    return ", ".join(f"{number:,} x {status}" for status, number in sorted(answers.items())) or "nothing"


@asynccontextmanager
async def _furnished(folder: Path, objects: int) -> AsyncIterator[tuple[Server, dict[str, str]]]:
    """A server with many objects, and a key for each of the users."""
    await asyncio.to_thread(folder.mkdir)
    async with fairlead(folder) as server, Connection.to(server) as connection:
        await connection.ask("POST", APPS, app(name_of(0), {"team": team_of(0)}))
    await fill(folder / "data", objects)
    async with fairlead(folder) as server, Connection.to(server) as connection:
        keys = {name: await _user(connection, name, rules) for name, rules in RULES.items()}
        large = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "large"},
            "data": {"x": "x" * LARGE_BYTES},
        }
        await connection.ask("POST", CONFIGMAPS, orjson.dumps(large))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mallory"}}
        await connection.ask("POST", "/api/v1/namespaces/default/serviceaccounts", orjson.dumps(account))
        yield server, keys


async def _user(connection: Connection, name: str, rules: list[dict[str, Any]]) -> str:
    """A user, with a role where he has rights; the key."""
    metadata = {"name": name}

    async def create(version: str, kind: str, **fields: Any) -> Any:
        body = orjson.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, **fields})
        return orjson.loads(await connection.ask("POST", f"/apis/{version}/{kind.lower()}s", body))

    if rules:
        role, subject = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, {"kind": "User", "name": name}
        await create(f"{RBAC}/v1", "ClusterRole", rules=rules)
        await create(f"{RBAC}/v1", "ClusterRoleBinding", roleRef=role, subjects=[subject])
    await create(f"{GROUP}/v1", "User", spec={})
    made = await create(f"{GROUP}/v1", "OwnedAccessKey", spec={"user": name})
    return str(made["spec"]["key"])


@asynccontextmanager
async def _attacked(server: Server, keys: dict[str, str], attack: str, seconds: float) -> AsyncIterator[Counter[str]]:
    """Attacked while the context lasts. What was answered to the attackers is known when it is over."""
    answers: Counter[str] = Counter()
    asked = {
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
            processes.append(await _start(orjson.dumps(asked) + b"\n"))
        yield answers
        for process in processes:
            with suppress(ProcessLookupError):  # its time was over
                process.terminate()
        for process in processes:
            output, _ = await asyncio.wait_for(process.communicate(), READY_SECONDS)
            answers.update(orjson.loads(output or b"{}"))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if not answers:
        raise Failure(f"the attack with {attack} was not answered at all, so nothing was measured beside it")


async def _start(asked: bytes) -> Process:
    command = (sys.executable, "-m", "bench.fairness.attacker")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("started without pipes")
    process.stdin.write(asked)
    if not await asyncio.wait_for(process.stdout.readline(), READY_SECONDS):
        raise Failure("an attacker ended before it was ready")
    return process
