"""The actions of the runner for clients that connect: what they need to know, and who is refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.core.clock import SystemClock
from fairlead.links.requests import OpenRequest, Refused
from fairlead.runner.engines.contract import EngineError
from fairlead.runner.reconcile import WorkspaceReconciler
from fairlead.runner.services import RunnerServices
from fairlead.runner.ssh.actions import SshActions
from fairlead.runner.ssh.endpoint import SshEndpoint
from fairlead.runner.ssh.host_keys import HostKeys
from fairlead.runner.ssh.inside import Inside
from tests.runner.fake_api import FakeApi
from tests.runner.ssh.local_engine import LocalEngine
from tests.runner.test_actions import FakeStream


class ActionFixture:
    """The actions of a runner with one workspace, on an engine whose workspace is this machine."""

    def __init__(self, folder: Path) -> None:
        self.api, self.engine = FakeApi(), LocalEngine()
        services = SimpleNamespace(api=self.api, engines={"local": self.engine}, clock=SystemClock())
        endpoint = SshEndpoint(HostKeys(folder))
        self.actions = SshActions(cast(RunnerServices, services), endpoint)
        self.workspace: Any = SimpleNamespace(uid="u", record=SimpleNamespace(engine="local"), workspace=None)

    async def request(self, action: str, **fields: Any) -> FakeStream:
        stream = FakeStream()
        serve = self.actions.actions()[action]
        await serve(cast(WorkspaceReconciler, self.workspace), OpenRequest(action, uid="u", **fields), stream)
        return stream


@pytest.fixture
def fixture(tmp_path: Path) -> ActionFixture:
    return ActionFixture(tmp_path)


async def test_the_endpoint_has_the_host_key_also_of_a_workspace_that_does_not_run(fixture: ActionFixture) -> None:
    running = (await fixture.request("ssh-endpoint")).decode()
    assert running["user"]
    fixture.engine.is_running = False
    assert (await fixture.request("ssh-endpoint")).decode() == {"hostKeys": running["hostKeys"], "user": "ada"}
    fixture.workspace.record.engine = ""
    assert (await fixture.request("ssh-endpoint")).decode() == {"hostKeys": running["hostKeys"], "user": ""}


async def test_ports_are_listed(fixture: ActionFixture) -> None:
    ports = [{"port": 8080, "address": "127.0.0.1", "process": "node"}]
    assert (await fixture.request("ports")).decode() == {"ports": ports}


@pytest.mark.parametrize("authorities", [(), ("a\nb",), ("a",) * 9])
async def test_a_connection_without_keys_to_trust_is_refused(
    fixture: ActionFixture, authorities: tuple[str, ...]
) -> None:
    with pytest.raises(Refused) as refused:
        await fixture.request("ssh", ssh_authorities=authorities)
    assert refused.value.code == 501


async def test_a_workspace_that_does_not_run_says_so(fixture: ActionFixture) -> None:
    fixture.engine.is_running = False
    with pytest.raises(EngineError, match="not running"):
        await fixture.request("ssh", ssh_authorities=("a",))
    fixture.workspace.record.engine = ""
    with pytest.raises(Refused) as refused:
        await fixture.request("ssh", ssh_authorities=("a",))
    assert refused.value.code == 409


async def test_an_image_without_sftp_server_gets_a_condition_once(fixture: ActionFixture) -> None:
    fixture.api.create("u")
    fixture.workspace.workspace = fixture.api.workspaces["u"]
    await fixture.actions._report_sftp(fixture.workspace, Inside(sshd="/usr/sbin/sshd"))
    assert find_conditions(fixture.api.workspaces["u"]) == []
    await fixture.actions._report_sftp(fixture.workspace, Inside())
    (condition,) = find_conditions(fixture.api.workspaces["u"])
    assert (condition["status"], condition["reason"]) == ("False", "NoSftpServer")
    assert "openssh-sftp-server" in condition["message"]


def find_conditions(workspace: dict[str, Any]) -> list[dict[str, Any]]:
    conditions = (workspace.get("status") or {}).get("conditions") or []
    return [each for each in conditions if each["type"] == "SFTP"]
