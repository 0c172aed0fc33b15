"""A podman in a holder that a workspace has taken over: it says what it likes, or nothing."""

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError
from fairlead.runner.engines.devcontainer import observation
from fairlead.runner.engines.devcontainer.creation import Progress
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.observation import Observer
from fairlead.runner.engines.devcontainer.programs import Result, parse_object
from fairlead.runner.engines.devcontainer.settings import Settings
from tests.runner.harness.tasks import RecordedTask

UID = "0b5e7ed0-0000-4000-8000-000000000001"
DEEP = "[" * 200_000


class FakeHolder:
    """Its podman prints this, or never ends."""

    def __init__(self, output: str | None) -> None:
        self.output = output
        self.is_killed = False

    async def run(self, *command: str, stdin: bytes = b"") -> Result:
        if self.output is None:
            await asyncio.Event().wait()
        return Result(0, self.output or "", "")

    async def kill(self) -> None:
        self.is_killed = True


@pytest.fixture
def engine(tmp_path: Path) -> DevcontainerEngine:
    (tmp_path / "workspaces" / UID).mkdir(parents=True)
    return DevcontainerEngine(Settings(state_folder=tmp_path, runner="r"))


def take_over(monkeypatch: pytest.MonkeyPatch, output: str | None) -> FakeHolder:
    holder = FakeHolder(output)
    monkeypatch.setattr(Observer, "find_holder", lambda self, uid: cast(Holder, holder))
    return holder


@pytest.mark.parametrize(
    "output",
    [
        *("", "x", DEEP, "1", "[]", "[1]", "{}", '{"State": []}', '{"Id": "x", "State": {"Pid": "y"}, "Labels": {}}'),
        json.dumps({"Id": "x", "State": {"ExitCode": float("inf")}, "Labels": {}}),
        json.dumps({"Id": "x", "State": {"StartedAt": 1}, "Labels": {}}),
        json.dumps({"Id": "x", "State": {}, "Labels": [1]}),
        json.dumps({"Id": "x", "State": {}, "Labels": {str(number): "" for number in range(10_000)}}),
    ],
)
async def test_what_podman_says_is_an_error_of_that_workspace_at_most(
    engine: DevcontainerEngine, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    take_over(monkeypatch, output)
    with pytest.raises(EngineError, match="not understood"):
        await engine.status(UID)
    assert [each.state for each in (await engine.list_workspaces()).values()] == [ContainerState.STOPPED]


async def test_a_podman_that_does_not_answer_does_not_keep_the_runner_waiting(
    engine: DevcontainerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_over(monkeypatch, None)
    monkeypatch.setattr(observation, "INSPECT_SECONDS", 0.01)
    with pytest.raises(EngineError, match="does not answer"):
        await engine.status(UID)
    assert list(await engine.list_workspaces()) == [UID]
    await engine.stop(UID, RecordedTask())


@pytest.mark.parametrize("line", [DEEP, "1", '"x"', "[]", '{"level": "x", "type": "text", "text": [1]}', "\xff"])
def test_a_line_that_is_not_of_the_cli_is_text_at_most(line: str) -> None:
    assert isinstance(Progress().read_line(line.encode()).text, str)


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, "1", "null", "[]", "", "{"])
def test_only_objects_are_parsed_as_objects(text: str) -> None:
    assert parse_object(text) is None
