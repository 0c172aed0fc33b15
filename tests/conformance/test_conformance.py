"""The server answers as a recorded kube-apiserver did. `docs/conformance.md` says what is compared and how strictly."""

import json
import re
from pathlib import Path

import pytest

from tests.conformance.kit import GOLDEN, HERE, Run, areas, replay, serving

DOCUMENTATION = HERE.parents[1] / "docs" / "conformance.md"

# The first test to ask for the run waits for all of it.
pytestmark = pytest.mark.timeout(300)


def test_the_server_answers_as_the_recorded_one_did(case: str, run: Run) -> None:
    outcome = run.outcomes[case]
    if outcome.hard:
        pytest.fail(outcome.text, pytrace=False)


def test_the_server_ends_well_after_the_cases(run: Run) -> None:
    assert run.exit_code == 0, run.log


def test_no_case_makes_the_server_log_a_fault(run: Run) -> None:
    assert "Traceback" not in run.log


def test_the_documentation_lists_the_cases_with_soft_differences(run: Run) -> None:
    _, _, section = DOCUMENTATION.read_text(encoding="utf-8").partition("## Soft differences\n")
    listed = {name for name in re.findall(r"`([a-z0-9-]+)`", section.partition("\n## ")[0]) if name in areas()}
    passed = {name: outcome for name, outcome in run.outcomes.items() if not outcome.hard}
    assert {name for name, outcome in passed.items() if outcome.soft} == listed & passed.keys()


def test_an_answer_unlike_the_recorded_one_is_noticed(tmp_path: Path) -> None:
    name = "create-json-app"
    recording = json.loads((GOLDEN / "create.shared.json").read_text(encoding="utf-8"))
    recording["cases"][name]["steps"][0]["status"] = 299
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "create.shared.json").write_text(json.dumps(recording), encoding="utf-8")
    with serving(tmp_path) as server:
        outcome = replay(server, [name], golden=tmp_path / "golden")[name]
    assert outcome.hard
    assert "want 299" in outcome.text
