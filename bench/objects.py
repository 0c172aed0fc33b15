"""The objects that servers are filled with: apps of about 700 bytes each, as they are served."""

from collections.abc import Iterable

import orjson

from bench.connection import Connection
from bench.failure import Failure
from bench.servers import Server
from bench.task_groups import run_together

GROUP = "management.service.sh"
APPS = f"/apis/{GROUP}/v1/apps"
"""The path relative to the server's root."""

TEAMS = 50
"""The number of labels, which are distributed evenly over the objects."""

SEEDING_CONNECTIONS = 16


def name_object(number: int) -> str:
    """The name of an object, of the same length for each of a million; load.lua does the same."""
    return f"app-{number:06d}"


def name_team(number: int) -> str:
    return f"team-{number % TEAMS:02d}"


def build_app(name: str, labels: dict[str, str] | None = None) -> bytes:
    """The body of a create or an apply. With metadata and managed fields, its 200 bytes become 700."""
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return orjson.dumps(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "App",
            "metadata": metadata,
            "spec": {
                "displayName": "Ingress NGINX",
                "recommendedApp": ["cluster"],
                "config": {"chart": {"name": "ingress-nginx", "repoURL": "https://charts.example.com"}},
            },
        }
    )


async def create_objects(server: Server, objects: int) -> None:
    """Creates this many objects, distributed over the teams."""
    await create_apps(
        server, (build_app(name_object(number), {"team": name_team(number)}) for number in range(objects))
    )


async def create_apps(server: Server, bodies: Iterable[bytes]) -> None:
    """Creates apps over several connections at once."""
    remaining_bodies = iter(bodies)

    async def create_some() -> None:
        async with Connection.to(server) as connection:
            for body in remaining_bodies:
                await connection.request("POST", APPS, body)

    await run_together(create_some() for _ in range(SEEDING_CONNECTIONS))


async def require_empty(server: Server) -> None:
    """Fails if a peer has apps already: existing objects must not be counted, changed or removed."""
    async with Connection.to(server) as connection:
        app_list = orjson.loads(await connection.request("GET", f"{APPS}?limit=1"))
    if app_list["items"]:
        raise Failure(f"{server.name} has apps already; remove them (kubectl delete apps --all), or use another server")


async def read_revision(server: Server) -> int:
    """The newest revision. Every effective write increments it, so it shows whether writes arrived."""
    async with Connection.to(server) as connection:
        app_list = orjson.loads(await connection.request("GET", f"{APPS}?limit=1"))
    return int(app_list["metadata"]["resourceVersion"])


async def object_bytes(server: Server) -> int:
    """The size of an object as it is served."""
    async with Connection.to(server) as connection:
        return len(await connection.request("GET", f"{APPS}/{name_object(0)}"))
