"""Memory, time and open files of this process, under the names that all Prometheus clients have for them.

Read from Linux's /proc. Where there is none, these are missing and everything else is not.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from fairlead.server.metrics.exposition import COUNTER, GAUGE, Family

PROC = Path("/proc")


def process_families(proc: Path = PROC) -> Iterator[Family]:
    """Blocks for as long as /proc takes, which with many open files is milliseconds: call it in a thread."""
    try:
        # The second field is the name of the program, which may have spaces and parentheses.
        stat = (proc / "self" / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = _boot_time((proc / "stat").read_text(encoding="utf-8"))
        open_files = len(os.listdir(proc / "self" / "fd"))
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    # As proc(5) counts them, utime is 14, stime 15, starttime 22, vsize 23, rss 24; the first one left here is 3.
    cpu, start, virtual, resident = int(stat[11]) + int(stat[12]), int(stat[19]), int(stat[20]), int(stat[21])
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name, type, help, value in (
        ("process_cpu_seconds_total", COUNTER, "Seconds of processor time, the system's included.", cpu / ticks),
        ("process_resident_memory_bytes", GAUGE, "Memory in use.", resident * resource.getpagesize()),
        ("process_virtual_memory_bytes", GAUGE, "Memory reserved.", virtual),
        ("process_start_time_seconds", GAUGE, "When the process began, since 1970.", boot + start / ticks),
        ("process_open_fds", GAUGE, "Open files and connections.", open_files),
        ("process_max_fds", GAUGE, "Most files and connections that may be open.", most_files),
    ):
        yield Family(name, type, help, [("", value)])


def _boot_time(text: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("btime ")), 0)
