"""Runs one round of wrk, the load generator. It counts only if every request got its response."""

import asyncio
import os
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.failure import Failure
from bench.servers import Server

SCRIPT = Path(__file__).with_name("load.lua")
TIMEOUT_SECONDS = 10
SPARE_SECONDS = 30.0
THREADS = max(1, (os.cpu_count() or 1) // 2)
"""Half of the cores for the load, the others for the server."""
STRIDE = 1_000_000
"""How many numbers each thread has to itself in a round."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. In the path and the body, load.lua replaces `{n}` and `{object}` with numbers."""

    method: str
    path: str
    body: str = ""
    content_type: str = "application/json"

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def success(self) -> int:
        """The status of a success."""
        return 201 if self.method == "POST" else 200


@dataclass(frozen=True, slots=True)
class Load:
    """The load: the number of connections, the seconds, the first number, the number of objects,
    and the minimum size of a response."""

    connections: int
    seconds: int
    first: int
    objects: int
    response_bytes: int
    limit: int = 0
    """The maximum of requests of each thread, after which it stops; 0 for none."""
    bodies: Path | None = None
    """A file with the objects that are updated, one in each line."""
    pause_ms: int = 0
    """The pause of each connection before each request."""
    niceness: int = 0
    """Above 0 for load beside a measurement, which must not wait for a core."""

    @property
    def threads(self) -> int:
        return min(THREADS, self.connections)


class Summary(msgspec.Struct, frozen=True):
    """The report of load.lua."""

    requests: int
    duration_us: int
    bytes: int
    p50_us: int
    p99_us: int
    max_us: int
    refused: int
    broken: int
    late: int


async def run(server: Server, request: Request, load: Load) -> Summary:
    """Runs a round and checks its results."""
    command = ["nice", "-n", str(load.niceness)] if load.niceness else []
    command += ["wrk", "--threads", str(load.threads), "--connections", str(load.connections)]
    command += ["--duration", f"{load.seconds}s", "--timeout", f"{TIMEOUT_SECONDS}s"]
    command += ["--script", str(SCRIPT), server.url]
    environment = os.environ | _build_environment(server, request, load)
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=environment)
    except FileNotFoundError:
        raise Failure("wrk is not installed; install it (Debian: apt-get install wrk)") from None
    try:
        output, errors = await asyncio.wait_for(process.communicate(), load.seconds + SPARE_SECONDS)
    except TimeoutError:
        raise Failure(f"wrk did not end by itself on {request.method} {request.path}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Failure(f"wrk failed: {errors.decode(errors='replace').strip()}")
    summary = msgspec.json.decode(output.splitlines()[-1], type=Summary)
    check_summary(summary, f"{request.method} {request.path} at {server.name}", load.response_bytes)
    return summary


def _build_environment(server: Server, request: Request, load: Load) -> dict[str, str]:
    return {
        "BENCH_METHOD": request.method,
        "BENCH_PATH": server.root + request.path,
        "BENCH_BODY": request.body,
        "BENCH_CONTENT_TYPE": request.content_type,
        "BENCH_AUTHORIZATION": server.headers["authorization"],
        "BENCH_OBJECTS": str(load.objects),
        "BENCH_FIRST": str(load.first),
        "BENCH_STRIDE": str(STRIDE),
        "BENCH_THREADS": str(load.threads),
        "BENCH_LIMIT": str(load.limit),
        "BENCH_BODIES": str(load.bodies or ""),
        "BENCH_PAUSE_MS": str(load.pause_ms),
    }


def check_summary(summary: Summary, what: str, response_bytes: int) -> None:
    """A round with a single error is invalid, because errors are fast."""
    if summary.refused:
        raise Failure(f"{what}: {summary.refused} of {summary.requests} responses were errors")
    if summary.broken or summary.late:
        raise Failure(f"{what}: {summary.broken} connections broke, {summary.late} responses timed out")
    if not summary.requests:
        raise Failure(f"{what}: no response within the round; leave --quick out")
    if summary.bytes < summary.requests * response_bytes:
        short = summary.bytes // summary.requests
        raise Failure(f"{what}: responses have {short} bytes, but {response_bytes} were expected")
