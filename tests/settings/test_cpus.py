"""CPUs that the process may use."""

import os
from pathlib import Path

import pytest

from fairlead.settings.declarations import count_cpus


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("max 100000\n", 4),
        ("200000 100000\n", 2),
        ("150000 100000\n", 1),
        ("50000 100000\n", 1),
        ("800000 100000\n", 4),
        ("unreadable\n", 4),
    ],
)
def test_a_cpu_quota_limits_the_number_of_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    (tmp_path / "cpu.max").write_text(content)
    assert count_cpus(tmp_path / "cpu.max") == expected


def test_without_a_cgroup_all_cpus_of_the_affinity_mask_count(tmp_path: Path) -> None:
    assert count_cpus(tmp_path / "missing") == len(os.sched_getaffinity(0))
