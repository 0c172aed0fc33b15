"""Clients that read, write, list and watch the same few objects through all replicas, and record the responses."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.history import (
    BOOKMARK,
    CREATE,
    DELETE,
    DONE,
    GET,
    MISSING,
    NEVER,
    REJECTED,
    UNKNOWN,
    UPDATE,
    History,
    Listing,
    Operation,
    State,
    WatchChain,
    WatchLine,
)
from tests.harness.server_process import CONFIGMAPS, configmap

NAMES = tuple(f"fault-{number}" for number in range(6))
OUTCOMES = {200: DONE, 201: DONE, 404: MISSING, 409: REJECTED}
HTTP_GONE = 410
PAGE_SIZE = 4
WATCH_SECONDS = "1"
"""Short, so that watches often end with a bookmark and are resumed."""
LATE_LINES = 4000
"""How many of the last lines of a watch a late watcher can start from."""
RETRY_SECONDS = 0.03
"""Seconds to wait after a replica has not responded."""


@dataclass
class Workload:
    """The state that the clients share. Each request goes to a random one of the `replicas`."""

    replicas: list[httpx.AsyncClient]
    history: History = field(default_factory=History)
    last_states: dict[str, State | None] = field(default_factory=dict)
    """The last state read of each object, often stale. The next write is based on it."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    anomalies: list[str] = field(default_factory=list)
    """Responses that no client should ever get."""
    resumed: int = 0
    expired: int = 0

    def choose_replica(self) -> httpx.AsyncClient:
        return random.choice(self.replicas)


async def run_operations(workload: Workload, stop: asyncio.Event) -> None:
    """Reads and writes objects until `stop` is set."""
    while not stop.is_set():
        name = random.choice(NAMES)
        last_state = workload.last_states.get(name)
        verb = (
            random.choice((GET, UPDATE, UPDATE, UPDATE, DELETE)) if last_state else random.choice((GET, CREATE, CREATE))
        )
        await _run_operation(workload, verb, name, last_state)


async def _run_operation(workload: Workload, verb: str, name: str, last_state: State | None) -> None:
    value, expected = (
        f"v{next(workload.numbers)}",
        last_state.revision if last_state and verb in (UPDATE, DELETE) else 0,
    )
    start = time.monotonic()
    try:
        response = await _send(workload.choose_replica(), verb, name, value, expected)
    except httpx.ConnectError:  # the request was not sent
        await asyncio.sleep(RETRY_SECONDS)
        return
    except httpx.HTTPError:
        response = None
    end = time.monotonic()
    outcome = UNKNOWN if response is None else OUTCOMES.get(response.status_code, UNKNOWN)
    if response is not None and outcome == UNKNOWN and not is_well_formed_error(response):
        workload.anomalies.append(f"{verb} was answered with {response.status_code}: {response.text[:200]}")
    if outcome == UNKNOWN:
        workload.last_states.pop(name, None)
        if verb != GET:
            workload.history.operations.append(Operation(verb, name, start, NEVER, UNKNOWN, value, expected))
        await asyncio.sleep(RETRY_SECONDS)
        return
    assert response is not None
    state = _parse_state(response.json()) if outcome == DONE and verb != DELETE else State(0, value)
    workload.history.operations.append(
        Operation(verb, name, start, end, outcome, state.value, expected, state.revision)
    )
    workload.last_states[name] = state if state.revision else None
    if outcome == REJECTED and verb == CREATE:
        await _run_operation(workload, GET, name, None)


def is_well_formed_error(response: httpx.Response) -> bool:
    """Whether it is a Status that says that the server cannot serve the request now."""
    if response.status_code < 500 and response.status_code != 429:
        return False
    try:
        status = response.json()
    except json.JSONDecodeError:
        return False
    return (status.get("kind"), status.get("code")) == ("Status", response.status_code)


async def _send(replica: httpx.AsyncClient, verb: str, name: str, value: str, expected: int) -> httpx.Response:
    body: dict[str, Any] = configmap(name, v=value)
    path = f"{CONFIGMAPS}/{name}"
    if verb == GET:
        return await replica.get(path)
    if verb == CREATE:
        return await replica.post(CONFIGMAPS, json=body)
    if verb == UPDATE:
        body["metadata"]["resourceVersion"] = str(expected)
        return await replica.put(path, json=body)
    conditions = {"preconditions": {"resourceVersion": str(expected)}}
    return await replica.request("DELETE", path, json={"apiVersion": "v1", "kind": "DeleteOptions", **conditions})


