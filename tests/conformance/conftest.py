"""One run of the conformance cases for all tests here: over those that were selected, and no others."""

from collections.abc import Iterator

import pytest

from tests.conformance.kit import HERE, Run, areas, log_of, pending, replay, serving


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run the conformance cases of tests/conformance/pending.json instead of the others; a case that passes fails"
    parser.addoption("--pending", action="store_true", help=text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        known = areas()
        cases = list(_pending()) if _only_pending(metafunc.config) else _standing()
        metafunc.parametrize("case", cases, ids=lambda name: f"{known.get(name)}/{name}")


def _standing() -> list[str]:
    waiting = {name for names in pending().values() for name in names}
    return [name for name in areas() if name not in waiting]


def _pending() -> Iterator[object]:
    """Each is expected to fail, by a difference and by nothing else. Waiting in vain takes some of them a minute."""
    for part, names in pending().items():
        reason = f"waits for {part}; passing, it leaves pending.json"
        marks = pytest.mark.xfail(raises=pytest.fail.Exception, strict=True, reason=reason), pytest.mark.timeout(3600)
        yield from (pytest.param(name, marks=marks) for name in names)


def _only_pending(config: pytest.Config) -> bool:
    # The option is unknown where pytest met this file only after it had read its command line.
    return bool(config.getoption("pending", default=False))


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Pending cases are compared without `allow.json`: a rule that accepts every answer would call them done."""
    calls = [item.callspec for item in request.session.items if item.path.parent == HERE and hasattr(item, "callspec")]
    names = [call.params["case"] for call in calls] or _standing()
    folder = tmp_path_factory.mktemp("conformance")
    with serving(folder) as server:
        outcomes = replay(server, names, allow=not _only_pending(request.config))
    return Run(outcomes, server.process.returncode, log_of(folder).read_text(encoding="utf-8"))
