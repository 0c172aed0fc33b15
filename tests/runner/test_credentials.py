"""Secrets of workspaces: fetched for each `up`, and neither stored nor logged."""

import asyncio
from pathlib import Path

import pytest

from fairlead.client import ApiStatusError
from fairlead.core.objects import Object
from fairlead.runner.engines.contract import EngineError, Reason, TaskContext, WorkspaceSpec
from tests.harness.eventually import eventually
from tests.runner.conftest import RunnerFixture
from tests.runner.test_workspaces import RUNS, SOURCE, bring_up

CANARY = "canary-5d41402a"
REFERENCE = {"valueFrom": {"projectSecretRef": {"name": "s", "key": "k"}}}
TEMPLATE = {"provider": {"name": "fake", "options": {"key": REFERENCE}}, "workspaceEnv": {"TOKEN": REFERENCE}}
RESPONSE: Object = {
    "providerOptions": {"key": f"{CANARY}-option"},
    "workspaceEnv": {"TOKEN": f"{CANARY}-variable"},
    "gitCredentials": {"username": "bot", "password": f"{CANARY}-token"},
}


def create(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    runner.api.change("u", status={"instance": TEMPLATE})


def list_leaks(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


async def test_secrets_reach_the_engine_and_nothing_else(
    runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = runner.engine.up

    async def chatty_up(spec: WorkspaceSpec, task: TaskContext) -> None:
        task.log(f"the token is {spec.secrets['TOKEN']}\nand {spec.secrets['FAIRLEAD_GIT_TOKEN']}\n".encode())
        await up(spec, task)

    monkeypatch.setattr(runner.engine, "up", chatty_up)
    runner.api.credentials = RESPONSE
    create(runner)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    (spec,) = runner.engine.specs
    assert dict(spec.secret_options) == RESPONSE["providerOptions"]
    assert dict(spec.secrets) == {
        **RESPONSE["workspaceEnv"],
        "FAIRLEAD_GIT_USER": "bot",
        "FAIRLEAD_GIT_TOKEN": f"{CANARY}-token",
    }
    assert runner.api.credential_requests == [("example.com", "https", "/repository.git")]
    assert CANARY not in repr((runner.api.workspaces, runner.api.events, spec, runner.services.journal.records()))
    assert list_leaks(runner.folder) == []
    log = next(each for each in (runner.folder / "logs" / "u").rglob("0*") if each.is_file()).read_text()
    assert "the token is ********" in log


async def test_an_error_that_quotes_a_secret_is_masked_like_the_log(
    runner: RunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository may name the file of a secret as its Dockerfile, of which podman then says what is wrong with it."""

    async def failing_up(spec: WorkspaceSpec, task: TaskContext) -> None:
        raise EngineError(Reason.BUILD_FAILED, f"unknown instruction: {spec.secrets['TOKEN']}")

    monkeypatch.setattr(runner.engine, "up", failing_up)
    runner.api.credentials = RESPONSE
    create(runner)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: "unknown instruction: ********" in repr(runner.api.workspaces))
    assert CANARY not in repr((runner.api.workspaces, runner.api.events, runner.services.journal.records()))
    assert list_leaks(runner.folder) == []


async def test_each_up_gets_the_current_secrets(runner: RunnerFixture) -> None:
    runner.api.credentials = RESPONSE
    create(runner)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    runner.api.credentials = {**RESPONSE, "workspaceEnv": {"TOKEN": "rotated"}}
    runner.get().request_up({"recreate": True})
    await eventually(lambda: len(runner.engine.specs) == 2)
    assert runner.engine.specs[1].secrets["TOKEN"] == "rotated"


async def test_secrets_that_the_owner_may_not_use_fail_the_up_with_their_names(runner: RunnerFixture) -> None:
    runner.api.credentials = {"errors": [{"message": "workspaceEnv.TOKEN of the template: no such secret"}]}
    create(runner)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u") == ("Failed", "NotFound", "SecretsUnavailable"))
    assert "workspaceEnv.TOKEN" in runner.api.status("u")["message"]
    assert runner.engine.calls == []


@pytest.mark.parametrize(("code", "is_final"), [(403, True), (503, False)])
async def test_a_request_that_the_server_cannot_serve_now_is_repeated(
    runner: RunnerFixture, code: int, is_final: bool
) -> None:
    runner.api.credentials = RESPONSE
    runner.api.credentials_error = ApiStatusError(code, "Reason", "no")
    create(runner)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await asyncio.sleep(20)
    runner.api.credentials_error = None
    expected = ("Failed", "NotFound", "SecretsUnavailable") if is_final else RUNS
    await eventually(lambda: runner.api.summary("u") == expected)


async def test_a_template_without_secrets_comes_up_although_there_are_no_credentials(runner: RunnerFixture) -> None:
    runner.api.credentials_error = ApiStatusError(404, "NotFound", "the server is older")
    await bring_up(runner)
    assert dict(runner.engine.specs[0].secrets) == {}
