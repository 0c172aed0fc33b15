"""Under CI=true nothing is skipped: a skipped test is a failed one there, with its reason.

A laptop may lack a database, or the right to mount a small disk. CI is set up to have everything, so a skip in it is a
gap that would otherwise grow without anyone noticing. That holds for what needs root or a feature of the kernel, too.
`tests/conftest.py` imports these hooks.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

OPENING = "skipped, and under CI=true nothing may be: "


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of a single test: its marks, its fixtures and its body."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _is_ci():
        report.outcome, report.longrepr = "failed", OPENING + _find_reason(report.longrepr)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of a whole file, which may skip itself while it is imported."""
    report = yield
    if report.skipped and _is_ci():
        report.outcome, report.longrepr = "failed", OPENING + _find_reason(report.longrepr)
    return report


def _is_ci() -> bool:
    return os.environ.get("CI") == "true"


def _find_reason(told: Any) -> str:
    """pytest keeps a skip as the file, the line and the reason."""
    reason = told[2] if isinstance(told, tuple) else str(told)
    return reason.removeprefix("Skipped: ")
