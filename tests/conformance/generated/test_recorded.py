"""The recorded lives against a real server: it answers as the recorded kube-apiserver did."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.generated.comparison import allowed_rules, find_difference
from tests.conformance.generated.connection import Target
from tests.conformance.generated.recording import RECORDED, RecordedLife, read_recording
from tests.conformance.generated.runner import Runner
from tests.conformance.generated.servers import running_target
from tests.conformance.generated.steps import life_to_json
from tests.harness.server_process import Server

DOCUMENTATION = Path(__file__).resolve().parents[3] / "docs" / "conformance.md"
CLIENTS = 4
"""So many clients play lives at the same time: much of a life is waiting for controllers."""

RECORDING = read_recording()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Server]]:
    with running_target(tmp_path_factory.mktemp("generated")) as found:
        yield found


@pytest.mark.timeout(180)
def test_the_server_answers_as_the_recorded_one_did(served: tuple[Target, Server]) -> None:
    def replay_share(number: int) -> list[str]:
        runner = Runner(served[0])
        found = [text for recorded in RECORDING.lives[number::CLIENTS] if (text := replay(runner, recorded))]
        runner.close()
        return found

    with ThreadPoolExecutor(CLIENTS) as pool:
        failures = [text for share in pool.map(replay_share, range(CLIENTS)) for text in share]
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def test_the_server_logs_no_fault(served: tuple[Target, Server]) -> None:
    assert "Traceback" not in served[1].log.read_text(encoding="utf-8")


def replay(runner: Runner, recorded: RecordedLife) -> str:
    """What is different, with the requests; empty if nothing is."""
    life = recorded.life
    difference = find_difference(life.kind, recorded.alternatives, runner.play(life), allowed_rules())
    if difference is None:
        return ""
    steps = "\n".join(
        f"  {number}. {json.dumps(step)}" for number, step in enumerate(life_to_json(life)["steps"], start=1)
    )
    return f"life {life.name} ({life.kind}): {difference}\n{steps}"


def test_the_recording_is_small_and_of_the_documented_version() -> None:
    assert RECORDED.stat().st_size < 2_000_000
    assert len(RECORDING.lives) >= 300
    assert f"({RECORDING.version})" in DOCUMENTATION.read_text(encoding="utf-8")


def test_the_documentation_lists_the_allowed_differences() -> None:
    _, _, section = DOCUMENTATION.read_text(encoding="utf-8").partition("### Allowed differences of generated lives\n")
    listed = re.findall(r"^\| `([a-z-]+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert listed == [rule.name for rule in allowed_rules()]


def test_a_wrong_answer_is_noticed(served: tuple[Target, Server]) -> None:
    recorded = next(each for each in RECORDING.lives if len(each.alternatives) == 1)
    wrong = [[{**answer, "status": 299} for answer in recorded.alternatives[0]]]
    text = replay(Runner(served[0]), RecordedLife(recorded.life, wrong))
    assert "expected 299" in text
    assert recorded.life.name in text
