"""Fixtures for tests of all folders.

Tests run against real components: a kubectl, a database, a load generator. A component is an executable in
`.tools/bin`, where `scripts/setup-tools.sh` installs those that must not depend on the machine, or on the PATH. Without
it, its tests are skipped, and the summary gives the reason. In CI a skipped test fails: see `tests/harness/skips.py`.
"""

import gc
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
import structlog

from tests.harness.auth import AuthFixture, open_auth
from tests.harness.properties import load_profile
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.rewriting import pytest_xdist_setupnodes  # noqa: F401  # a hook
from tests.harness.selection import (  # noqa: F401  # hooks
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_ignore_collect,
    pytest_xdist_node_collection_finished,
)
from tests.harness.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401  # hooks
from tests.harness.unclosed import pytest_itemcollected, pytest_runtest_teardown  # noqa: F401  # hooks

load_profile()

# A shell without job control lets background jobs ignore Ctrl-C, and so would all processes that the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# With it, programs that the tests start would write each line at once, also those that forget to.
os.environ.pop("PYTHONUNBUFFERED", None)


def _configure_structlog() -> None:
    """The defaults of structlog, but with plain tracebacks: formatting one with all local variables takes a second."""
    structlog.reset_defaults()
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure([*structlog.get_config()["processors"][:-1], renderer])


_configure_structlog()

TOOLS = Path(__file__).resolve().parent.parent / ".tools" / "bin"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects no garbage while tests are collected: there is none, and each collection would look at all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exempts the collected tests from garbage collections: each would look at all of them again.

    The thresholds stay as they are: with 10,000 instead of 700, tests of properties take a tenth more CPU time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def restore_signal_handlers() -> Iterator[None]:
    """Restores what a server that ran in the process of a test leaves behind: processes that later tests start would
    inherit signals that are ignored."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def component() -> Callable[[str], Path]:
    """`component("kubectl")` returns the path of that executable, or skips the test."""
    return find_component


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    """A registry with an empty store in memory."""
    async with open_registry() as fixture:
        yield fixture


@pytest.fixture
async def auth() -> AsyncIterator[AuthFixture]:
    """A registry with the rules for users and access keys, and the users root, ada and bob."""
    async with open_auth() as fixture:
        yield fixture


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restores the configuration of logging after a test that changes it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    _configure_structlog()


def find_component(name: str) -> Path:
    found = shutil.which(name, path=str(TOOLS)) or shutil.which(name)
    if found is not None:
        return Path(found)
    pytest.skip(f"{name} is not installed; `make tools` installs it, or put it on the PATH")