def _parse_state(item: Mapping[str, Any]) -> State:
    return State(int(item["metadata"]["resourceVersion"]), item["data"]["v"])


async def list_repeatedly(workload: Workload, stop: asyncio.Event) -> None:
    """Lists objects until `stop` is set, sometimes in pages."""
    while not stop.is_set():
        listing = await list_objects(workload, workload.choose_replica(), paged=random.random() < 0.5)
        if listing is not None:
            for name in NAMES:
                workload.last_states[name] = listing.items.get(name)
        await asyncio.sleep(RETRY_SECONDS)


async def list_objects(workload: Workload, replica: httpx.AsyncClient, *, paged: bool = False) -> Listing | None:
    """Lists all objects and records the list in the history. Returns None if no replica responds."""
    start, token, revision = time.monotonic(), "", 0
    items: dict[str, State] = {}
    while True:
        try:
            response = await replica.get(CONFIGMAPS, params={"limit": PAGE_SIZE, "continue": token} if paged else {})
        except httpx.HTTPError:
            return None
        if response.status_code != 200:
            if response.status_code != HTTP_GONE and not is_well_formed_error(response):
                workload.anomalies.append(f"a list was answered with {response.status_code}: {response.text[:200]}")
            return None
        page = response.json()
        page_revision = int(page["metadata"]["resourceVersion"])
        if revision and page_revision != revision:
            workload.anomalies.append(f"the pages of one list have the revisions {revision} and {page_revision}")
        revision = page_revision
        items.update(
            {
                item["metadata"]["name"]: _parse_state(item)
                for item in page["items"]
                if item["metadata"]["name"] in NAMES
            }
        )
        token = page["metadata"].get("continue", "")
        if not token:
            listing = Listing(start, time.monotonic(), revision, items)
            workload.history.listings.append(listing)
            return listing


class Watcher:
    """Watches all objects, on another replica whenever a watch has ended. After an expired version it lists again."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.chain: WatchChain | None = None

    async def run(self) -> None:
        while True:
            replica = self._workload.choose_replica()
            if self.chain is None:
                await self._start(replica)
            else:
                await self._resume(replica, self.chain)
            await asyncio.sleep(0.01)

    async def watch_from_the_past(self) -> None:
        """Repeatedly starts a watch at a past revision: it gets all events, or the error that the revision expired."""
        while True:
            newest = max(self._workload.history.chains, key=lambda chain: chain.position, default=None)
            if newest is not None and newest.lines:
                self.chain = WatchChain(random.choice(newest.lines[-LATE_LINES:]).revision)
                self._workload.history.chains.append(self.chain)
                await self._resume(self._workload.choose_replica(), self.chain)
            await asyncio.sleep(0.5)

    async def _start(self, replica: httpx.AsyncClient) -> None:
        listing = await list_objects(self._workload, replica)
        if listing is not None:
            self.chain = WatchChain(listing.revision)
            self._workload.history.chains.append(self.chain)

    async def _resume(self, replica: httpx.AsyncClient, chain: WatchChain) -> None:
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS}
        try:
            async with replica.stream(
                "GET", CONFIGMAPS, params={**query, "resourceVersion": str(chain.position)}
            ) as response:
                if response.status_code != 200:
                    await self._handle_error(response)
                    return
                self._workload.resumed += 1
                async for line in response.aiter_lines():
                    self._record_line(chain, json.loads(line))
        except (httpx.HTTPError, json.JSONDecodeError):  # killed, perhaps in the middle of a line
            await asyncio.sleep(RETRY_SECONDS)

    async def _handle_error(self, response: httpx.Response) -> None:
        await response.aread()
        if response.status_code == HTTP_GONE:
            self._handle_expiry()
        elif not is_well_formed_error(response):
            self._workload.anomalies.append(f"a watch was answered with {response.status_code}: {response.text[:200]}")

    def _record_line(self, chain: WatchChain, line: Mapping[str, Any]) -> None:
        kind, item = line["type"], line["object"]
        if kind == "ERROR":
            if item["code"] == HTTP_GONE:
                self._handle_expiry()
            elif item["code"] < 500 and item["code"] != 429:
                self._workload.anomalies.append(f"a watch ended with {item}")
        elif kind == BOOKMARK:
            chain.lines.append(WatchLine(BOOKMARK, "", int(item["metadata"]["resourceVersion"])))
        elif (name := item["metadata"]["name"]) in NAMES:
            state = _parse_state(item)
            chain.lines.append(WatchLine(kind, name, state.revision, state.value))

    def _handle_expiry(self) -> None:
        self._workload.expired += 1
        self.chain = None
