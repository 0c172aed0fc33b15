"""The engine `process` of the tests, whose workspaces have the ports of this machine: those of programs of a test."""

import asyncio
import socket

from fairlead.runner.engines.contract import ByteStream, EngineError, Reason
from fairlead.runner.engines.descriptors import Connection
from fairlead.runner.registry import EngineSettings
from tests.runner.process_engine import ProcessEngine


class PortEngine(ProcessEngine):
    async def open_port(self, uid: str, port: int) -> ByteStream:
        created = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        created.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(created, ("127.0.0.1", port))
        except OSError as error:
            created.close()
            raise EngineError(Reason.NOT_RUNNING, f"nothing answers on port {port} of the workspace") from error
        return Connection(created.detach())


def create_engine(settings: EngineSettings) -> PortEngine:
    return PortEngine(settings.state_folder, runner=settings.runner)
