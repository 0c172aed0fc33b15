"""One run of the conformance cases for all tests here: over those that were selected, and no others."""

import pytest

from tests.conformance.kit import HERE, Run, areas, log_of, replay, serving


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        known = areas()
        metafunc.parametrize("case", list(known), ids=lambda name: f"{known.get(name)}/{name}")


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    calls = [item.callspec for item in request.session.items if item.path.parent == HERE and hasattr(item, "callspec")]
    names = [call.params["case"] for call in calls] or list(areas())
    folder = tmp_path_factory.mktemp("conformance")
    with serving(folder) as server:
        outcomes = replay(server, names)
    return Run(outcomes, server.process.returncode, log_of(folder).read_text(encoding="utf-8"))
