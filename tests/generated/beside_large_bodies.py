"""`python -m tests.generated.beside_large_bodies`: what each kind of large body costs another client.

One client sends a body again and again, another one GETs a small object with short pauses. A row has the percentiles of
the latency of these GETs. The first row is the other client alone: what the machine itself adds. On a machine that does
other things, single GETs are slow for other reasons. So a row also has what the server measured itself, in CPU time:
how long a thread held the interpreter, and how long the event loop was blocked (the upper bounds of the buckets of
these histograms; 0 is less than 2 ms and 1 ms).

Nothing here fails: tests check the limits and the mechanisms, and this shows what they amount to.
"""

import argparse
import multiprocessing as mp
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from tests.harness.server_process import CONFIGMAPS, Server, configmap, running_server
from tests.requests.large_bodies import LARGE_REQUESTS, LargeRequest
from tests.requests.large_json import OBJECT

PAUSE_SECONDS = 0.001
MIN_SENT = 3
ALONE = "alone"
SMALL = CONFIGMAPS.rpartition("/")[0]
"""The small object: a namespace."""
HELD, BLOCKED = "fairlead_interpreter_held_seconds", "fairlead_event_loop_blocked_seconds"
HEADER = "      p50      p90      p99      max    held blocked   GETs  sent status"
_PERCENTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    status: str
    sent: int
    latencies: list[float]
    """Sorted, in seconds."""
    held: float
    blocked: float
    """What the server measured, in seconds."""

    def percentile(self, part: float) -> float:
        return self.latencies[min(len(self.latencies) - 1, int(part * len(self.latencies)))] if self.latencies else 0.0

    def __str__(self) -> str:
        columns = "".join(f"{1000 * self.percentile(part):9.1f}" for part in _PERCENTILES)
        measured = f"{1000 * self.held:7.0f} {1000 * self.blocked:7.0f}"
        return f"{columns} {measured} {len(self.latencies):6d} {self.sent:5d} {self.status:>4}  {self.name}"


def main() -> int:
    options = _parse_options()
    names = [name for name in LARGE_REQUESTS if not options.only or any(part in name for part in options.only)]
    folder = Path(tempfile.mkdtemp(prefix="fairlead-large-bodies-"))
    with running_server(folder / "data", workers=1) as server, server.client() as admin:
        admin.post(CONFIGMAPS, json=configmap(OBJECT, large="x" * 100_000)).raise_for_status()
        for number in range(options.rounds):
            print(f"round {number + 1}; milliseconds:\n{HEADER}", flush=True)
            with _running_client(server) as client:
                rows = [_measure(server, admin, client, name, options.seconds) for name in (ALONE, *names)]
            worst = sorted(rows[1:], key=lambda row: (row.held, row.percentile(0.99)), reverse=True)[: options.show]
            print("\nthe highest:" if worst else "", *worst, sep="\n", flush=True)
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated.beside_large_bodies", description=__doc__)
    parser.add_argument("only", nargs="*", help="parts of the names of bodies; without any, all bodies")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds for each body")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--show", type=int, default=25, help="how many rows to repeat, the highest first")
    return parser.parse_args()


@contextmanager
def _running_client(server: Server) -> Iterator[Connection]:
    """The other client, in a process of its own so that it does not wait for the sender. It measures between True and
    False, and then sends what it has measured; None ends it."""
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    client = context.Process(target=_run_client, args=(server.url, server.key, server.ca_file, theirs), daemon=True)
    client.start()
    ours.recv()  # it is connected
    yield ours
    ours.send(None)
    client.join()


def _measure(server: Server, admin: httpx.Client, client: Connection, name: str, seconds: float) -> Row:
    request = LARGE_REQUESTS[name]() if name != ALONE else None
    before = _read_histograms(admin)
    status, sent = _send(server, request, seconds, client)
    latencies, after = sorted(client.recv()), _read_histograms(admin)
    held, blocked = (_find_longest(before[metric], after[metric]) for metric in (HELD, BLOCKED))
    row = Row(name, status, sent, latencies, held, blocked)
    print(row, flush=True)
    return row


def _read_histograms(admin: httpx.Client) -> dict[str, dict[float, float]]:
    """The counts of both histograms by the upper bound of the bucket. They are cumulative."""
    found: dict[str, dict[float, float]] = {HELD: {}, BLOCKED: {}}
    page = admin.get("/metrics", params={"name[]": [HELD, BLOCKED]}).raise_for_status().text
    for metric, bound, count in re.findall(r'^(\w+)_bucket\{le="([^"]+)"\} (\S+)$', page, re.MULTILINE):
        found[metric][float(bound)] = float(count)
    return found


def _find_longest(before: dict[float, float], after: dict[float, float]) -> float:
    """The upper bound of the highest bucket that has new samples, without the lowest bucket."""
    bounds = sorted(after)
    added = [after[bound] - before[bound] for bound in bounds]
    return max((bounds[at] for at in range(1, len(bounds)) if added[at] > added[at - 1]), default=0.0)


def _send(server: Server, request: LargeRequest | None, seconds: float, client: Connection) -> tuple[str, int]:
    """Sends the request again and again while the client measures. The first one is not measured."""
    sent, status = 0, ""
    with server.connect("http/1.1", timeout=60.0) as connection:
        message = b"" if request is None else _build_head(server, request) + request.body
        if request is not None:
            connection.sendall(message)
            status = _read_response(connection)
        client.send(True)
        start = time.monotonic()
        while time.monotonic() - start < seconds or (request is not None and sent < MIN_SENT):
            if request is None:
                time.sleep(0.01)
                continue
            connection.sendall(message)
            status = _read_response(connection)
            sent += 1
        client.send(False)
    return status, sent


def _build_head(server: Server, request: LargeRequest) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.key}"]
    lines += [f"Content-Type: {request.media_type}", f"Content-Length: {len(request.body)}", "", ""]
    return "\r\n".join(lines).encode()


def _read_response(connection: socket.socket) -> str:
    """Reads one response with a Content-Length, and returns its status."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    remaining = int(fields[b"content-length"]) - len(body)
    while remaining > 0:
        remaining -= len(_receive(connection))
    return head.split(b" ")[1].decode()


def _receive(connection: socket.socket) -> bytes:
    received = connection.recv(256 * 1024)
    if not received:
        raise ConnectionError("the server has closed the connection")
    return received


def _run_client(url: str, key: str, ca_file: str, control: Connection) -> None:
    server = Server(None, url, key, ca_file, Path())  # type: ignore[arg-type] # only its address is used
    request = f"GET {SMALL} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with server.connect("http/1.1", timeout=60.0) as connection:
        control.send(True)
        while control.recv():
            control.send(list(_measure_gets(connection, request, control)))


def _measure_gets(connection: socket.socket, request: bytes, control: Connection) -> Iterator[float]:
    """The latencies until there is a message, which is to stop."""
    while not control.poll():
        start = time.perf_counter()
        connection.sendall(request)
        _read_response(connection)
        yield time.perf_counter() - start
        time.sleep(PAUSE_SECONDS)
    control.recv()


if __name__ == "__main__":
    sys.exit(main())
