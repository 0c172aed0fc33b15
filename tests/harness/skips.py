"""Under CI=true, a skipped test fails with its reason.

A laptop may lack a database, or the permission to mount a disk. CI has everything, so a skip there is a mistake, also
of a test that needs root or a feature of the kernel.
`tests/conftest.py` imports these hooks.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

OPENING = "skipped, and under CI=true nothing may be: "


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Handles skips by marks, fixtures and tests."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _is_ci():
        report.outcome, report.longrepr = "failed", OPENING + _find_reason(report.longrepr)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Handles skips of a whole file while it is imported."""
    report = yield
    if report.skipped and _is_ci():
        report.outcome, report.longrepr = "failed", OPENING + _find_reason(report.longrepr)
    return report


def _is_ci() -> bool:
    return os.environ.get("CI") == "true"


def _find_reason(skip: Any) -> str:
    """pytest keeps a skip as the file, the line and the reason."""
    reason = skip[2] if isinstance(skip, tuple) else str(skip)
    return reason.removeprefix("Skipped: ")
