"""A real process for SSH, as the runner starts it, and clients that connect to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import asyncssh

from fairlead.core.crypto.ssh_certificates import find_public_key
from fairlead.runner.engines.contract import Engine
from fairlead.runner.ssh.messages import NewConnection, ServerSettings
from fairlead.runner.ssh.process import ServerProcess, ServerProcesses
from tests.runner.ssh.local_engine import LocalEngine
from tests.runner.ssh.test_server import AUTHORITY, CLIENT_KEY, HOST_KEY, SFTP_SERVER, UID, certificate


class ServedWorkspace:
    """`ssh_options` of a connection are those of the client."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.processes = ServerProcesses()

    @property
    def server(self) -> ServerProcess:
        return self.processes._processes[UID]

    @asynccontextmanager
    async def connect(self, **ssh_options: object) -> AsyncIterator[asyncssh.SSHClientConnection]:
        settings = ServerSettings(UID, HOST_KEY)
        accepted = NewConnection((find_public_key(AUTHORITY),), "dev", "/tmp", "/bin/sh", SFTP_SERVER)
        key = asyncssh.import_private_key(CLIENT_KEY)
        async with (
            self.processes.connect(cast(Engine, self.engine), settings, accepted) as connected,
            asyncssh.connect(
                "workspace",
                sock=connected,
                username="dev",
                client_keys=[(key, asyncssh.import_certificate(certificate()))],
                known_hosts=asyncssh.import_known_hosts(f"workspace {find_public_key(HOST_KEY)}"),
                config=None,
                agent_path=None,
                **ssh_options,
            ) as connection,
        ):
            yield connection


@asynccontextmanager
async def serve_workspace(engine: LocalEngine) -> AsyncIterator[ServedWorkspace]:
    served = ServedWorkspace(engine)
    try:
        yield served
    finally:
        await served.processes.close()
