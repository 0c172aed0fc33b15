"""Fixtures for tests of workspaces with a fake server."""

import pytest

from fairlead.cli.workspaces import running, targets
from fairlead.core.backoff import BackoffPolicy
from tests.cli.workspaces.log_responses import DEV, TASK, build_condition, build_log, build_task, build_workspace
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object


@pytest.fixture
def ada(user: CliFixture, monkeypatch: pytest.MonkeyPatch) -> CliFixture:
    """The CLI, and a fake server with the workspace `dev`, whose tasks succeed at once."""
    monkeypatch.setattr(running, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(targets, "RETRY", BackoffPolicy(first_seconds=0.01, max_seconds=10.0))
    done = build_condition("TaskSucceeded", "True", "UpSucceeded")
    workspace = build_workspace(phase="Ready", lastWorkspaceStatus="Running", conditions=[done])
    user.fake.on("GET", DEV, (200, workspace))
    user.fake.on("GET", f"{DEV}/tasks", (200, {"tasks": [build_task()]}))
    user.fake.on("GET", f"{DEV}/log", build_log("step Build", "step Build took 1.5 s", "up succeeded"))
    for action in ("up", "stop"):
        user.fake.on("POST", f"{DEV}/{action}", (201, {"status": {"taskId": TASK}}))
    user.fake.on("GET", f"{M}/runners/local", (200, build_object("local", status={"phase": "Initialized"})))
    return user
