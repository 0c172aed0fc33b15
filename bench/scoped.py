"""The cost of permissions: the same reads by a user with one role and a scoped key.

Its ceiling is the administrator, for whom only a group is checked: both rounds go to the same server.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson

from bench.aims import Aim, PeerAim
from bench.compare import Measure, ServerSet
from bench.connection import Connection
from bench.figures import Reading
from bench.objects import GROUP
from bench.requests import Requests
from bench.servers import Server

RBAC = "rbac.authorization.k8s.io"
NAME = "bench-reader"
READ = ["get", "list", "watch"]
SCOPE = {"rules": [{"verbs": READ, "resources": [{"group": GROUP, "resources": ["apps"]}]}]}


@dataclass(frozen=True, slots=True)
class Scoped:
    """Requests of a user with few permissions, compared to those of an administrator."""

    requests: Requests

    @property
    def name(self) -> str:
        return f"{self.requests.name} with a scoped key, of an administrator's"

    @property
    def unit(self) -> str:
        return self.requests.unit

    @property
    def falling(self) -> bool:
        return self.requests.falling

    @property
    def aim(self) -> Aim | None:
        return None

    @property
    def peer_aim(self) -> PeerAim | None:
        return None

    @asynccontextmanager
    async def session(self, server_set: ServerSet) -> AsyncIterator[Measure]:
        ours = server_set.ours
        reader = replace(ours, headers={"authorization": f"Bearer {await _create_reader(ours)}"})
        async with self.requests.session(server_set) as measure:

            async def measure_as_reader(server: Server) -> Reading:
                return await measure(reader if server is ours else ours)

            yield measure_as_reader


async def _create_reader(server: Server) -> str:
    """Creates a user with a role and a scoped key, and returns the key."""
    rules = [{"apiGroups": [GROUP], "resources": ["apps"], "verbs": READ}]
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME}
    subject = {"kind": "User", "name": NAME}
    async with Connection.to(server) as connection:
        await _create(connection, f"{RBAC}/v1", "ClusterRole", rules=rules)
        await _create(connection, f"{RBAC}/v1", "ClusterRoleBinding", roleRef=role, subjects=[subject])
        await _create(connection, f"{GROUP}/v1", "User", spec={})
        created = await _create(connection, f"{GROUP}/v1", "OwnedAccessKey", spec={"user": NAME, "scope": SCOPE})
    return str(created["spec"]["key"])


async def _create(connection: Connection, api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME}, **fields}
    response = await connection.request("POST", f"/apis/{api_version}/{kind.lower()}s", orjson.dumps(body))
    created: dict[str, Any] = orjson.loads(response)
    return created
