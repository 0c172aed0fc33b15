"""Measures one and two replicas on a shared store, and one server on SQLite, in one run.

    python -m bench.replicas --store postgres://user@host/db --store etcd://host:2379/bench

The stores must be empty ones, as they are written to. Replicas run on this machine and share its cores with the load,
so two of them are faster than one only where one leaves a core idle.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.failure import Failure
from bench.objects import APPS, build_app, create_objects
from bench.servers import Server, run_fairlead
from bench.wrk import Load, Request, run

SECRETS = ("pepper.key", "encryption.keys")
OBJECTS, CONNECTIONS = 1_000, 32
GET = Request("GET", f"{APPS}/app-{{object}}")
CREATE = Request("POST", APPS, build_app("made-{n}").decode())


@asynccontextmanager
async def run_replicas(folder: Path, store: str, count: int) -> AsyncIterator[Sequence[Server]]:
    """Runs this many servers on one store, with the same secrets. The first one creates the key for all."""
    async with AsyncExitStack() as stack:
        servers: list[Server] = []
        for number in range(count):
            folder_of_replica = folder / f"replica-{number}"
            (folder_of_replica / "data").mkdir(parents=True)
            for secret in SECRETS if number else ():
                shutil.copy(folder / "replica-0" / "data" / secret, folder_of_replica / "data" / secret)
            started = await stack.enter_async_context(run_fairlead(folder_of_replica, store=store))
            servers.append(replace(started, headers=servers[0].headers) if servers else started)
        yield servers


async def measure_rate(servers: Sequence[Server], request: Request, seconds: int, first: int) -> float:
    """Responses per second of all replicas together, each with its share of the connections."""
    share = CONNECTIONS // len(servers)
    loads = [Load(share, seconds, first + 20_000_000 * number, OBJECTS, 1) for number in range(len(servers))]
    rounds = await asyncio.gather(*(run(server, request, load) for server, load in zip(servers, loads, strict=True)))
    return sum(each.requests / each.duration_us * 1e6 for each in rounds)


async def measure_store(folder: Path, store: str, count: int, seconds: int) -> tuple[float, float]:
    async with run_replicas(folder, store, count) as servers:
        await create_objects(servers[0], OBJECTS)
        return await measure_rate(servers, GET, seconds, 0), await measure_rate(servers, CREATE, seconds, 1_000_000)


async def build_table(stores: Sequence[str], seconds: int) -> Table:
    built = Table("store", "replicas", "GET/s", "CREATE/s")
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        rows = [("sqlite", "", 1), *((store.partition(":")[0], store, count) for store in stores for count in (1, 2))]
        for name, store, count in rows:
            # Another schema or prefix each time, so that every row starts with an empty store.
            folder_of_replica = store.replace("{n}", f"r{count}")
            get_rate, create_rate = await measure_store(
                Path(folder) / f"{name}-{count}", folder_of_replica, count, seconds
            )
            built.add_row(name, str(count), f"{get_rate:,.0f}", f"{create_rate:,.0f}")
    return built


def command(
    store: Annotated[
        list[str], typer.Option("--store", help="Address of an empty store; {n} in it is another name for each row.")
    ],
    seconds: Annotated[int, typer.Option("--seconds", help="How long each round takes.")] = 5,
) -> None:
    """Measure one and two replicas on shared stores, beside SQLite."""
    console = Console(width=int(os.environ.get("COLUMNS", "100")))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            console.print(runner.run(build_table(store, seconds)))
        except Failure as failure:
            console.print(f"bench: {failure}", style="red")
            raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(command)
