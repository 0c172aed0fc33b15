"""What the server requests of the runner for clients that connect to workspaces: `ssh`, `ssh-endpoint` and `ports`."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from fairlead.client import ClientError
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, get_path, metadata
from fairlead.links.contract import Stream
from fairlead.links.requests import OpenRequest, Refused
from fairlead.runner.actions import Action, send_json
from fairlead.runner.activity import KEEPALIVE_BYTES, MeteredStream
from fairlead.runner.engines.contract import Engine
from fairlead.runner.reconcile import WorkspaceReconciler
from fairlead.runner.services import RunnerServices
from fairlead.runner.settings import RunnerSettings
from fairlead.runner.ssh.endpoint import SshEndpoint
from fairlead.runner.ssh.groups import remove_unused_groups
from fairlead.runner.ssh.host_keys import HostKeys
from fairlead.runner.ssh.inside import Inside
from fairlead.runner.ssh.stopping import RUNNING_STATES
from fairlead.runner.web_ide import list_ports

SFTP = "SFTP"
NO_SFTP_SERVER = (
    "the image has neither sshd nor sftp-server, which scp and sftp need; install openssh-sftp-server or openssh-server"
)
MAX_AUTHORITIES = 8

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SshActions:
    services: RunnerServices
    endpoint: SshEndpoint

    def actions(self) -> Mapping[str, Action]:
        return {"ssh": self._serve, "ssh-endpoint": self._describe, "ports": self._list_ports}

    async def close(self) -> None:
        await self.endpoint.close()

    async def _serve(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        authorities = request.ssh_authorities
        if not authorities or len(authorities) > MAX_AUTHORITIES or any("\n" in each for each in authorities):
            raise Refused(501, "the server did not send the keys of its SSH certificates; update it")
        engine = self._require_engine(workspace)
        inside = await self.endpoint.find_inside(engine, workspace.uid)
        await self._report_sftp(workspace, inside)
        with self.services.activity.traffic.measure(workspace.uid, KEEPALIVE_BYTES) as meter:
            await self.endpoint.serve(engine, workspace.uid, authorities, MeteredStream(stream, meter))

    async def _describe(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        """The host key and the user. A workspace that does not run has a host key, too: it may be about to start."""
        engine, user = self._find_engine(workspace), ""
        if engine is not None:
            status = await engine.status(workspace.uid)
            is_running = status.state in RUNNING_STATES
            user = (await self.endpoint.find_inside(engine, workspace.uid)).user if is_running else status.user
        await send_json(stream, {"hostKeys": [self.endpoint.host_keys.get(workspace.uid).public], "user": user})

    async def _list_ports(self, workspace: WorkspaceReconciler, request: OpenRequest, stream: Stream) -> None:
        listening = await self._require_engine(workspace).list_ports(workspace.uid)
        ports = list_ports(workspace.workspace, listening)
        shown = [{"port": each.port, "address": each.address, "process": each.process[:256]} for each in ports]
        await send_json(stream, {"ports": shown[:1024]})

    async def _report_sftp(self, workspace: WorkspaceReconciler, inside: Inside) -> None:
        """Sets the condition when it changes; without a problem, there is none at first."""
        found = workspace.workspace
        if found is None:
            return
        conditions: list[Object] = get_path(found, "status.conditions") or []
        before = next((each.get("status") for each in conditions if each.get("type") == SFTP), "True")
        status = "True" if inside.sshd or inside.sftp_server else "False"
        if status == before:
            return
        condition = {
            "type": SFTP,
            "status": status,
            "reason": "Available" if status == "True" else "NoSftpServer",
            "message": "" if status == "True" else NO_SFTP_SERVER,
            "lastTransitionTime": timestamp(self.services.clock.now()),
        }
        patch = {"metadata": {"uid": metadata(found)["uid"]}, "status": {"conditions": [condition]}}
        try:
            await self.services.api.patch_workspace(found, patch)
        except ClientError as error:
            log.warning("a condition could not be reported", uid=workspace.uid, error=str(error))

    def _find_engine(self, workspace: WorkspaceReconciler) -> Engine | None:
        record = workspace.record
        return self.services.engines.get(record.engine) if record is not None else None

    def _require_engine(self, workspace: WorkspaceReconciler) -> Engine:
        engine = self._find_engine(workspace)
        if engine is None:
            raise Refused(409, "the workspace is not running; start it with `fairlead workspace up`")
        return engine


def create_ssh_actions(services: RunnerServices, settings: RunnerSettings) -> SshActions:
    remove_unused_groups()
    return SshActions(services, SshEndpoint(HostKeys(settings.state_folder)))
