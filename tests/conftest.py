"""What every test may ask for.

Tests run against real components: a kubectl, a database, a load generator. A component is an executable in
`.tools/bin`, where `scripts/setup-tools.sh` puts those that must not depend on the machine's own, or on the PATH. A
laptop may lack one, and its tests are then skipped with the reason in the summary. CI may not: see
`tests/harness/skips.py`.
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.harness.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401  # hooks

# How long an example takes says how busy the machine is: tests run two at a time. In CI this is so without being said.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

TOOLS = Path(__file__).resolve().parent.parent / ".tools" / "bin"


@pytest.fixture(scope="session")
def component() -> Callable[[str], Path]:
    """`component("kubectl")` is the path of that executable, or the end of the test that needs it."""
    return find_component


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Logging as it was before, for tests that set it up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def find_component(name: str) -> Path:
    found = shutil.which(name, path=str(TOOLS)) or shutil.which(name)
    if found is not None:
        return Path(found)
    pytest.skip(f"{name} is not installed; `make tools` installs it, or put it on the PATH")
