"""The objects that servers are filled with: apps of about 700 bytes each, as they are served."""

import orjson

from bench.connection import Connection
from bench.failure import Failure
from bench.servers import Server
from bench.together import together

GROUP = "management.service.sh"
APPS = f"/apis/{GROUP}/v1/apps"
"""Below the root of the server that is asked."""

TEAMS = 50
"""Each of these labels is on as many objects as the others."""

SEEDING_CONNECTIONS = 16


def name_of(number: int) -> str:
    """Of the same length for each of a million; load.lua does the same."""
    return f"app-{number:06d}"


def team_of(number: int) -> str:
    return f"team-{number % TEAMS:02d}"


def app(name: str, labels: dict[str, str] | None = None) -> bytes:
    """The body of a create or an apply. Metadata and the record of who manages what make 200 bytes of it into 700."""
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


async def seed(server: Server, objects: int) -> None:
    """Creates all objects, over several connections at once."""
    numbers = iter(range(objects))

    async def create_some() -> None:
        async with Connection.to(server) as connection:
            for number in numbers:
                await connection.ask("POST", APPS, app(name_of(number), {"team": team_of(number)}))

    await together(create_some() for _ in range(SEEDING_CONNECTIONS))


async def refuse_filled(server: Server) -> None:
    """A peer is somebody's server: nothing of theirs is counted, changed or removed."""
    async with Connection.to(server) as connection:
        listed = orjson.loads(await connection.ask("GET", f"{APPS}?limit=1"))
    if listed["items"]:
        raise Failure(
            f"{server.name} has apps already; remove them (kubectl delete apps --all), or take another server"
        )


async def revision(server: Server) -> int:
    """The newest revision. Every write that has an effect makes one, so it tells whether writes arrived."""
    async with Connection.to(server) as connection:
        listed = orjson.loads(await connection.ask("GET", f"{APPS}?limit=1"))
    return int(listed["metadata"]["resourceVersion"])


async def object_bytes(server: Server) -> int:
    """The size of an object as it is served."""
    async with Connection.to(server) as connection:
        return len(await connection.ask("GET", f"{APPS}/{name_of(0)}"))
