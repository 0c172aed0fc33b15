"""The processes of a server with several workers, found through its log, and a server that is given several."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import replicas
from tests.harness.eventually import wait_until
from tests.harness.replicas import read_log, store_address
from tests.harness.server_process import Server, running_server

STORES = ("sqlite", *replicas.STORES)
OWNER, WORKER_1, WORKER_2 = "owner", "worker-1", "worker-2"


@contextmanager
def running_workers(
    folder: Path, store: str = "sqlite", count: int = 2, program: str = "fairlead", **variables: str | int
) -> Iterator[Server]:
    """A server all of whose workers are ready."""
    if store != "sqlite":
        variables["store"] = store_address(store, folder) if store in ("postgres", "etcd") else store
    with running_server(folder, program, workers=count, log_level="info", log_format="json", **variables) as server:
        wait_until(lambda: count_events(server, "a process is ready") > count)
        yield server


def find_pids(server: Server) -> dict[str, int]:
    """The newest process of each name that has become ready: the owner and the workers."""
    return {line["name"]: line["pid"] for line in read_log(server) if line["event"] == "a process is ready"}


def count_events(server: Server, event: str) -> int:
    return sum(line["event"] == event for line in read_log(server))


def is_running(pid: int) -> bool:
    """Whether the process exists and is not just waiting to be reaped."""
    try:
        return _read_state(Path(f"/proc/{pid}")) not in "ZX"
    except FileNotFoundError:
        return False


def suspend(pid: int) -> None:
    """Stops all threads of a process, and waits until they have stopped: on a busy machine, some run for longer than
    the one that gets the signal."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_suspended(pid))


def _is_suspended(pid: int) -> bool:
    try:
        return {_read_state(each) for each in Path(f"/proc/{pid}/task").iterdir()} == {"T"}
    except (FileNotFoundError, ProcessLookupError):  # of a thread that has just ended
        return False


def _read_state(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[0]


def kill_process(server: Server, name: str) -> None:
    """Kills a process, and waits until another one in its place is ready."""
    before = find_pids(server)
    os.kill(before[name], signal.SIGKILL)
    ended = before.items() if name == OWNER else {name: before[name]}.items()
    wait_until(lambda: not ended & find_pids(server).items(), what=f"{ended} are replaced")
