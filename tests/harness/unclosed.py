"""Folders of tests in which warnings about what is not closed are not errors yet.

Python finds what is not closed when it collects it, often in a later test. So the garbage of a file in these folders is
collected after its last test, where such warnings are ignored: tests of other folders do not get them.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
EXEMPT = ("conformance", "console", "live", "runner/engines")
"""Not all of their tests have been run with these warnings as errors. Remove a folder that has."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_exempt(item.path):
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    result = yield
    if is_exempt(item.path) and (nextitem is None or nextitem.path != item.path):
        gc.collect()
    return result


def is_exempt(path: Path) -> bool:
    return any(path.is_relative_to(TESTS / folder) for folder in EXEMPT)
