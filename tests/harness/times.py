"""How much CPU time each test takes: `make test-times`.

A plugin of pytest: `pytest -p tests.harness.times --times FILE` adds the CPU seconds and the elapsed seconds of each
test to FILE, and prints a table of the folders and of the files that take most. Elapsed time depends on what else the
machine does; CPU time hardly does, so tests are compared by that.

The CPU time of a test is what its process and all processes below it used from the end of the test before until its own
end: processes that have ended and were waited for, and those that still run, such as a server that several tests share.
Not counted are processes that another process adopted, as those of containers.

FILE also has the number of processes that each test started: `make test` runs the files in which that is none.
"""

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
LISTED_FILES = 40
SECONDS_BETWEEN_LOOKS = 0.3
STARTS_OF_PROCESSES = {"subprocess.Popen", "os.fork", "os.posix_spawn", "tests.fork_program"}
TIMES = "times"
"""The name under which reports, and the output of processes, have them."""
COLLECTION = "collection"
"""The name under which the import of all test files is counted."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--times", metavar="FILE", help="add the CPU time and the elapsed time of each test to this JSON file"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--times"):
        config.pluginmanager.register(Times(config), "times")


@dataclass(frozen=True, slots=True)
class Moment:
    cpu: float
    elapsed: float

    def until(self, later: "Moment") -> list[float]:
        return [later.cpu - self.cpu, later.elapsed - self.elapsed]


class Times:
    def __init__(self, config: pytest.Config) -> None:
        sys.addaudithook(self._audit)
        self._started = 0
        self._config = config
        self._last = Moment(0, time.monotonic())
        self._running = 0.0
        self._looked = 0.0
        self._is_last = False
        self._tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[TIMES] = [*self._since_last(), 0]
        else:
            self._add(COLLECTION, [*self._since_last(), 0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # The report takes them to the process that collects them.
        times = [*self._since_last(look=self._is_last and report.when == "teardown"), self._started]
        setattr(report, TIMES, times)
        self._started = 0
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report.nodeid, getattr(report, TIMES))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self._add(COLLECTION, getattr(node, "workeroutput", {}).get(TIMES, [0.0, 0.0, 0]))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if hasattr(self._config, "workerinput"):
            return
        path = Path(self._config.getoption("--times"))
        path.parent.mkdir(parents=True, exist_ok=True)
        tests = json.loads(path.read_text()) if path.exists() else {}
        collection = self._tests.pop(COLLECTION, [0.0, 0.0, 0])
        tests.update(self._tests)
        path.write_text(json.dumps({key: [round(value, 3) for value in tests[key]] for key in sorted(tests)}, indent=0))
        terminalreporter.write_sep("-", f"CPU time of the tests in {path}")
        for line in format_tables(tests):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"{collection[0]:9.1f} s to collect the tests, in all processes of this run")

    def _audit(self, event: str, arguments: object) -> None:
        if event in STARTS_OF_PROCESSES:
            self._started += 1

    def _since_last(self, *, look: bool = False) -> list[float]:
        """Looks for running processes at the end of a file, and a few times a second: there may be hundreds."""
        if look or time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            self._running = _running_below(os.getpid())
            self._looked = time.monotonic()
        now = Moment(_own_cpu() + self._running, time.monotonic())
        times = self._last.until(now)
        self._last = now
        return times

    def _add(self, name: str, times: Iterable[float]) -> None:
        self._tests[name] = [total + value for total, value in zip(self._tests[name], times, strict=True)]


def format_tables(tests: dict[str, list[float]]) -> list[str]:
    """The folders, and the files that take most, by their CPU time."""
    files = _sum_by(tests, lambda name: name.split("::")[0])
    folders = _sum_by(tests, lambda name: "/".join(name.split("::")[0].split("/")[:2]))
    return [
        f"{'CPU s':>9} {'elapsed s':>9} {'processes':>9} {'tests':>6}",
        *folders,
        "",
        f"the {LISTED_FILES} files that take most:",
        *files[:LISTED_FILES],
        "",
        *_sum_by(tests, lambda _: "all"),
    ]


def _sum_by(tests: dict[str, list[float]], name_of: Callable[[str], str]) -> list[str]:
    """A line for each name, those with most CPU time first."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0, 0])
    for test, times in tests.items():
        sums[name_of(test)] = [total + value for total, value in zip(sums[name_of(test)], (*times, 1), strict=True)]
    return [
        f"{cpu:9.1f} {elapsed:9.1f} {started:9.0f} {count:6.0f} {name}"
        for name, (cpu, elapsed, started, count) in sorted(sums.items(), key=lambda row: -row[1][0])
    ]


def _own_cpu() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def _running_below(pid: int) -> float:
    """The CPU time of the running processes below this one, and of those that they have waited for."""
    children: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            parent, cpu = _read_stat(entry.name)
            children[parent].append((int(entry.name), cpu))
    total = 0.0
    waiting = [pid]
    while waiting:
        for child, cpu in children.pop(waiting.pop(), ()):
            total += cpu
            waiting.append(child)
    return total


def _read_stat(pid: str) -> tuple[int, float]:
    """The parent of a process, and its CPU time with that of the processes that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0, 0.0
    return int(fields[1]), sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_SECOND
