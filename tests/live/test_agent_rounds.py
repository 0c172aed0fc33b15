"""Agents and their server under load, while either is killed with kill -9 and the connections between them are lost.

`AGENT_ROUNDS` sets how many rounds there are (`make test-agents`). In each, something is lost; then requests succeed
again. No request hangs, none is executed twice, and at the end nothing is left over. `AGENT_HANG_SECONDS` is how long a
request may take: 30 seconds on a machine that does nothing else.
"""

import dataclasses
import itertools
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.fork_server import ForkedProcess
from tests.harness.gateways import create_resource, gateway_path, is_online
from tests.harness.joined_agents import create_join_token, joined_agent
from tests.harness.relay import Relay, running_relay
from tests.harness.server_process import Server, running_server

ROUNDS = int(os.environ.get("AGENT_ROUNDS", "5"))
CLIENTS = 4
HANG_SECONDS = float(os.environ.get("AGENT_HANG_SECONDS", "120"))
LEFT_OVER_SECONDS = 60.0
OBJECTS = f"{gateway_path('berlin')}/api/v1/namespaces/demo/configmaps"
AGENTS = ("one", "two")
SPARE_DESCRIPTORS, SPARE_BYTES = 8, 48 * 1024 * 1024


class Load:
    """Clients that send requests without a break, each with a number of its own."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.statuses: Counter[str] = Counter()
        self.slow: list[str] = []
        self.created: set[str] = set()
        """Numbers of the POSTs that have succeeded."""
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(index,)) for index in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, index: int) -> None:
        while not self._stop.is_set():
            server = self.server
            if server is None:
                self._stop.wait(0.05)
                continue
            with server.client() as client:
                client.timeout = httpx.Timeout(HANG_SECONDS)
                while self.server is server and not self._stop.is_set():
                    if not self._send(client, "GET" if index == 0 else "POST"):
                        break

    def _send(self, client: httpx.Client, method: str) -> bool:
        number, began = str(next(self._numbers)), time.monotonic()
        try:
            response = client.request(method, f"{OBJECTS}?number={number}", json={} if method == "POST" else None)
            outcome = str(response.status_code)
            if response.is_success and method == "POST":
                self.created.add(number)
        except httpx.TransportError as error:
            outcome = type(error).__name__
        self.statuses[outcome] += 1
        if time.monotonic() - began >= HANG_SECONDS:
            self.slow.append(f"{method} {number}: {outcome}")
        if outcome[0] != "2":
            self._stop.wait(0.02)
        return outcome.isdecimal()


class Fleet:
    """The server and two agents of one cluster, which reach it over a network that may fail."""

    def __init__(self, folder: Path, cluster: FakeCluster, relay: Relay, load: Load) -> None:
        self.folder = folder
        self.relay = relay
        self.load = load
        self._kubeconfig = cluster.build_kubeconfig(token="clusters-own")
        self._stacks = {name: ExitStack() for name in ("server", *AGENTS)}
        self.server: Server
        self.agents: dict[str, ForkedProcess] = {}

    def start_server(self) -> None:
        server = self._stacks["server"].enter_context(running_server(self.folder / "data", workers=2))
        self.server = self.load.server = server
        self.relay.target = server.url

    def start_agent(self, name: str, token: str = "") -> None:
        reached = dataclasses.replace(self.server, url=self.relay.url)
        context = joined_agent(self.folder / name, reached, self._kubeconfig, token)
        self.agents[name] = self._stacks[name].enter_context(context)

    def kill_server(self) -> None:
        self.load.server = None
        for pid in self.server.pids()[1:]:
            os.kill(pid, 9)
        self.server.kill()
        self._stacks["server"].close()
        self.relay.drop()
        self.start_server()

    def kill_agent(self, name: str) -> None:
        self.agents[name].kill()
        self._stacks[name].close()
        self.start_agent(name)

    def lose_route(self) -> None:
        """Until a request has failed because of it."""
        failed = self.load.statuses.total() - self.load.statuses["200"]
        self.relay.is_silent = True
        statuses = self.load.statuses
        wait_until(lambda: statuses.total() - statuses["200"] > failed, HANG_SECONDS, "the lost route is noticed")
        self.relay.is_silent = False

    def losses(self) -> list[Callable[[], None]]:
        return [
            lambda: self.kill_agent("one"),
            self.relay.drop,
            self.lose_route,
            lambda: self.kill_agent("two"),
            self.kill_server,
        ]

    def is_served(self) -> bool:
        """Whether a request succeeds."""
        try:
            with self.server.client() as client:
                return client.get(OBJECTS).is_success
        except httpx.TransportError:
            return False

    def close(self) -> None:
        for name in (*AGENTS, "server"):
            self._stacks[name].close()

    def count_descriptors(self) -> Counter[str]:
        counts = Counter({"server": self.server.count_descriptors()})
        for name, process in self.agents.items():
            counts[name] = len(os.listdir(f"/proc/{process.pid}/fd"))
        return counts


def start_fleet(fleet: Fleet) -> None:
    fleet.start_server()
    with fleet.server.client() as admin:
        create_resource(admin, "clusters", "Cluster", "berlin", networkPeer=True)
        fleet.start_agent("one", create_join_token(admin))
        state = fleet.folder / "two" / "state"
        state.mkdir(parents=True, mode=0o700)
        for name in ("identity.json", "server-ca.crt"):  # both agents have one identity
            shutil.copy(fleet.folder / "one" / "state" / name, state / name)
        fleet.start_agent("two")
        wait_until(lambda: is_online(admin, "berlin"), what="the cluster is online")


def test_nothing_hangs_is_executed_twice_or_is_left_over_when_either_end_is_killed(tmp_path: Path) -> None:
    source = random.Random(ROUNDS)
    with FakeCluster() as cluster, running_relay() as relay, ExitStack() as stack:
        load = Load()
        fleet = Fleet(tmp_path, cluster, relay, load)
        stack.callback(fleet.close)
        start_fleet(fleet)
        wait_until(fleet.is_served)
        before, memory = fleet.count_descriptors(), fleet.server.resident_bytes()
        with load:
            for number in range(ROUNDS):
                losses = fleet.losses()
                reached = load.statuses["200"] + 20
                wait_until(lambda wanted=reached: load.statuses["200"] >= wanted, what="requests succeed")  # type: ignore[misc]
                loss = losses[number] if number < len(losses) else source.choice(losses)
                loss()
                wait_until(fleet.is_served, HANG_SECONDS * 2, what=f"round {number}: requests succeed again")
        # A GET may be sent again: it changes nothing.
        posts = [each for each in cluster.requests if each.method == "POST" and each.query.get("number")]
        executed = Counter(each.query["number"] for each in posts)
        print(f"{ROUNDS} rounds: {dict(load.statuses)}, {len(executed)} executed")
        assert load.slow == []
        assert [number for number, count in executed.items() if count > 1] == []
        assert load.created and load.created <= executed.keys()
        wait_until(
            lambda: all(fleet.count_descriptors()[each] <= count + SPARE_DESCRIPTORS for each, count in before.items()),
            LEFT_OVER_SECONDS,
            what=f"no connection is left over: {before} before",
        )
        assert fleet.server.resident_bytes() <= memory + SPARE_BYTES
    for name in AGENTS:
        assert "Traceback" not in (tmp_path / name / "agent.log").read_text()
