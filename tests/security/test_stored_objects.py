"""Accepted objects with odd times can be listed and watched, also after a restart; future versions time out."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.harness.server_process import MANAGEMENT, Server, running_server
from tests.requests.headers import build_bearer_header
from tests.requests.raw_http import RawConnection, RawRequest, RawResponse
from tests.requests.values import ODD_TEXTS
from tests.security.conftest import assert_healthy

CORE = f"{MANAGEMENT}/api/v1/namespaces/default"
LEASES = f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/default/leases"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
ODD_TIMES = (
    *(text for text in ODD_TEXTS if "-" in text and "T" in text),
    *("2016-12-31T23:59:60+00:00", "2020-01-01T00:00:00-00:00", "2020-01-01T00:00:00,5Z", "1582-10-10T00:00:00Z"),
    "10000-01-01T00:00:00Z",
    *("-001-01-01T00:00:00Z", "2020-01-01T00:00:00+23:59", "0001-01-01T00:00:00+00:01"),
    "9999-12-31T23:59:59.999999999Z",
)  # fmt: skip


def build_event(name: str, **fields: Any) -> dict[str, Any]:
    involved_object = {"kind": "ConfigMap", "name": "x", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": involved_object,
        **fields,
    }


def build_lease(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": fields}


def create_objects_with_odd_times(client: httpx.Client) -> int:
    """Creates objects with odd values in every time field. Returns how many were accepted."""
    accepted = 0
    for number, time in enumerate(ODD_TIMES):
        micro_time = re.sub(r"(T\d\d:\d\d:\d\d)(?=[Z+-])", r"\1.000001", time)
        reporter = {"reportingComponent": "x.io/y", "reportingInstance": "y", "action": "z", "reason": "w"}
        bodies = [
            (f"{CORE}/events", build_event(f"{field}-{number}".lower(), **{field: time}))
            for field in ("firstTimestamp", "lastTimestamp")
        ]
        bodies.append((f"{CORE}/events", build_event(f"time-{number}", eventTime=micro_time, **reporter)))
        bodies.append(
            (f"{CORE}/events", build_event(f"series-{number}", series={"count": 1, "lastObservedTime": micro_time}))
        )
        bodies += [
            (LEASES, build_lease(f"{field}-{number}".lower(), **{field: micro_time}))
            for field in ("acquireTime", "renewTime")
        ]
        statuses = [client.post(path, json=body).status_code for path, body in bodies]
        assert set(statuses) <= {201, 400, 422}, time
        accepted += statuses.count(201)
    return accepted


def test_odd_times_in_objects_break_neither_lists_nor_restarts(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("odd-times") / "data"
    with running_server(folder) as server, server.client() as client:
        assert create_objects_with_odd_times(client) > 10
        assert_readable(client)
        assert_healthy(server)
        assert server.stop() == 0
    with running_server(folder) as restarted, restarted.client() as client:
        assert_readable(client)
        assert_healthy(restarted)


def assert_readable(client: httpx.Client) -> None:
    for path in (f"{CORE}/events", LEASES):
        for accept in ("application/json", "application/yaml", TABLE):
            assert client.get(path, headers={"Accept": accept}).status_code == 200
    response = client.get(f"{CORE}/events?watch=1&timeoutSeconds=1", headers={"Accept": TABLE})
    assert {json.loads(line)["type"] for line in response.text.splitlines()} <= {"ADDED", "DELETED"}


def test_a_list_at_a_future_resource_version_times_out(server: Server) -> None:
    versions = [str(2**63 - number) for number in range(1, 40)] + ["9" * 18, "9" * 19]

    async def send_all() -> list[RawResponse]:
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(RawConnection(server)) for _ in versions]
            requests = [
                RawRequest("GET", f"{CORE}/secrets", (f"resourceVersion={each}",), (build_bearer_header(server.key),))
                for each in versions
            ]
            return await asyncio.gather(
                *(connection.send(each) for connection, each in zip(connections, requests, strict=True))
            )

    for response in asyncio.run(send_all()):
        assert (response.status, json.loads(response.body)["reason"]) == (504, "Timeout")
