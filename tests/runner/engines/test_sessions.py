"""Sessions that end while podman is still starting their process. A shell stands for podman."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fairlead.runner.engines import process_trees, sessions
from fairlead.runner.engines.devcontainer.isolation.holder import PYTHON
from fairlead.runner.engines.measurement import MAX_THREADS, ProcessSample, Scans, read_start_ticks
from fairlead.runner.engines.process_trees import MARK, EndRequests, MarkedProcesses, Members, read_mark, send_to
from fairlead.runner.engines.sessions import end_trees, find_session, new_mark, request_end, start_session
from tests.harness.eventually import eventually
from tests.runner.harness.processes import find_marked, list_pids, read_running


def starting_slowly(mark: str) -> list[str]:
    """Starts a process with the mark after a while, and does not end it when it is killed itself."""
    return ["/bin/sh", "-c", f"sleep 0.5; env {MARK}={mark} sleep 1000 & wait"]


async def test_a_process_that_starts_after_the_kill_is_killed_too() -> None:
    mark = new_mark("uid-of-sessions")
    session = await start_session(starting_slowly(mark), find_session(mark, list_pids), {"PATH": os.defpath})
    assert find_marked(mark) == []
    await session.kill()
    assert session.podman.returncode is not None
    assert find_marked(mark) == []


async def test_a_caller_that_is_cancelled_while_a_session_starts_leaves_no_process() -> None:
    mark = new_mark("uid-of-sessions")
    starting = asyncio.create_task(
        start_session(starting_slowly(mark), find_session(mark, list_pids), {"PATH": os.defpath})
    )
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert find_marked(mark) == []


async def test_a_process_inherits_the_given_descriptors() -> None:
    for size in (None, (80, 24)):
        descriptor = os.memfd_create("given", 0)
        os.write(descriptor, b"exit 7")
        os.lseek(descriptor, 0, os.SEEK_SET)
        mark, environment = new_mark("uid-of-sessions"), {"PATH": os.defpath}
        command = ["/bin/sh", f"/proc/self/fd/{descriptor}"]
        session = await start_session(command, find_session(mark, list_pids), environment, size, (descriptor,))
        os.close(descriptor)
        assert await session.wait() == 7
        await session.kill()


SET_UP_LATE = """
import os, termios, time, tty
print("started", flush=True)
time.sleep(0.3)
tty.setraw(0, termios.TCSANOW)
print(os.read(0, 100).hex(), flush=True)
"""
"""As podman sets up the terminal that it has, a moment after its start."""


async def test_what_arrives_before_podman_has_set_up_its_terminal_is_passed_on_as_it_is() -> None:
    mark = new_mark("uid-of-sessions")
    session = await start_session(
        [PYTHON, "-c", SET_UP_LATE],
        find_session(mark, list_pids),
        {"PATH": os.defpath},
        size=(80, 24),
        is_passed_on=True,
    )
    try:
        assert (await session.stdout.read(100)).split() == [b"started"]
        await session.stdin.write(b"\x03a\r")
        await session.stdin.close()
        assert (await session.stdout.read(100)).split() == [b"03610d04"]
    finally:
        await session.kill()


DECLARE = """
import ctypes, struct, sys
library = ctypes.CDLL(None, use_errno=True)
library.mmap.restype = ctypes.c_void_p
size = 1 << 36
start = library.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
fields = [0, 0, 0, *open("/proc/self/stat").read().rpartition(")")[2].split()]
code, end_code, stack = map(int, fields[26:29])
data, end_data, heap, arguments, end_arguments = map(int, fields[45:50])
places = (code, end_code, data, end_data, heap, heap, stack, arguments, end_arguments, start, start + size)
declared = struct.pack("=12QII", *places, 0, 0, 0xFFFFFFFF)
print(library.prctl(35, 14, declared, len(declared), 0), flush=True)
sys.stdin.read()
"""
"""PR_SET_MM_MAP, which needs no privilege: 64 GiB of zeros become the environment."""


def test_an_environment_without_end_is_not_read_to_its_end() -> None:
    with subprocess.Popen([PYTHON, "-c", DECLARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"0\n"
        limits = resource.getrlimit(resource.RLIMIT_AS)
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), limits[1]))
            assert read_mark(process.pid) == ""
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
            process.stdin.close()


def test_an_environment_of_very_many_variables_is_read_quickly() -> None:
    """All processes of the machine are looked at, and each of them could have such an environment."""
    environment = {f"{number:x}": "" for number in range(60_000)}
    with subprocess.Popen(["/bin/sleep", "1000"], env=environment) as process:
        try:
            began = time.thread_time()
            for _ in range(50):
                assert read_mark(process.pid) == ""
            assert time.thread_time() - began < 0.1
        finally:
            process.kill()


# --- searches ---------------------------------------------------------------------------------------------------------


def find_listed(list_pids: Callable[[], list[int]], uid: str = "uid-of-sessions") -> MarkedProcesses:
    """All that are listed, whatever marks they have."""
    return MarkedProcesses(uid, list_pids, lambda mark: True, has_detached=True)


async def test_the_runner_goes_on_while_processes_are_looked_for() -> None:
    def list_slowly() -> list[int]:
        time.sleep(0.25)
        return []

    ending = asyncio.create_task(end_trees(find_listed(list_slowly)))
    turns = 0
    while not ending.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 5


async def test_the_runner_goes_on_while_very_many_processes_are_requested_to_end() -> None:
    def list_slowly() -> list[int]:
        began = time.thread_time()
        while time.thread_time() - began < 0.15:
            pass
        return []

    requests = EndRequests(list_slowly, lambda members: list(members.values()))
    ending = asyncio.create_task(request_end("uid-of-sessions", requests, seconds=30))
    longest = 0.0
    last = time.thread_time()
    while not ending.done():
        await asyncio.sleep(0.001)
        now = time.thread_time()
        longest = max(longest, now - last)
        last = now
    assert longest < 0.1


async def test_processes_get_one_request_to_end_each_with_the_signal_that_they_heed() -> None:
    mark = new_mark("uid-of-sessions")
    script = "trap 'echo TERM; exit 3' TERM; echo on; while :; do sleep 0.05; done"
    processes = find_session(mark, list_pids)
    session = await start_session(["/bin/sh", "-c", script], processes, {"PATH": os.defpath, MARK: mark})
    assert await session.stdout.read(100) == b"on\n"

    def select(members: Members) -> list[ProcessSample]:
        return [each for each in members.values() if read_mark(each.pid) == mark]

    await request_end("uid-of-sessions", EndRequests(list_pids, select), seconds=10)
    assert await session.wait() == 3
    assert await session.stdout.read(100) == b"TERM\n"
    await session.kill()


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        yield process
        process.kill()


FORKER = """
import os, signal, sys, time
environment = {"FAIRLEAD_SESSION": sys.argv[1]}
to_null = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
started = []
print("on", flush=True)
while True:
    started.append(os.posix_spawn("/bin/sleep", ["sleep", "1000"], environment, file_actions=to_null))
    time.sleep(0.005)
    if len(started) > 200:
        ended = started.pop(0)
        os.kill(ended, signal.SIGKILL)
        os.waitpid(ended, 0)
