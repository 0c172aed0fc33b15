"""One replay of the selected conformance cases for all tests here, on one worker and on two."""

import pytest

from tests.conformance.kit import HERE, Run, get_log_path, read_case_areas, replay, run_server

RACES = ("delete-orphan",)
"""Cases that read an object while the garbage collector works on it: a client that is slow, because the machine is
busy, comes too late."""
RACE_ATTEMPTS = 5


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        areas = read_case_areas()
        metafunc.parametrize("case", list(areas), ids=lambda name: f"{areas.get(name)}/{name}")


@pytest.fixture(scope="session", params=(1, pytest.param(2, marks=pytest.mark.long)), ids=("1-worker", "2-workers"))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    calls = [item.callspec for item in request.session.items if item.path.parent == HERE and hasattr(item, "callspec")]
    selected = dict.fromkeys(call.params["case"] for call in calls if "case" in call.params)
    names = list(selected or read_case_areas())
    folder = tmp_path_factory.mktemp("conformance")
    with run_server(folder, workers=request.param) as server:
        outcomes = replay(server, names)
        for _ in range(RACE_ATTEMPTS):
            if lost := [name for name in RACES if name in outcomes and outcomes[name].is_hard]:
                outcomes |= replay(server, lost)
    return Run(outcomes, server.process.returncode, get_log_path(folder).read_text(encoding="utf-8"))
