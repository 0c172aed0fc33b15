"""Objects that are taken in and hurt later: whatever is accepted can be listed, watched, and found after a restart."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.harness.server_process import MANAGEMENT, Server, running
from tests.security.conftest import assert_unharmed
from tests.security.headers import bearer
from tests.security.raw_http import Answer, Ask, Line
from tests.security.values import TEXTS

CORE = f"{MANAGEMENT}/api/v1/namespaces/default"
LEASES = f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/default/leases"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
MOMENTS = (
    *(text for text in TEXTS if "-" in text and "T" in text),
    *("2016-12-31T23:59:60+00:00", "2020-01-01T00:00:00-00:00", "2020-01-01T00:00:00,5Z", "1582-10-10T00:00:00Z"),
    "10000-01-01T00:00:00Z",
    *("-001-01-01T00:00:00Z", "2020-01-01T00:00:00+23:59", "0001-01-01T00:00:00+00:01"),
    "9999-12-31T23:59:59.999999999Z",
)  # fmt: skip


def event(name: str, **fields: Any) -> dict[str, Any]:
    about = {"kind": "ConfigMap", "name": "x", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about, **fields}


def lease(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": fields}


def offer_every_moment(client: httpx.Client) -> int:
    """Objects with odd times wherever there are times. How many were taken."""
    taken = 0
    for number, moment in enumerate(MOMENTS):
        told = {"reportingComponent": "x.io/y", "reportingInstance": "y", "action": "z", "reason": "w"}
        bodies = [
            (f"{CORE}/events", event(f"{field}-{number}".lower(), **{field: moment}))
            for field in ("firstTimestamp", "lastTimestamp")
        ]
        bodies.append((f"{CORE}/events", event(f"time-{number}", eventTime=moment, **told)))
        bodies.append((f"{CORE}/events", event(f"series-{number}", series={"count": 1, "lastObservedTime": moment})))
        bodies += [
            (LEASES, lease(f"{field}-{number}".lower(), **{field: moment})) for field in ("acquireTime", "renewTime")
        ]
        answers = [client.post(path, json=body).status_code for path, body in bodies]
        assert set(answers) <= {201, 400, 422}, moment
        taken += answers.count(201)
    return taken


def test_no_moment_in_an_object_stops_the_server_or_its_lists(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("poison") / "data"
    with running(folder) as server, server.client() as client:
        assert offer_every_moment(client) > 10
        assert_readable(client)
        assert_unharmed(server)
        assert server.stop() == 0
    with running(folder) as again, again.client() as client:
        assert_readable(client)
        assert_unharmed(again)


def assert_readable(client: httpx.Client) -> None:
    for path in (f"{CORE}/events", LEASES):
        for accept in ("application/json", "application/yaml", TABLE):
            assert client.get(path, headers={"Accept": accept}).status_code == 200
    watched = client.get(f"{CORE}/events?watch=1&timeoutSeconds=1", headers={"Accept": TABLE})
    assert {json.loads(line)["type"] for line in watched.text.splitlines()} <= {"ADDED", "DELETED"}


def test_versions_of_the_future_are_not_waited_for_all_that_long(server: Server) -> None:
    versions = [str(2**63 - number) for number in range(1, 40)] + ["9" * 18, "9" * 19]

    async def ask_for_all() -> list[Answer]:
        async with AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(Line(server)) for _ in versions]
            asks = [
                Ask("GET", f"{CORE}/secrets", (f"resourceVersion={each}",), (bearer(server.key),)) for each in versions
            ]
            return await asyncio.gather(*(line.ask(ask) for line, ask in zip(lines, asks, strict=True)))

    for answer in asyncio.run(ask_for_all()):
        assert (answer.status, json.loads(answer.body)["reason"]) == (504, "Timeout")