"""
"""Has no mark itself, and keeps starting processes that have one. It kills those that were stopped, too."""


@pytest.fixture
def forkers() -> Iterator[list[str]]:
    """The marks of what runs in as many workspaces as there are threads for searches."""
    marks = [new_mark(f"hostile-{number}") for number in range(MAX_THREADS)]
    processes = [subprocess.Popen([PYTHON, "-c", FORKER, mark], stdout=subprocess.PIPE) for mark in marks]
    for each in processes:
        assert each.stdout is not None and each.stdout.readline() == b"on\n"
    yield marks
    are_running = [each.poll() is None for each in processes]
    for each in processes:
        each.kill()
        each.communicate()
    for mark in marks:
        for pid in find_marked(mark):
            os.kill(pid, signal.SIGKILL)
    assert all(are_running)


async def test_a_workspace_that_keeps_starting_processes_holds_up_neither_its_sessions_nor_those_of_others(
    forkers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "KILL_SECONDS", 1.5)
    hostile = [asyncio.create_task(end_trees(find_session(mark, list_pids))) for mark in forkers]
    await asyncio.sleep(0.1)
    mark = new_mark("uid-of-sessions")
    session = await start_session(starting_slowly(mark), find_session(mark, list_pids), {"PATH": os.defpath})
    await eventually(lambda: find_marked(mark))
    async with asyncio.timeout(15):
        await session.kill()
        assert find_marked(mark) == []
        await asyncio.gather(*hostile)


async def test_processes_of_a_session_that_keep_starting_others_end() -> None:
    mark = new_mark("uid-of-sessions")
    fork = "while :; do /bin/sleep 1000 & /bin/sleep 0.01; done"
    processes = find_session(mark, list_pids)
    session = await start_session(["/bin/sh", "-c", fork], processes, {"PATH": os.defpath, MARK: mark})
    await eventually(lambda: len(find_marked(mark)) > 5)
    await session.kill()
    assert find_marked(mark) == []


@pytest.fixture
def outsider() -> "Iterator[tuple[str, subprocess.Popen[bytes]]]":
    """A mark, and a process of the machine that has it."""
    mark = new_mark("uid-of-sessions")
    with subprocess.Popen(["/bin/sleep", "1000"], env={MARK: mark}) as process:
        yield mark, process
        process.kill()


async def test_only_processes_of_the_workspace_are_killed_whatever_mark_others_have(
    outsider: "tuple[str, subprocess.Popen[bytes]]",
) -> None:
    mark, process = outsider
    await eventually(lambda: find_marked(mark))
    assert not await end_trees(find_session(mark, lambda: []))
    await request_end("uid-of-sessions", EndRequests(lambda: [], lambda members: list(members.values())), seconds=1)
    assert process.poll() is None


async def test_a_process_that_got_the_pid_of_one_of_the_workspace_is_not_signalled(
    child: "subprocess.Popen[bytes]",
) -> None:
    """It is listed first, and not any more when it was looked at: then another one may have had its pid."""
    lists = [[child.pid], [], [child.pid], []]
    assert not await end_trees(find_listed(lambda: lists.pop(0) if lists else []))
    await request_end(
        "uid-of-sessions",
        EndRequests(lambda: lists.pop(0) if lists else [], lambda members: list(members.values())),
        seconds=1,
    )
    assert child.poll() is None


RECYCLE = """
import signal, subprocess, sys, time
from fairlead.runner.engines.measurement import read_process
from fairlead.runner.engines.process_trees import send
first = subprocess.Popen(["/bin/sleep", "1000"])
found = read_process(first.pid)
first.kill()
first.wait()
time.sleep(0.05)
with open("/proc/sys/kernel/ns_last_pid", "w") as file:
    file.write(str(first.pid - 1))
