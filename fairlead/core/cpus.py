"""The number of CPUs that this process may use: what its affinity mask and the CPU quota of its cgroup allow."""

import os
from pathlib import Path

CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""Quota and period in microseconds, or `max` without a quota. In a container, this is the file of its own cgroup."""


def count_cpus(cpu_max: Path = CGROUP_CPU_MAX) -> int:
    """At least 1. A quota of one and a half CPUs counts as one."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no such cgroup, or no quota
        return allowed
