"""Clients that all want the same few objects, through whichever replica answers, and write down what they were told."""

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
    REFUSED,
    UNKNOWN,
    UPDATE,
    Chain,
    History,
    Listing,
    Operation,
    Seen,
    State,
)
from tests.harness.server_process import CONFIGMAPS, configmap

NAMES = tuple(f"fault-{number}" for number in range(6))
OUTCOMES = {200: DONE, 201: DONE, 404: MISSING, 409: REFUSED}
GONE = 410
PAGE = 4
WATCH_SECONDS = "1"
"""Short, so that watches often end with a bookmark and are resumed."""
LATE = 4000
"""Lines of a watch from among which a latecomer begins."""
CALM = 0.03
"""Seconds to wait after a replica has not answered."""


@dataclass
class Traffic:
    """What the clients share. `replicas` are those to talk to; a client keeps one until it does not answer."""

    replicas: list[httpx.AsyncClient]
    history: History = field(default_factory=History)
    known: dict[str, State | None] = field(default_factory=dict)
    """What was last heard of each object: the ground on which the next write is based, often stale."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    odd: list[str] = field(default_factory=list)
    """Answers that no client should ever get."""
    resumed: int = 0
    expired: int = 0

    def any_replica(self) -> httpx.AsyncClient:
        return random.choice(self.replicas)


async def work(traffic: Traffic, stop: asyncio.Event) -> None:
    """Reads and writes objects until told to stop."""
    while not stop.is_set():
        name = random.choice(NAMES)
        known = traffic.known.get(name)
        verb = random.choice((GET, UPDATE, UPDATE, UPDATE, DELETE)) if known else random.choice((GET, CREATE, CREATE))
        await _operate(traffic, verb, name, known)


async def _operate(traffic: Traffic, verb: str, name: str, known: State | None) -> None:
    value, expected = f"v{next(traffic.numbers)}", known.revision if known and verb in (UPDATE, DELETE) else 0
    start = time.monotonic()
    try:
        answer = await _send(traffic.any_replica(), verb, name, value, expected)
    except httpx.ConnectError:  # nobody was asked anything
        await asyncio.sleep(CALM)
        return
    except httpx.HTTPError:
        answer = None
    end = time.monotonic()
    outcome = UNKNOWN if answer is None else OUTCOMES.get(answer.status_code, UNKNOWN)
    if answer is not None and outcome == UNKNOWN and not is_clean_refusal(answer):
        traffic.odd.append(f"{verb} was answered with {answer.status_code}: {answer.text[:200]}")
    if outcome == UNKNOWN:
        traffic.known.pop(name, None)
        if verb != GET:
            traffic.history.operations.append(Operation(verb, name, start, NEVER, UNKNOWN, value, expected))
        await asyncio.sleep(CALM)
        return
    assert answer is not None
    state = _state(answer.json()) if outcome == DONE and verb != DELETE else State(0, value)
    traffic.history.operations.append(Operation(verb, name, start, end, outcome, state.value, expected, state.revision))
    traffic.known[name] = state if state.revision else None
    if outcome == REFUSED and verb == CREATE:
        await _operate(traffic, GET, name, None)


def is_clean_refusal(answer: httpx.Response) -> bool:
    """Whether it says, in the way that clients understand, that the server cannot do it now."""
    if answer.status_code < 500 and answer.status_code != 429:
        return False
    try:
        status = answer.json()
    except json.JSONDecodeError:
        return False
    return (status.get("kind"), status.get("code")) == ("Status", answer.status_code)


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


def _state(item: Mapping[str, Any]) -> State:
    return State(int(item["metadata"]["resourceVersion"]), item["data"]["v"])


async def look(traffic: Traffic, stop: asyncio.Event) -> None:
    """Lists until told to stop, sometimes in pages."""
    while not stop.is_set():
        listing = await list_all(traffic, traffic.any_replica(), paged=random.random() < 0.5)
        if listing is not None:
            for name in NAMES:
                traffic.known[name] = listing.items.get(name)
        await asyncio.sleep(CALM)


async def list_all(traffic: Traffic, replica: httpx.AsyncClient, *, paged: bool = False) -> Listing | None:
    """A list that is part of the history from then on; None if nobody answers."""
    start, token, revision = time.monotonic(), "", 0
    items: dict[str, State] = {}
    while True:
        try:
            answer = await replica.get(CONFIGMAPS, params={"limit": PAGE, "continue": token} if paged else {})
        except httpx.HTTPError:
            return None
        if answer.status_code != 200:
            if answer.status_code != GONE and not is_clean_refusal(answer):
                traffic.odd.append(f"a list was answered with {answer.status_code}: {answer.text[:200]}")
            return None
        page = answer.json()
        told = int(page["metadata"]["resourceVersion"])
        if revision and told != revision:
            traffic.odd.append(f"the pages of one list have the revisions {revision} and {told}")
        revision = told
        items.update(
            {item["metadata"]["name"]: _state(item) for item in page["items"] if item["metadata"]["name"] in NAMES}
        )
        token = page["metadata"].get("continue", "")
        if not token:
            listing = Listing(start, time.monotonic(), revision, items)
            traffic.history.listings.append(listing)
            return listing


class Watcher:
    """Follows all objects, on another replica whenever a watch has ended. What is too old begins with a new list."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.chain: Chain | None = None

    async def run(self) -> None:
        while True:
            replica = self._traffic.any_replica()
            if self.chain is None:
                await self._begin(replica)
            else:
                await self._resume(replica, self.chain)
            await asyncio.sleep(0.01)

    async def come_late(self) -> None:
        """Begins again and again, somewhere in the past: it is told all of it, or that it is too late."""
        while True:
            newest = max(self._traffic.history.chains, key=lambda chain: chain.position, default=None)
            if newest is not None and newest.seen:
                self.chain = Chain(random.choice(newest.seen[-LATE:]).revision)
                self._traffic.history.chains.append(self.chain)
                await self._resume(self._traffic.any_replica(), self.chain)
            await asyncio.sleep(0.5)

    async def _begin(self, replica: httpx.AsyncClient) -> None:
        listing = await list_all(self._traffic, replica)
        if listing is not None:
            self.chain = Chain(listing.revision)
            self._traffic.history.chains.append(self.chain)

    async def _resume(self, replica: httpx.AsyncClient, chain: Chain) -> None:
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS}
        try:
            async with replica.stream(
                "GET", CONFIGMAPS, params={**query, "resourceVersion": str(chain.position)}
            ) as answer:
                if answer.status_code != 200:
                    await self._refused(answer)
                    return
                self._traffic.resumed += 1
                async for line in answer.aiter_lines():
                    self._take(chain, json.loads(line))
        except (httpx.HTTPError, json.JSONDecodeError):  # killed, perhaps in the middle of a line
            await asyncio.sleep(CALM)

    async def _refused(self, answer: httpx.Response) -> None:
        await answer.aread()
        if answer.status_code == GONE:
            self._expire()
        elif not is_clean_refusal(answer):
            self._traffic.odd.append(f"a watch was answered with {answer.status_code}: {answer.text[:200]}")

    def _take(self, chain: Chain, line: Mapping[str, Any]) -> None:
        kind, item = line["type"], line["object"]
        if kind == "ERROR":
            if item["code"] == GONE:
                self._expire()
            elif item["code"] < 500 and item["code"] != 429:
                self._traffic.odd.append(f"a watch ended with {item}")
        elif kind == BOOKMARK:
            chain.seen.append(Seen(BOOKMARK, "", int(item["metadata"]["resourceVersion"])))
        elif (name := item["metadata"]["name"]) in NAMES:
            state = _state(item)
            chain.seen.append(Seen(kind, name, state.revision, state.value))

    def _expire(self) -> None:
        self._traffic.expired += 1
        self.chain = None