second = subprocess.Popen(["/bin/sleep", "1000"])
assert second.pid == first.pid, "the pid was not given again"
send(found, signal.SIGKILL)
time.sleep(0.2)
assert second.poll() is None, "another process was killed"
again = read_process(second.pid)
send(again, signal.SIGKILL)
assert second.wait(10) == -9
"""


def test_a_signal_for_a_process_that_has_ended_does_not_reach_the_next_one_with_its_pid() -> None:
    if os.geteuid() != 0:
        pytest.skip("a pid namespace needs root")
    command = ["/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", RECYCLE]
    subprocess.run(command, check=True, timeout=60)


def test_a_pid_that_a_thread_has_by_now_gets_no_signal() -> None:
    """The kernel opens no descriptor for it, with an error of its own."""
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        send_to(thread.native_id, read_start_ticks(thread.native_id), signal.SIGCONT)
    finally:
        is_over.set()
        thread.join()


async def test_a_search_that_fails_leaves_neither_podman_nor_descriptors() -> None:
    def fail() -> list[int]:
        raise OSError("no such control group")

    session = await start_session(["/bin/sleep", "1000"], find_listed(fail), {"PATH": os.defpath})
    with pytest.raises(OSError, match="no such control group"):
        await session.kill()
    assert session.podman.returncode == -signal.SIGKILL
    assert [each.descriptor for each in (session.stdin, session.stdout, session.stderr)] == [-1, -1, -1]


def test_the_rounds_of_a_search_end_in_time_and_leave_nothing_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round finds another process, and takes long, as with thousands of them."""
    sent: dict[int, list[signal.Signals]] = {}
    monkeypatch.setattr(process_trees, "send", lambda each, number: sent.setdefault(each.pid, []).append(number))
    known = read_running(os.getpid())
    chain = [replace(known, pid=1_000_000 + number, parent=999_999 + number) for number in range(100)]
    monkeypatch.setattr(process_trees, "read_mark", lambda pid: "wanted" if pid == chain[0].pid else "")
    shown = 1

    def read_slowly(list_pids: Callable[[], list[int]]) -> dict[int, ProcessSample]:
        nonlocal shown
        time.sleep(0.2)
        shown += 1
        return {each.pid: each for each in chain[:shown]}

    monkeypatch.setattr(process_trees, "read_members", read_slowly)
    wanted = MarkedProcesses("uid-of-sessions", lambda: [], lambda mark: mark == "wanted", has_detached=True)
    began = time.monotonic()
    assert wanted.kill()
    assert time.monotonic() - began < 2.5
    assert len(sent) >= 2
    assert all(signals[-1] == signal.SIGKILL for signals in sent.values())


