"""Processes of the machine, as tests look at them from outside."""

import os

from fairlead.runner.engines.measurement import ProcessSample, read_process
from fairlead.runner.engines.process_trees import TimeLimit, find_trees, read_mark, read_members


def list_pids() -> list[int]:
    """All of the machine."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def find_marked(mark: str) -> list[int]:
    return [pid for pid in list_pids() if read_mark(pid) == mark]


def find_tree(root: int) -> set[int]:
    """The process and all that descend from it."""
    members = read_members(list_pids, TimeLimit(float("inf")))
    roots = [members[root]] if root in members else []
    return {each.pid for each in find_trees(roots, members)}


def read_running(pid: int) -> ProcessSample:
    """A process that is expected to run."""
    found = read_process(pid)
    assert found is not None, f"process {pid} has ended"
    return found
