"""What updates and deletions need before they are sent: the current objects, and objects to delete."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import orjson

from bench import wrk
from bench.connection import Connection
from bench.failure import Failure
from bench.objects import APPS, GROUP, build_app, create_apps
from bench.servers import CEILING, Server
from bench.wrk import Load, Request

DELETIONS_PER_SECOND = 2_500
"""How many objects are created for each second of deletions, at most as many as the server has already. A faster server
ends its round earlier."""


async def prepare_request(connection: Connection, request: Request) -> Request:
    """Prepares a single request, whose placeholders are filled."""
    if request.method == "PUT":
        return replace(request, body=(await connection.request("GET", request.path)).decode())
    if request.method == "DELETE":
        await connection.request("POST", APPS, build_app(request.path.rpartition("/")[2]))
    return request


@asynccontextmanager
async def prepare_load(server: Server, request: Request, load: Load) -> AsyncIterator[Load]:
    """Prepares a round of requests."""
    if request.method == "PUT":
        with tempfile.NamedTemporaryFile(prefix="fairlead-bench-") as file:
            file.writelines(body + b"\n" for body in await _read_bodies(server, request, load))
            file.flush()
            yield replace(load, bodies=Path(file.name))
    elif request.method == "DELETE" and server.name != CEILING:
        yield await _create_deletable(server, request, load)
    else:
        yield load


async def _read_bodies(server: Server, request: Request, load: Load) -> list[bytes]:
    """The objects as they are now. The ceiling has only one, which may be updated by all connections."""
    # One request of each connection is in progress, and wrk discards one.
    needed = load.connections + load.threads
    async with Connection.to(server) as connection:
        if server.name == CEILING:
            return [await connection.request("GET", request.path)] * needed
        app_list = orjson.loads(await connection.request("GET", f"{APPS}?limit={load.objects}"))
    if len(app_list["items"]) < needed:
        raise Failure(f"{server.name} has {len(app_list['items'])} objects, but updates need at least {needed}")
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "App"}
    return [orjson.dumps(kind | item) for item in app_list["items"]]


async def _create_deletable(server: Server, request: Request, load: Load) -> Load:
    """Creates the objects whose numbers the threads will use, and limits the load to them."""
    limit = min(load.seconds * DELETIONS_PER_SECOND, load.objects) // load.threads
    starts = [load.first + thread * wrk.STRIDE + 1 for thread in range(load.threads)]
    name = request.path.rpartition("/")[2]
    await create_apps(
        server,
        (build_app(name.replace("{n}", str(number))) for start in starts for number in range(start, start + limit)),
    )
    return replace(load, limit=limit)
