"""fairlead.cli.workspaces.commands: keeps a workspace awake."""

import time

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object

WORKSPACE = f"{M}/namespaces/service-p-demo/devpodworkspaceinstances/desk"
HOLD = ("workspace", "hold", "desk", "--project", "demo")
ANNOTATION = "sleepmode.service.sh/hold-until"


@pytest.fixture
def ada(user: CliFixture) -> CliFixture:
    user.fake.on("PATCH", WORKSPACE, (200, build_object("desk", kind="DevPodWorkspaceInstance", spec={})))
    return user


def sent_value(ada: CliFixture) -> str | None:
    (request,) = ada.fake.requests_to("PATCH", WORKSPACE)
    value: str | None = request.body["metadata"]["annotations"][ANNOTATION]
    return value


def test_a_hold_says_until_when_the_workspace_counts_as_in_use(ada: CliFixture) -> None:
    before = int(time.time())
    result = ada.run(*HOLD, "2h")
    assert (result.code, "the workspace desk is held until " in result.err) == (0, True)
    assert before + 7200 <= int(sent_value(ada) or "0") <= int(time.time()) + 7200


def test_a_release_removes_the_hold(ada: CliFixture) -> None:
    assert ada.run(*HOLD, "--release").code == 0
    assert sent_value(ada) is None


@pytest.mark.parametrize("arguments", [(), ("2h", "--release"), ("25h",), ("soon",)])
def test_a_hold_needs_one_time_of_at_most_a_day(ada: CliFixture, arguments: tuple[str, ...]) -> None:
    assert ada.run(*HOLD, *arguments).code == 2
    assert ada.fake.requests_to("PATCH", WORKSPACE) == []
