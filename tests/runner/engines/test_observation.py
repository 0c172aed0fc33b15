"""A podman in a holder that a workspace has taken over: it says what it likes, or nothing."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

import pytest

from fairlead.runner.engines import process_trees
from fairlead.runner.engines.contract import ContainerState, EngineError
from fairlead.runner.engines.devcontainer import observation
from fairlead.runner.engines.devcontainer.configuration import Configuration, raise_refusals, read_configuration
from fairlead.runner.engines.devcontainer.creation import Progress
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.isolation.holder import MAX_INNER_BYTES, Holder
from fairlead.runner.engines.devcontainer.observation import Observer
from fairlead.runner.engines.devcontainer.programs import Result, parse_object
from fairlead.runner.engines.devcontainer.settings import Settings
from tests.runner.harness.tasks import RecordedTask

UID = "0b5e7ed0-0000-4000-8000-000000000001"
DEEP = "[" * 200_000


class FakeHolder:
    """Its podman prints this, or never ends."""

    def __init__(self, output: str | None, code: int = 0, errors: str = "") -> None:
        self.output = output
        self.code = code
        self.errors = errors
        self.is_killed = False

    async def run(self, *command: str, stdin: bytes = b"", max_output_bytes: int = MAX_INNER_BYTES) -> Result:
        if self.output is None:
            await asyncio.Event().wait()
        return Result(self.code, (self.output or "")[:max_output_bytes], self.errors)

    async def kill(self) -> None:
        self.is_killed = True


class FakeGrant:
    """Allows nothing."""

    work_folder = "/workspaces/demo"
    id_label = "id"

    def allows(self, permission: str) -> bool:
        return False


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


async def measure_longest_turn(work: Awaitable[object]) -> float:
    """What the event loop itself did without a break at most, in seconds of CPU time. An EngineError is a result,
    too."""
    task = asyncio.ensure_future(work)
    longest, last = 0.0, time.thread_time()
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    with contextlib.suppress(EngineError):
        await task
    return longest


async def test_processes_that_take_long_to_look_at_hold_up_neither_the_runner_nor_the_status(
    engine: DevcontainerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those with 65,536 groups each."""

    def read_slowly(pid: int) -> list[int]:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        return [pid, pid]

    take_over(monkeypatch, json.dumps({"Id": "x", "State": {"Pid": 999_999}, "Labels": {}}))
    monkeypatch.setattr(process_trees, "SEARCH_SECONDS", 0.4)
    monkeypatch.setattr(observation, "list_cgroup_pids", lambda folder: list(range(1, 4097)))
    monkeypatch.setattr(observation, "read_nested_pids", read_slowly)
    began = time.monotonic()
    assert await measure_longest_turn(engine.status(UID)) < 0.1
    assert time.monotonic() - began < 10


KEYS = json.dumps({"configuration": {f"{number:x}": [1] for number in range(100_000)}})
SETTINGS = Settings(state_folder=Path("/"), runner="r", cli=("/bin/sh",))


@pytest.mark.parametrize(
    ("code", "output"),
    [
        pytest.param(0, "\n" * (1 << 16), id="empty lines"),
        pytest.param(0, "{\n" * (1 << 15), id="begins of objects"),
        pytest.param(0, KEYS, id="properties"),
        pytest.param(1, KEYS, id="properties of a failure"),
        pytest.param(1, "[" + "1," * (1 << 19) + "1]", id="numbers of a failure"),
    ],
)
async def test_what_tools_in_a_holder_print_does_not_hold_up_the_runner(code: int, output: str) -> None:
    holder = cast(Holder, FakeHolder(output, code, "{\n" * (1 << 15)))
    assert await measure_longest_turn(raise_refusals(holder)) < 0.03
    reading = read_configuration(SETTINGS, holder, cast(Grant, FakeGrant()), Configuration((), ""))
    assert await measure_longest_turn(reading) < 0.03


async def test_of_very_many_violations_some_are_listed() -> None:
    holder = cast(Holder, FakeHolder(KEYS))
    with pytest.raises(EngineError, match=r"and 99950 more$") as error:
        await read_configuration(SETTINGS, holder, cast(Grant, FakeGrant()), Configuration((), ""))
    assert len(error.value.message) < 10_000


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
