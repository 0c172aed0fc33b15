"""The objects that the server is filled with: apps of about 700 bytes each, as they are served."""

import orjson

from bench.connection import Connection
from bench.servers import Server
from bench.together import together

APPS = "/kubernetes/management/apis/management.service.sh/v1/apps"
OBJECTS = 10_000
TEAMS = 100
"""Each of these labels is on as many objects as the others."""

SEEDING_CONNECTIONS = 16


def name_of(number: int) -> str:
    return f"app-{number:05d}"


def app(name: str, team: int = 0) -> bytes:
    """The body of a create. Metadata and the record of who manages which field make 200 bytes of it into 700."""
    return orjson.dumps(
        {
            "apiVersion": "management.service.sh/v1",
            "kind": "App",
            "metadata": {"name": name, "labels": {"team": f"team-{team:02d}"}},
            "spec": {
                "displayName": "Ingress NGINX",
                "recommendedApp": ["cluster"],
                "config": {"chart": {"name": "ingress-nginx", "repoURL": "https://charts.example.com"}},
            },
        }
    )


async def seed(server: Server) -> None:
    """Creates all objects, over several connections at once."""
    numbers = iter(range(OBJECTS))

    async def create_some() -> None:
        async with Connection.to(server) as connection:
            for number in numbers:
                await connection.ask("POST", APPS, app(name_of(number), number % TEAMS))

    await together(create_some() for _ in range(SEEDING_CONNECTIONS))


async def revision(connection: Connection) -> int:
    """The newest revision. Every write that has an effect makes one, so it tells whether writes arrived."""
    listed = orjson.loads(await connection.ask("GET", f"{APPS}?limit=1"))
    return int(listed["metadata"]["resourceVersion"])


async def count(connection: Connection) -> int:
    listed = orjson.loads(await connection.ask("GET", f"{APPS}?limit=1"))
    return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))
