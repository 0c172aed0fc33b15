"""What one request costs everybody else: how long it holds the event loop, and how much memory the server takes for it.

Both are read from a real server process: the first from its `/metrics`, in processor time of the loop's thread, so that
a machine that is busy with other things does not count; the second from the system.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from fairlead.server.http.event_loop_watchdog import MAX_BLOCKED_SECONDS
from tests.cost.cases import Case
from tests.harness.server_process import Server

HOLDS, LONGEST = "fairlead_event_loop_blocked_seconds", "fairlead_event_loop_blocked_max_seconds"

REPEATED = 2


@dataclass(frozen=True, slots=True)
class Holds:
    """What was measured so far: the longest hold, and how many there were up to each bound."""

    longest: float
    counts: dict[float, int]


@dataclass(frozen=True, slots=True)
class Cost:
    case: Case
    status: int
    hold: float
    """Seconds; exact for the longest of all so far, otherwise the upper bound of the histogram's bucket."""
    memory: int
    """Bytes of the peak above what was in use before."""

    def __str__(self) -> str:
        sizes = f"{len(self.case.body):>9,} bytes  {self.memory / 2**20:4.0f} MiB"
        return f"{1000 * self.hold:7.1f} ms  {sizes}  {self.status}  {self.case.name}"


class Meter:
    """Sends one request after the other, and says what each has cost."""

    def __init__(self, server: Server, client: httpx.Client) -> None:
        self._client = client
        self._process = Path(f"/proc/{server.process.pid}")
        self._holds = self._read()

    def measure(self, case: Case) -> Cost:
        """What a request costs. One that held the loop for too long is sent again: what is the request's own fault
        comes every time, and a page fault or a full round of the garbage collector does not."""
        cost = self._measure_once(case)
        for _ in range(REPEATED if case.is_repeatable else 0):
            if cost.hold > MAX_BLOCKED_SECONDS:
                again = self._measure_once(case)
                cost = replace(cost, hold=min(cost.hold, again.hold), memory=max(cost.memory, again.memory))
        return cost

    def _measure_once(self, case: Case) -> Cost:
        (self._process / "clear_refs").write_text("5")  # the peak begins anew
        before = self._memory("VmRSS")
        headers = {"Content-Type": case.media_type, **case.headers} if case.media_type else case.headers
        with self._client.stream(case.method, case.path, content=case.body, headers=headers) as answer:
            for _ in answer.iter_raw():
                if case.goes_on:
                    break
        memory = max(0, self._memory("VmHWM") - before)
        earlier, self._holds = self._holds, self._read()
        return Cost(case, answer.status_code, longest_between(earlier, self._holds), memory)

    def _read(self) -> Holds:
        longest, counts = 0.0, dict[float, int]()
        page = self._client.get("/metrics", params={"name[]": [HOLDS, LONGEST]})
        for line in page.raise_for_status().text.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith(f"{HOLDS}_bucket"):
                counts[float(name.split('"')[1])] = int(float(value))
            elif name == LONGEST:
                longest = float(value)
        assert counts, "the server does not tell how long its event loop was blocked"
        return Holds(longest, counts)

    def _memory(self, name: str) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def longest_between(earlier: Holds, later: Holds) -> float:
    """The longest hold that the later figures have and the earlier ones had not."""
    if later.longest > earlier.longest:
        return later.longest
    added = {bound: count - earlier.counts[bound] for bound, count in later.counts.items()}
    bounds = sorted(added)
    above = [0, *(added[bound] for bound in bounds)]
    return max((bound for bound, less in zip(bounds, above, strict=False) if added[bound] > less), default=0.0)
