"""The rounds of `bench.fleet`, one after the other on one server. All figures are those of this machine."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.failure import Failure
from bench.gateways import fleet
from bench.gateways.fleet import CLUSTERS, MANAGEMENT, Process
from bench.gateways.run import Row, compare_rounds
from bench.processes import cpu_seconds, list_processes, proportional_memory
from tests.harness.free_ports import free_port

CONFIGMAPS = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps"
START_SECONDS = 900.0
BACK_SECONDS, NOTICED_SECONDS = 300.0, 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How many clusters there are, and how long nothing happens."""

    clusters: int
    dialled: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Idle:
    """A server for some time in which nothing happens."""

    memory: int
    cpu_share: float
    """Of one core."""
    commits: int


def measure_idle(server: Process, api: httpx.Client, seconds: float) -> Idle:
    pids = list_processes(server.running.pid)
    before = sum(map(cpu_seconds, pids))
    revision = _find_revision(api)
    time.sleep(seconds)
    used = sum(map(cpu_seconds, pids)) - before
    return Idle(sum(map(proportional_memory, pids)), used / seconds, _find_revision(api) - revision)


def _find_revision(api: httpx.Client) -> int:
    """The newest revision of the store."""
    return int(api.get(CONFIGMAPS).json()["metadata"]["resourceVersion"])


def measure_fleet(folder: Path, plan: Plan) -> Iterator[Row]:
    with ExitStack() as stack:
        servers = stack.enter_context(ExitStack())
        port = free_port()  # nobody else takes it while the server is started again
        server = _start_server(servers, folder, port)
        bare = _start_bare(stack, folder, max(plan.dialled, 1))
        with fleet.build_client(server) as api:
            alone = measure_idle(server, api, plan.seconds)
            yield Row("server without clusters", _describe(alone))
            yield from _measure_dialled(server, api, bare, folder, plan, alone)
            tokens = _create_clusters(api, plan.clusters, folder)
            before = measure_idle(server, api, plan.seconds)
            began = time.monotonic()
            agents = _start_agents(stack, server, bare, folder, tokens)
            yield Row(f"{plan.clusters} agents have joined", f"{time.monotonic() - began:.1f} s")
            _wait_until_reached(api, plan.clusters, BACK_SECONDS)
            time.sleep(plan.seconds)  # probes and conditions settle
            idle = measure_idle(server, api, plan.seconds)
            yield from _compare_idle(f"{plan.clusters} clusters by tunnel", idle, before, plan.clusters)
            yield Row("commits in the store meanwhile", f"{idle.commits} in {plan.seconds:.0f} s", "0")
            key, gateway = server.output["accessKey"], f"{server.url}/kubernetes/cluster"
            small = [(f"{gateway}/{name}/api/small", key) for name in ("bare-0", "agent-0")]
            row = compare_rounds("small GET by tunnel, beside dialled", small[0], small[1], 3, 16)
            yield Row(row.name, row.value, "80 %")
        servers.close()  # kill -9
        began = time.monotonic()
        server = _start_server(servers, folder, port)
        with fleet.build_client(server) as api:
            started = time.monotonic() - began
            _wait_until_reached(api, plan.clusters, BACK_SECONDS)
            back = time.monotonic() - began
            yield Row("server killed: all reached again", f"{back:.1f} s, of them {started:.1f} s of its start", "60 s")
            lost = len(range(0, plan.clusters, 10))
            _wait_until(lambda: _count_online(api) == plan.clusters, BACK_SECONDS, "all are online")
            os.kill(agents.running.pid, signal.SIGUSR1)
            began = time.monotonic()
            _wait_until(lambda: _count_online(api) <= plan.clusters - lost, NOTICED_SECONDS, "lost agents are noticed")
            yield Row(f"{lost} agents lost at once: noticed", f"{time.monotonic() - began:.1f} s", "15 s")


def _measure_dialled(
    server: Process, api: httpx.Client, bare: Process, folder: Path, plan: Plan, alone: Idle
) -> Iterator[Row]:
    fleet.connect_clusters(api, bare.output["ports"], folder / "tls" / "ca.crt", 0)
    fleet.wait_until_settled(api, len(bare.output["ports"]))
    time.sleep(plan.seconds)
    idle = measure_idle(server, api, plan.seconds)
    yield from _compare_idle(f"{len(bare.output['ports'])} dialled clusters", idle, alone, len(bare.output["ports"]))


def _compare_idle(name: str, after: Idle, before: Idle, count: int) -> Iterator[Row]:
    yield Row(f"server with {name}", _describe(after))
    yield Row("  memory of each", f"{(after.memory - before.memory) / count / 1024:.0f} KiB", "60 KiB")
    yield Row("  processor time of each", f"{(after.cpu_share - before.cpu_share) / count:.3%} of a core", "0.02 %")


def _describe(idle: Idle) -> str:
    return f"{idle.memory / 2**20:.0f} MiB, {idle.cpu_share:.1%} of a core"


def _start_server(stack: ExitStack, folder: Path, port: int) -> Process:
    command = ("fairlead", "up", "--data", str(folder / "server"), "--port", str(port), "--json")
    return stack.enter_context(fleet.run_process(*command))


def _start_bare(stack: ExitStack, folder: Path, count: int) -> Process:
    return stack.enter_context(fleet.run_process("bench.gateways.bare_clusters", str(folder / "tls"), str(count), "0"))


def _start_agents(stack: ExitStack, server: Process, bare: Process, folder: Path, tokens: Path) -> Process:
    arguments = (server.url, server.output["caFile"], str(tokens))
    api_server = (str(bare.output["ports"][0]), str(folder / "tls" / "ca.crt"))
    return stack.enter_context(fleet.run_process("bench.fleet.agents", *arguments, *api_server))


def _create_clusters(api: httpx.Client, count: int, folder: Path) -> Path:
    """Clusters that are reached through agents. The file with their join tokens."""
    tokens = []
    for number in range(count):
        metadata = {"name": f"agent-{number}"}
        body = {"apiVersion": "management.service.sh/v1", "kind": "Cluster", "metadata": metadata}
        fleet.expect_created(api.post(CLUSTERS, json={**body, "spec": {"networkPeer": True}}))
        created = api.post(f"{CLUSTERS}/agent-{number}/agenttoken", json={})
        fleet.expect_created(created)
        tokens.append(created.json()["status"]["token"])
    file = folder / "tokens.json"
    file.write_text(json.dumps(tokens))
    return file


def _wait_until_reached(api: httpx.Client, count: int, seconds: float) -> None:
    """Until a request has reached the API server of each cluster through its agent."""
    pending = list(range(count))

    def are_reached() -> bool:
        pending[:] = [each for each in pending if not _is_reached(api, f"agent-{each}")]
        return not pending

    _wait_until(are_reached, seconds, f"{count} clusters are reached")


def _is_reached(api: httpx.Client, name: str) -> bool:
    try:
        return api.get(f"/kubernetes/cluster/{name}/version").is_success
    except httpx.TransportError:
        return False


def _count_online(api: httpx.Client) -> int:
    items = api.get(CLUSTERS).json()["items"]
    agents = [each for each in items if each["metadata"]["name"].startswith("agent-")]
    return sum((each.get("status") or {}).get("online") is True for each in agents)


def _wait_until(check: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds:.0f} seconds: {what}")
        time.sleep(0.2)
