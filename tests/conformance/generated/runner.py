"""Plays a life on a server and returns the normalized answers.

Nothing here waits for a fixed time. A watch ends with the event of an object that is created for that purpose, after
the requests inside of it. A request with `wait` is repeated until what controllers have to do is done.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.conformance.generated.connection import Connection, Response, Target, decode_stream_rejection
from tests.conformance.generated.normalization import Normalizer
from tests.conformance.generated.steps import Life, Race, Request, Watch, requests_of

Json = Any
Answer = dict[str, Json]

WAIT_SECONDS = 20.0
"""Seconds after which what a controller should have done counts as not happening."""
MERGE_PATCH = "application/merge-patch+json"
COLLECTOR_FINALIZERS = frozenset({"orphan", "foregroundDeletion"})
_VARIABLE = re.compile(r"\$(run|rv|uid|owner)\b")


class Order(Enum):
    """How the two requests of a race are sent."""

    TOGETHER = "together"
    LEFT_FIRST = "left first"
    RIGHT_FIRST = "right first"


@dataclass(slots=True)
class Play:
    """One play of a life: the values of its variables, and what replaces them in answers."""

    target: Target
    order: Order
    main: Connection
    second: Connection
    values: dict[str, str] = field(default_factory=lambda: {"run": f"r{secrets.token_hex(4)}"})
    watches: int = 0
    normalizer: Normalizer = field(init=False)

    def __post_init__(self) -> None:
        self.normalizer = Normalizer(self.values["run"], self.target.prefix)

    def fill(self, value: Json) -> Json:
        """The value with the variables replaced. Those without a value stay as they are."""
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self.values.get(match[1], match[0]), value)
        if isinstance(value, list):
            return [self.fill(each) for each in value]
        if isinstance(value, Mapping):
            return {self.fill(key): self.fill(each) for key, each in value.items()}
        return value

    def play(self, life: Life) -> list[Answer]:
        answers = []
        for step in life.steps:
            if isinstance(step, Watch):
                answers += self._watch(step, life)
            elif isinstance(step, Race):
                answers += self._race(step)
            else:
                answers.append(self._request(step, self.main))
        return answers

    def _request(self, request: Request, connection: Connection) -> Answer:
        response = self._send(request, connection)
        deadline = time.monotonic() + WAIT_SECONDS
        while not _has_happened(request.wait, response) and time.monotonic() < deadline:
            time.sleep(0.02)
            response = self._send(request, connection)
        self._capture(request.capture, response.body)
        return self._answer(response) | ({} if _has_happened(request.wait, response) else {"waited": "too long"})

    def _send(self, request: Request, connection: Connection) -> Response:
        data: bytes | None = None
        if request.text:
            data = self.fill(request.text).encode()
        elif request.body is not None:
            data = json.dumps(self.fill(request.body)).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        return connection.send(request.method, self.fill(request.path), data, headers | self.fill(request.headers))

    def _capture(self, what: str, body: Json) -> None:
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not what or not isinstance(metadata, dict) or "uid" not in metadata:
            return
        if what == "owner":
            self.values["owner"] = metadata["uid"]
        else:
            self.values |= {"uid": metadata["uid"], "rv": metadata["resourceVersion"]}

    def _answer(self, response: Response) -> Answer:
        answer: Answer = {"status": response.status}
        if response.body is not None:
            answer["body"] = self.normalizer.value(response.body)
        if response.format != "json":
            answer["format"] = response.format
        if response.warnings and response.status < 400:
            answer["warnings"] = response.warnings
        return answer

    def _race(self, race: Race) -> list[Answer]:
        if self.order is Order.LEFT_FIRST:
            left = self._send(race.left, self.main)
            return [self._answer(left), self._answer(self._send(race.right, self.second))]
        if self.order is Order.RIGHT_FIRST:
            right = self._send(race.right, self.second)
            return [self._answer(self._send(race.left, self.main)), self._answer(right)]
        responses: dict[str, Response] = {}
        barrier = threading.Barrier(2)

        def send(side: str, request: Request, connection: Connection) -> None:
            barrier.wait()
            responses[side] = self._send(request, connection)

        threads = [
            threading.Thread(target=send, args=("left", race.left, self.main)),
            threading.Thread(target=send, args=("right", race.right, self.second)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [self._answer(responses["left"]), self._answer(responses["right"])]

    def _watch(self, watch: Watch, life: Life) -> list[Answer]:
        """The answers to the inner requests, and then the one of the watch."""
        self.watches += 1
        last = f"last-{self.watches}-{self.values['run']}"
        connection, response = self.second.stream(self.fill(watch.path), self.fill(watch.headers))
        try:
            if response.status != 200:
                answer = self._answer(decode_stream_rejection(response))
                return [*(self._request(request, self.main) for request in watch.during), answer]
            inner = [self._request(request, self.main) for request in watch.during]
            body = self.fill(life.last)
            body["metadata"]["name"] = last
            self.main.send_json("POST", self.fill(life.collection), body)
            events = []
            while line := response.readline():
                event = json.loads(line)
                name = _name_of(event)
                if name == last:
                    break
                if not name.startswith("last-") and _is_compared(event):
                    events.append(self.normalizer.event(event))
            types = [f"{event['type']} {_name_of(event)}" for event in events]
            return [*inner, {"status": 200, "event types": types, "events": events, "ended": not line}]
        finally:
            connection.close()

    def clean_up(self, life: Life) -> None:
        """Deletes what the life has left, without a look at what comes of it."""
        made = {request.path.partition("?")[0] for request in requests_of(life) if request.method == "POST"}
        for collection in sorted({self.fill(path) for path in (life.collection, *made)}):
            listed = self.main.send_json("GET", f"{collection}?labelSelector=run={self.values['run']}").body
            for item in (listed or {}).get("items") or []:
                path = f"{collection}/{item['metadata']['name']}"
                if item["metadata"].get("finalizers"):
                    self.main.send_json("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
                self.main.send_json("DELETE", path)


@dataclass(slots=True)
class Runner:
    """Plays lives on one server, over the same two connections."""

    target: Target
    _main: Connection = field(init=False)
    _second: Connection = field(init=False)

    def __post_init__(self) -> None:
        self._main, self._second = Connection(self.target), Connection(self.target)

    def play(self, life: Life, order: Order = Order.TOGETHER) -> list[Answer]:
        """Plays the life and removes what it has left. The normalized answers."""
        play = Play(self.target, order, self._main, self._second)
        answers = play.play(life)
        play.clean_up(life)
        return answers

    def play_orders(self, life: Life) -> list[list[Answer]]:
        """The answers that are right on this server: one sequence, or one for each order if requests race."""
        orders = (Order.LEFT_FIRST, Order.RIGHT_FIRST) if life.has_race else (Order.LEFT_FIRST,)
        return [self.play(life, order) for order in orders]

    def close(self) -> None:
        self._main.close()
        self._second.close()


def _has_happened(wait: str, response: Response) -> bool:
    if not wait or response.status == 404:
        return True
    metadata: Json = response.body.get("metadata") if isinstance(response.body, dict) else None
    finalizers = (metadata or {}).get("finalizers") or []
    return wait == "collected" and not COLLECTOR_FINALIZERS & set(finalizers)


def _name_of(event: Json) -> str:
    body = event.get("object")
    if isinstance(body, dict) and body.get("kind") == "Table":
        rows: list[Json] = body.get("rows") or [{}]
        body = rows[0].get("object") or {}
    metadata: Json = body.get("metadata") if isinstance(body, dict) else None
    return str((metadata or {}).get("name", ""))


def _is_compared(event: Json) -> bool:
    """Bookmarks come when the server likes, but for the one that ends the initial events."""
    if event["type"] != "BOOKMARK":
        return True
    return "k8s.io/initial-events-end" in json.dumps(event)
