"""Scopes over HTTP: one request for each row of tests/authz/scope/matrix.md and each scope, to a real server (T-1).

`tests/authz/scope/test_matrix.py` tests the authorizer with all requests. This tests the whole server, so that no other
part permits what the authorizer denies.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.core.call import RequestInfo
from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog
from fairlead.server.auth.stages import PUBLIC_PATHS
from fairlead.server.discovery.documents import build_documents
from tests.authz.scope.matrix import DENY, FILTERED, Table, read_table
from tests.authz.scope.requests import MatrixRequest, all_requests
from tests.harness.server_process import MANAGEMENT, Server, running_server

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
FORBIDDEN_MESSAGE = "outside the scope of access key"
CONCURRENCY = 16


def select_requests() -> Iterator[MatrixRequest]:
    """Yields the first request of each row and verb that can be sent by itself. Watches would only take time."""
    seen = set()
    for request in all_requests(CATALOG, build_documents(CATALOG), PUBLIC_PATHS):
        row_and_verb = request.row, request.verb
        if request.inner is None and row_and_verb not in seen and _is_sendable(request.target):
            seen.add(row_and_verb)
            yield request


def _is_sendable(target: RequestInfo) -> bool:
    """Whether method and path can express it: a list and a create have no name, and everything else has one."""
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


def build_path(target: RequestInfo) -> str:
    if not target.resource:
        return f"{MANAGEMENT}{target.path}"
    root = f"{MANAGEMENT}/apis/{target.group}/v1" if target.group else f"{MANAGEMENT}/api/v1"
    namespace = f"/namespaces/{target.namespace}" if target.namespace and target.resource != "namespaces" else ""
    subresource = f"/{target.subresource}" if target.subresource else ""
    name = f"/{target.name}" if target.name else ""
    return f"{root}{namespace}/{target.resource}{name}{subresource}"


def create_keys(server: Server, table: Table) -> dict[str, str]:
    """Creates a key of ada for each scope of the table. She is an administrator, so that only the scope denies."""
    with server.client() as client:

        def create_object(plural: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
            body = {"apiVersion": f"{MANAGEMENT_GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            response = client.post(f"{M}/{plural}", json=body)
            assert response.status_code == 201, response.text
            created: dict[str, Any] = response.json()
            return created

        create_object("users", "User", "ada", {"groups": ["service:admins"]})
        create_object("teams", "Team", "core", {"users": ["ada"]})
        for project in ("web", "lab"):
            create_object("projects", "Project", project, {})
        keys = {}
        for number, (column, written) in enumerate(table.scope_documents.items()):
            spec = {"user": "ada"} if written is None else {"user": "ada", "scope": written}
            keys[column] = create_object("ownedaccesskeys", "OwnedAccessKey", f"k{number}", spec)["spec"]["key"]
        return keys


def differs(expected: str, response: httpx.Response) -> bool:
    denied = response.status_code == 403 and FORBIDDEN_MESSAGE in response.text
    if expected == DENY:
        return not denied
    return denied or (expected == FILTERED and response.status_code != 200)


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
async def test_t1_the_server_enforces_scopes_as_documented(tmp_path: Path, stride: int) -> None:
    """Every fourth cell of the table; all of them in `make test-long`."""
    table = read_table()
    requests = list(select_requests())
    assert len(requests) > 100
    differences: list[str] = []
    with running_server(tmp_path / "data") as server:
        keys = create_keys(server, table)
        async with server.async_client() as client:

            async def check_cell(column: str, request: MatrixRequest) -> None:
                expected = table.rows[table.find_row(request.row, request.verb)][column]
                verb, path = request.target.verb, build_path(request.target)
                response = await client.request(
                    METHODS[verb],
                    path,
                    params={} if verb in ("get", "list") else {"dryRun": "All"},
                    headers={"Authorization": f"Bearer {keys[column]}"},
                    content=b"{}" if verb in ("create", "update", "patch") else None,
                )
                if differs(expected, response):
                    differences.append(f"{column}: {verb} {path}: the table says {expected}, got {response.text[:200]}")

            cells = iter([(column, request) for column in keys for request in requests][::stride])

            async def check_cells() -> None:
                for column, request in cells:
                    await check_cell(column, request)

            await asyncio.gather(*(check_cells() for _ in range(CONCURRENCY)))
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()
    assert not differences, f"{len(differences)} of {len(keys) * len(requests)}; the first: {differences[:3]}"
