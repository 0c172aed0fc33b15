"""Measures one server with different numbers of workers: requests, processor time and memory of all its processes.

    python -m bench.workers --count 1 --count 2 --count 4 [--store postgres://user@host/db?schema=w{n}]

The load runs on the same machine and needs cores, too.
"""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.failure import Failure
from bench.objects import APPS, build_app, create_objects
from bench.processes import command_name, cpu_seconds, list_processes, proportional_memory
from bench.servers import Server, run_fairlead
from bench.wrk import Load, Request, run

CONNECTIONS = 32
SETTLE_SECONDS = 3.0
"""How long a server has to start its workers and to finish what a load has caused."""
GET = Request("GET", f"{APPS}/app-{{object}}")
CREATE = Request("POST", APPS, build_app("made-{n}").decode())
MIB = 1024 * 1024


async def measure_requests(server: Server, request: Request, load: Load) -> tuple[float, float]:
    """Responses per second, and microseconds of processor time per response in all processes."""
    assert server.pid is not None
    processes = list_processes(server.pid)
    before = sum(map(cpu_seconds, processes))
    summary = await run(server, request, load)
    used = sum(map(cpu_seconds, processes)) - before
    return summary.requests / summary.duration_us * 1e6, used / summary.requests * 1e6


def describe_memory(server: Server) -> str:
    """The memory of all processes, and of each."""
    assert server.pid is not None
    sizes = [(command_name(pid), proportional_memory(pid) / MIB) for pid in list_processes(server.pid)]
    return f"{sum(size for _, size in sizes):,.0f} ({', '.join(f'{name} {size:.0f}' for name, size in sizes)})"


async def measure_workers(folder: Path, count: int, store: str, seconds: int, objects: int) -> list[str]:
    async with run_fairlead(folder, store=store.replace("{n}", str(count)), workers=count) as server:
        await asyncio.sleep(SETTLE_SECONDS)
        empty = describe_memory(server)
        await create_objects(server, objects)
        await asyncio.sleep(SETTLE_SECONDS)
        filled = describe_memory(server)
        rate, cpu_us = await measure_requests(server, GET, Load(CONNECTIONS, seconds, 0, objects, 1))
        create_rate, create_us = await measure_requests(
            server, CREATE, Load(CONNECTIONS, seconds, 1_000_000, objects, 1)
        )
    figures = (f"{rate:,.0f}", f"{cpu_us:,.0f} µs", f"{create_rate:,.0f}", f"{create_us:,.0f} µs")
    return [str(count), *figures, empty, filled]


async def build_table(counts: Sequence[int], store: str, seconds: int, objects: int) -> Table:
    memory = ("MiB, empty", f"MiB, {objects:,} objects")
    built = Table("workers", "GET/s", "CPU per GET", "CREATE/s", "CPU per CREATE", *memory)
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        for count in counts:
            folder_of_server = Path(folder, str(count))
            os.mkdir(folder_of_server)
            built.add_row(*await measure_workers(folder_of_server, count, store, seconds, objects))
    return built


def command(
    count: Annotated[list[int] | None, typer.Option("--count", help="Number of workers. Can be repeated.")] = None,
    store: Annotated[str, typer.Option("--store", help="Empty store; {n} in it is the number of workers.")] = "",
    seconds: Annotated[int, typer.Option("--seconds", help="How long each round takes.")] = 5,
    objects: Annotated[int, typer.Option("--objects", help="How many objects the store has.")] = 16_000,
) -> None:
    """Measure a server with different numbers of workers."""
    console = Console(width=int(os.environ.get("COLUMNS", "200")))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            console.print(runner.run(build_table(count or [1, 2, 4], store, seconds, objects)))
        except Failure as failure:
            console.print(f"bench: {failure}", style="red")
            raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(command)
