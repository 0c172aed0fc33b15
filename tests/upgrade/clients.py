"""Clients that read, write and watch while replicas are replaced, and note everything that a client would not retry.

They behave as clients of Kubernetes do. A connection that breaks, 429 and 503 are tried again, writes included: each
write sets a value of its own, so repeating it is safe. Everything else that is not a success is a failure.
"""

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.harness.server_process import CONFIGMAPS, Server, configmap
from tests.live.load_balancer import LoadBalancer, parse_address

VERBS = ("create", "delete", "get", "list", "patch")
RETRIED_STATUS = frozenset({429, 503})
PAUSE_SECONDS = 0.005
RETRY_SECONDS = 0.05
WRITERS, WATCHES = 2, 2
LAST = "last"
"""The object that is created in the end."""
WATCH_SECONDS = 30
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}

Object = dict[str, Any]


class RandomBalancer(LoadBalancer):
    """Connections go to any of the replicas; one that accepts none is passed over. Replicas can be replaced."""

    def replace(self, old: Server, new: Server) -> None:
        before, after = parse_address(old.url), parse_address(new.url)
        self._targets = [after if target == before else target for target in self._targets]

    def _connect(self) -> socket.socket | None:
        random.shuffle(self._targets)
        return super()._connect()


@dataclass
class Figures:
    """What clients saw. `failures` are what they would not retry."""

    requests: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    longest_wait: float = 0.0
    """The longest time from the first attempt of a request to its success."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, verb: str, retries: int, seconds: float) -> None:
        with self._lock:
            self.requests[verb] += 1
            self.retries[verb] += retries
            self.longest_wait = max(self.longest_wait, seconds)

    def total(self) -> int:
        with self._lock:
            return sum(count for verb, count in self.requests.items() if verb in VERBS)

    def describe(self) -> str:
        parts = [f"{count} {verb} ({self.retries[verb]} retries)" for verb, count in sorted(self.requests.items())]
        return f"{', '.join(parts)}; {len(self.failures)} failures; longest wait {self.longest_wait:.2f} s"

    def fail(self, text: str) -> None:
        with self._lock:
            self.failures.append(text)


class LoadClient:
    """One client: its connections, and requests that are tried again as described above."""

    def __init__(self, server: Server, url: str, figures: Figures, stop: threading.Event) -> None:
        self.figures, self.stop = figures, stop
        self.client = server.client()
        self.client.base_url = httpx.URL(url)

    def request(self, verb: str, method: str, path: str, accepted: tuple[int, ...] = (200, 201), **body: Any) -> Object:
        begun, retries = time.monotonic(), 0
        while True:
            try:
                answer = self.client.request(method, path, **body)
            except httpx.TransportError:
                answer = None
            if answer is not None and (answer.status_code in accepted or (retries and answer.status_code == 409)):
                self.figures.record(verb, retries, time.monotonic() - begun)
                found: Object = answer.json()
                return found
            if answer is not None and answer.status_code not in RETRIED_STATUS:
                self.figures.fail(f"{verb}: {answer.status_code} {answer.text}")
                return {}
            retries += 1
            time.sleep(RETRY_SECONDS)

    def read(self, number: int) -> None:
        while not self.stop.is_set():
            self.request("get", "GET", f"{CONFIGMAPS}/writer-{number}")
            self.request("list", "GET", CONFIGMAPS, params={"limit": 100})
            time.sleep(PAUSE_SECONDS)

    def write(self, number: int) -> int:
        """Counts in one object, and creates and deletes others. Returns the last count that was acknowledged."""
        count = 0
        while not self.stop.is_set():
            count += 1
            patch = json.dumps({"data": {"count": str(count)}})
            path = f"{CONFIGMAPS}/writer-{number}"
            self.request("patch", "PATCH", path, content=patch, headers=MERGE_PATCH)
            name = f"extra-{number}-{count}"
            self.request("create", "POST", CONFIGMAPS, json=configmap(name))
            self.request("delete", "DELETE", f"{CONFIGMAPS}/{name}", accepted=(200, 404))
            time.sleep(PAUSE_SECONDS)
        return count

    def watch(self, since: str) -> dict[str, int]:
        """Watches until the object LAST appears. Returns the last count of each writer.

        Resumes with the last version that it has seen, at any replica.
        """
        seen: dict[str, int] = {}
        while True:
            params = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(WATCH_SECONDS)}
            try:
                with self.client.stream("GET", CONFIGMAPS, params=params) as answer:
                    if answer.status_code not in (200, *RETRIED_STATUS):
                        self.figures.fail(f"watch: {answer.status_code} {answer.read().decode()}")
                        return seen
                    for line in answer.iter_lines() if answer.status_code == 200 else ():
                        event = json.loads(line)
                        since = self._check_event(event, seen, since)
                        if event["type"] == "ERROR" or event["object"]["metadata"]["name"] == LAST:
                            return seen
            except httpx.TransportError:
                pass
            self.figures.record("watch that was resumed", 0, 0.0)
            time.sleep(RETRY_SECONDS)

    def _check_event(self, event: Object, seen: dict[str, int], since: str) -> str:
        """Checks that the event is newer than all before, and that no count was missed. Returns its version."""
        obj = event["object"]
        if event["type"] == "ERROR":
            self.figures.fail(f"watch: {obj}")
            return since
        version, name = str(obj["metadata"]["resourceVersion"]), obj["metadata"]["name"]
        if int(version) <= int(since):
            self.figures.fail(f"watch: version {version} after {since}")
        self.figures.record("event", 0, 0.0)
        if name.startswith("writer-") and event["type"] == "MODIFIED":
            count, before = int(obj["data"]["count"]), seen.get(name, 0)
            if count not in (before, before + 1):  # the same again: the migration has changed the object
                self.figures.fail(f"watch of {name}: {count} after {before}")
            seen[name] = count
        return version


@contextmanager
def running_load(server: Server, url: str, figures: Figures) -> Iterator[None]:
    """Readers, writers and watches, with connections of their own. In the end, watches must have seen everything."""
    stop = threading.Event()
    with ExitStack() as connections:

        def connect() -> LoadClient:
            client = LoadClient(server, url, figures, stop)
            connections.enter_context(client.client)
            return client

        with load(connect, figures, stop):
            yield


@contextmanager
def load(connect: Callable[[], LoadClient], figures: Figures, stop: threading.Event) -> Iterator[None]:
    setup = connect()
    for number in range(WRITERS):
        setup.request("create", "POST", CONFIGMAPS, json=configmap(f"writer-{number}", count="0"))
    since = str(setup.request("list", "GET", CONFIGMAPS)["metadata"]["resourceVersion"])
    with ThreadPoolExecutor(WRITERS * 2 + WATCHES) as pool:
        watching = [pool.submit(connect().watch, since) for _ in range(WATCHES)]
        writing = [pool.submit(connect().write, number) for number in range(WRITERS)]
        reading = [pool.submit(connect().read, number) for number in range(WRITERS)]
        try:
            yield
        finally:
            stop.set()
            counts = {f"writer-{number}": each.result() for number, each in enumerate(writing)}
            setup.request("create", "POST", CONFIGMAPS, json=configmap(LAST))
            results = [each.result() for each in watching]
            for each in reading:
                each.result()
    for seen in results:
        if seen != counts:
            figures.fail(f"a watch has seen {seen} of {counts}")
