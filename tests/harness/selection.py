"""The option `--part` of pytest: runs the tests of one part in `tests/parts.py`, and says how many there are.

Files without such tests are not imported: importing all of them takes longer than many of the tests. Files and folders
that are named on the command line are run whatever part they are of. `tests/conftest.py` imports these hooks.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.parts import MINUTES, SELECTIONS, TESTS, has_tests_of, is_selected

IS_ANNOUNCED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=list(SELECTIONS), help="run the tests of this part only: see tests/parts.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    selection = _find_selection(config)
    if selection is None or not collection_path.match("test_*.py"):
        return None
    name = collection_path.relative_to(TESTS).as_posix()
    return None if has_tests_of(name, selection) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection = _find_selection(config)
    if selection is None:
        return
    others = [item for item in items if not is_selected(_find_name(item), selection)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if is_selected(_find_name(item), selection)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Says what to expect, after the first process has collected the tests: all collect the same."""
    config: pytest.Config = node.config
    selection = _find_selection(config)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if selection is None or reporter is None or config.stash.get(IS_ANNOUNCED, False):
        return
    config.stash[IS_ANNOUNCED] = True
    is_all = not config.getoption("keyword")
    duration = f", about {MINUTES[selection]} minutes on two cores that do nothing else" if is_all else ""
    reporter.write_line(f"{len(ids):,} tests{duration}")


def _find_name(item: pytest.Item) -> str:
    return item.nodeid.removeprefix(f"{TESTS.name}/")


def _find_selection(config: pytest.Config) -> str | None:
    selection: str | None = config.getoption("--part")
    named = {config.rootpath.joinpath(each).resolve() for each in config.args}
    return selection if named <= {TESTS} else None