def test_a_search_ends_in_time_also_if_each_process_takes_long(
    child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for_mark(mark: str) -> bool:
        time.sleep(0.05)
        return False

    monkeypatch.setattr(process_trees, "SEARCH_SECONDS", 0.2)
    everything = [child.pid, os.getpid(), os.getppid(), *list_pids()]
    began = time.monotonic()
    assert MarkedProcesses("uid-of-sessions", lambda: everything, wait_for_mark).kill()  # there may be more
    assert time.monotonic() - began < 10


async def test_what_a_search_does_not_come_to_is_found_by_the_next(
    child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as among processes with large environments."""
    monkeypatch.setattr(process_trees, "SEARCH_SECONDS", 0.2)
    monkeypatch.setattr(sessions, "KILL_SECONDS", 20.0)
    others = [pid for pid in list_pids() if pid != child.pid][:20]

    def read_slowly(pid: int) -> str:
        time.sleep(0.05)
        return "wanted" if pid == child.pid else ""

    monkeypatch.setattr(process_trees, "read_mark", read_slowly)
    wanted = MarkedProcesses(
        "uid-of-sessions", lambda: [*others, child.pid], lambda mark: mark == "wanted", has_detached=True
    )
    ending = asyncio.create_task(end_trees(wanted))
    assert await asyncio.to_thread(child.wait, 30) == -9
    ending.cancel()


async def test_a_process_that_does_not_end_is_not_waited_for_without_end(
    child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that a workspace has frozen. Here, it is one that is reported to be there still."""
    known = read_running(child.pid)
    monkeypatch.setattr(sessions, "KILL_SECONDS", 2.0)
    monkeypatch.setattr(process_trees, "read_process", lambda pid: known)
    async with asyncio.timeout(30):
        assert await end_trees(find_listed(lambda: [child.pid]))
    assert child.wait() == -9


async def test_a_scan_begins_after_those_of_the_workspace_before_it_and_does_not_wait_for_others() -> None:
    scans: Scans[str] = Scans()
    order: list[str] = []

    def scan(name: str, seconds: float) -> str:
        time.sleep(seconds)
        order.append(name)
        return name

    names = ["first", "second", "third"]
    own = [asyncio.create_task(scans.run_after("a", partial(scan, name, 0.2))) for name in names]
    await asyncio.sleep(0)
    assert await scans.run_after("b", partial(scan, "other", 0.0)) == "other"
    assert await asyncio.gather(*own) == names
    assert order == ["other", *names]
