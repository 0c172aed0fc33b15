"""Scopes over HTTP: one request for each row of tests/authz/scope/matrix.md and each scope, to a real server (T-1).

`tests/authz/scope/test_matrix.py` asks the authorizer about every request there can be. This asks the whole server, so
that nothing on the way lets by what the authorizer would refuse.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from fairlead.core.call import RequestInfo
from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog
from fairlead.server.auth.stages import PUBLIC_PATHS
from fairlead.server.discovery.documents import build_documents
from tests.authz.scope.matrix import DENY, FILTERED, Table, read_table
from tests.authz.scope.requests import MatrixRequest, all_requests
from tests.harness.server_process import MANAGEMENT, Server, running

M = f"{MANAGEMENT}/apis/{MANAGEMENT_GROUP}/v1"
CATALOG = Catalog(KINDS)
METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
REFUSED = "outside the scope of access key"
AT_ONCE = 16


def asked_once() -> Iterator[MatrixRequest]:
    """The first request of each row and verb that can be sent by itself. Watches would only take time."""
    seen = set()
    for asked in all_requests(CATALOG, build_documents(CATALOG), PUBLIC_PATHS):
        place = asked.row, asked.verb
        if asked.inner is None and place not in seen and _is_sendable(asked.target):
            seen.add(place)
            yield asked


def _is_sendable(target: RequestInfo) -> bool:
    """Whether a method and a path can say it: a list and a create have no name, and everything else has one."""
    if target.root != "management" or target.verb not in METHODS:
        return False
    if not target.resource:
        return target.verb == "get"
    if CATALOG.find(target.group, "v1", target.resource) is None:
        return False
    if target.resource == "namespaces" and target.namespace != target.name:
        return False
    collective = target.verb in ("list", "deletecollection", "create") and not target.subresource
    return bool(target.name) != collective


def path_of(target: RequestInfo) -> str:
    if not target.resource:
        return f"{MANAGEMENT}{target.path}"
    root = f"{MANAGEMENT}/apis/{target.group}/v1" if target.group else f"{MANAGEMENT}/api/v1"
    inside = f"/namespaces/{target.namespace}" if target.namespace and target.resource != "namespaces" else ""
    below = f"/{target.subresource}" if target.subresource else ""
    name = f"/{target.name}" if target.name else ""
    return f"{root}{inside}/{target.resource}{name}{below}"


def make_keys(server: Server, table: Table) -> dict[str, str]:
    """A key of ada's for each scope of the table. She may do everything, so that only the scope refuses anything."""
    with server.client() as client:

        def make(plural: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
            body = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            answer = client.post(f"{M}/{plural}", json=body)
            assert answer.status_code == 201, answer.text
            made: dict[str, Any] = answer.json()
            return made

        make("users", "User", "ada", {"groups": ["service:admins"]})
        make("teams", "Team", "core", {"users": ["ada"]})
        for project in ("web", "lab"):
            make("projects", "Project", project, {})
        keys = {}
        for number, (column, written) in enumerate(table.scope_documents.items()):
            spec = {"user": "ada"} if written is None else {"user": "ada", "scope": written}
            keys[column] = make("ownedaccesskeys", "OwnedAccessKey", f"k{number}", spec)["spec"]["key"]
        return keys


def differs(said: str, answer: httpx.Response) -> bool:
    refused = answer.status_code == 403 and REFUSED in answer.text
    if said == DENY:
        return not refused
    return refused or (said == FILTERED and answer.status_code != 200)


async def test_t1_the_server_answers_as_the_page_says(tmp_path: Path) -> None:
    table = read_table()
    requests = list(asked_once())
    assert len(requests) > 100
    found: list[str] = []
    with running(tmp_path / "data") as server:
        keys = make_keys(server, table)
        async with server.async_client() as client:

            async def hold(column: str, asked: MatrixRequest) -> None:
                said = table.rows[table.find_row(asked.row, asked.verb)][column]
                verb, path = asked.target.verb, path_of(asked.target)
                answer = await client.request(
                    METHODS[verb],
                    path,
                    params={} if verb in ("get", "list") else {"dryRun": "All"},
                    headers={"Authorization": f"Bearer {keys[column]}"},
                    content=b"{}" if verb in ("create", "update", "patch") else None,
                )
                if differs(said, answer):
                    found.append(f"{column}: {verb} {path}: the table says {said}, got {answer.text[:200]}")

            cells = iter([(column, asked) for column in keys for asked in requests])

            async def work() -> None:
                for column, asked in cells:
                    await hold(column, asked)

            await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()
    assert not found, f"{len(found)} of {len(keys) * len(requests)}; the first: {found[:3]}"
