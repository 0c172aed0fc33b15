"""Measures the cost of a request: how long it blocks the event loop, and how much memory the server takes for it.

Both are read from a real server process: the first from its `/metrics`, in processor time of the loop's thread, so that
a machine that is busy with other things does not count; the second from the system.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from fairlead.server.http.event_loop_watchdog import MAX_BLOCKED_SECONDS
from tests.cost.cases import Case
from tests.harness.server_process import Server

BLOCKED_METRIC, LONGEST_METRIC = "fairlead_event_loop_blocked_seconds", "fairlead_event_loop_blocked_max_seconds"

REPEATS = 2


@dataclass(frozen=True, slots=True)
class Blocks:
    """The metrics so far: the longest block, and the number of blocks up to each bound."""

    longest: float
    counts: dict[float, int]


@dataclass(frozen=True, slots=True)
class Cost:
    case: Case
    status: int
    blocked_seconds: float
    """Seconds; exact for the longest of all so far, otherwise the upper bound of the histogram's bucket."""
    memory: int
    """Bytes of the peak above what was in use before."""

    def __str__(self) -> str:
        sizes = f"{len(self.case.body):>9,} bytes  {self.memory / 2**20:4.0f} MiB"
        return f"{1000 * self.blocked_seconds:7.1f} ms  {sizes}  {self.status}  {self.case.name}"


class Meter:
    """Sends requests one after the other and measures the cost of each."""

    def __init__(self, server: Server, client: httpx.Client) -> None:
        self._client = client
        self._process = Path(f"/proc/{server.process.pid}")
        self._blocks = self._read_metrics()

    def measure(self, case: Case) -> Cost:
        """Measures a request. One that blocked the loop for too long is sent again: what the request itself causes
        happens every time, but a page fault or a full garbage collection does not."""
        cost = self._measure_once(case)
        for _ in range(REPEATS if case.is_repeatable else 0):
            if cost.blocked_seconds > MAX_BLOCKED_SECONDS:
                repeated = self._measure_once(case)
                cost = replace(
                    cost,
                    blocked_seconds=min(cost.blocked_seconds, repeated.blocked_seconds),
                    memory=max(cost.memory, repeated.memory),
                )
        return cost

    def _measure_once(self, case: Case) -> Cost:
        (self._process / "clear_refs").write_text("5")  # resets the peak
        before = self._read_memory("VmRSS")
        headers = {"Content-Type": case.media_type, **case.headers} if case.media_type else case.headers
        with self._client.stream(case.method, case.path, content=case.body, headers=headers) as response:
            for _ in response.iter_raw():
                if case.is_endless:
                    break
        memory = max(0, self._read_memory("VmHWM") - before)
        earlier, self._blocks = self._blocks, self._read_metrics()
        return Cost(case, response.status_code, find_longest_between(earlier, self._blocks), memory)

    def _read_metrics(self) -> Blocks:
        longest, counts = 0.0, dict[float, int]()
        page = self._client.get("/metrics", params={"name[]": [BLOCKED_METRIC, LONGEST_METRIC]})
        for line in page.raise_for_status().text.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith(f"{BLOCKED_METRIC}_bucket"):
                counts[float(name.split('"')[1])] = int(float(value))
            elif name == LONGEST_METRIC:
                longest = float(value)
        assert counts, "the server has no metric of its blocked event loop"
        return Blocks(longest, counts)

    def _read_memory(self, name: str) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def find_longest_between(earlier: Blocks, later: Blocks) -> float:
    """The longest block between the two measurements."""
    if later.longest > earlier.longest:
        return later.longest
    added = {bound: count - earlier.counts[bound] for bound, count in later.counts.items()}
    bounds = sorted(added)
    above = [0, *(added[bound] for bound in bounds)]
    return max((bound for bound, less in zip(bounds, above, strict=False) if added[bound] > less), default=0.0)
