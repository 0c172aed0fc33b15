"""A pytest plugin for the test suites of other projects: leaves out what is not applicable, and records results.

It is copied into the virtual environment of a suite, so it imports nothing but pytest. The variables of the environment
are SUITE_NOT_APPLICABLE, a file with a JSON list of patterns of test ids, and SUITE_RESULTS, the file to write.
"""

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

_results: dict[str, dict[str, str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of pytest-kind, which the stand-in for it has not."""
    parser.addoption("--keep-cluster", dest="keep_cluster", action="store_true", default=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    patterns = json.loads(Path(os.environ["SUITE_NOT_APPLICABLE"]).read_text())
    for item in items:
        if any(fnmatchcase(item.nodeid, pattern) for pattern in patterns):
            _results[item.nodeid] = {"outcome": "not applicable", "message": ""}
    items[:] = [item for item in items if item.nodeid not in _results]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The outcome of a test is that of its first phase that did not pass."""
    known = _results.get(report.nodeid, {}).get("outcome", "passed")
    if known == "passed":
        lines = str(report.longrepr or "").strip().splitlines() or [""]
        errors = [line[1:].strip() for line in lines if line.startswith("E ")]
        _results[report.nodeid] = {"outcome": report.outcome, "message": (errors or lines)[-1]}


def pytest_sessionfinish() -> None:
    Path(os.environ["SUITE_RESULTS"]).write_text(json.dumps(_results))
