"""The responses match a recorded kube-apiserver. `docs/conformance.md` says what is compared and how strictly."""

import json
import re
from pathlib import Path

import pytest

from tests.conformance.kit import GOLDEN, HERE, Run, read_case_areas, replay, run_server

DOCUMENTATION = HERE.parents[1] / "docs" / "conformance.md"

# The first test that uses the fixture waits for the whole replay.
pytestmark = pytest.mark.timeout(300)


def test_the_responses_match_the_recording(case: str, run: Run) -> None:
    outcome = run.outcomes[case]
    if outcome.is_hard:
        pytest.fail(outcome.text, pytrace=False)


def test_the_server_exits_cleanly_after_the_cases(run: Run) -> None:
    assert run.exit_code == 0, run.log


def test_no_case_causes_a_traceback_in_the_log(run: Run) -> None:
    assert "Traceback" not in run.log


def test_the_documentation_lists_the_cases_with_soft_differences(run: Run) -> None:
    _, _, section = DOCUMENTATION.read_text(encoding="utf-8").partition("## Soft differences\n")
    documented = {
        name for name in re.findall(r"`([a-z0-9-]+)`", section.partition("\n## ")[0]) if name in read_case_areas()
    }
    passed = {name: outcome for name, outcome in run.outcomes.items() if not outcome.is_hard}
    assert {name for name, outcome in passed.items() if outcome.is_soft} == documented & passed.keys()


def test_a_response_that_differs_from_the_recording_is_detected(tmp_path: Path) -> None:
    name = "create-json-app"
    recording = json.loads((GOLDEN / "create.shared.json").read_text(encoding="utf-8"))
    recording["cases"][name]["steps"][0]["status"] = 299
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "create.shared.json").write_text(json.dumps(recording), encoding="utf-8")
    with run_server(tmp_path) as server:
        outcome = replay(server, [name], golden=tmp_path / "golden")[name]
    assert outcome.is_hard
    assert "want 299" in outcome.text
