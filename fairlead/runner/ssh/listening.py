"""Sockets inside a workspace whose connections become channels to the client: `ssh -R`, and forwarded agents.

The runner opens them, so this process needs neither network nor files for that; it only accepts.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import asyncssh

from fairlead.runner.engines.descriptors import Connection
from fairlead.runner.ssh.channels import PortSession
from fairlead.runner.ssh.limits import ChannelSlot, ConnectionChannels, TooManyChannels

RETRY_SECONDS = 0.1
"""After a connection that could not be accepted: there are too many, or too many open files."""
OpenChannel = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Opens a channel to the client, for the session that the given function returns."""


class WorkspaceListener(asyncssh.SSHListener):
    """Takes a place among the channels of its connection, as does each connection to it. Raises TooManyChannels."""

    def __init__(self, listening: socket.socket, channels: ConnectionChannels, open_channel: OpenChannel) -> None:
        super().__init__()
        self._listening = listening
        self._channels = channels
        self._open_channel = open_channel
        try:
            self._slot = channels.take()
        except TooManyChannels:
            listening.close()
            raise
        self._accepting = self._slot.start(self._accept())

    def get_port(self) -> int:
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        self._slot.close()

    async def wait_closed(self) -> None:
        await asyncio.gather(self._accepting, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        with self._listening:
            while True:
                try:
                    connected, _ = await loop.sock_accept(self._listening)
                except OSError:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                try:
                    slot = self._channels.take()
                except TooManyChannels:
                    connected.close()
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                slot.start(self._open(Connection(connected.detach()), slot))

    async def _open(self, connection: Connection, slot: ChannelSlot) -> None:
        try:
            await self._open_channel(lambda: PortSession(connection, slot))
        except (asyncssh.Error, OSError):  # the client refuses it, or has gone
            await connection.abort()
            slot.close()
        except BaseException:
            await connection.abort()
            raise
