"""The processes of one server: processor time and memory of all of them together."""

import os
from pathlib import Path


def list_processes(pid: int) -> list[int]:
    """A process and its children, in the order in which they were started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in list_processes(int(child)))]


def cpu_seconds(pid: int) -> float:
    """Processor time used so far, by all threads."""
    # The command's name is in parentheses and may hold spaces; what follows it does not.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def proportional_memory(pid: int) -> int:
    """Resident memory in bytes (PSS): pages that several processes share are divided among them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def command_name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
