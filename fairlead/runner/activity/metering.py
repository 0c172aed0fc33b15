"""A stream whose bytes count as the use of a workspace."""

from dataclasses import dataclass
from typing import Any

from fairlead.links.contract import Stream
from fairlead.links.frames import STDIN
from fairlead.links.streams import Data, Message
from fairlead.runner.activity.traffic import SessionMeter


@dataclass(frozen=True, slots=True)
class MeteredStream:
    """Implements `Stream`. What the client sends is input; what is sent to it is output."""

    stream: Stream
    meter: SessionMeter

    @property
    def details(self) -> dict[str, Any]:
        return self.stream.details

    async def accept(self, details: dict[str, Any]) -> None:
        await self.stream.accept(details)

    async def receive(self) -> Message | None:
        message = await self.stream.receive()
        if isinstance(message, Data) and message.channel == STDIN:
            self.meter.add(len(message.content))
        return message

    async def send(self, channel: int, data: bytes) -> None:
        self.meter.add_output(len(data))
        await self.stream.send(channel, data)

    async def send_eof(self, channel: int) -> None:
        await self.stream.send_eof(channel)

    async def send_exit(self, code: int) -> None:
        await self.stream.send_exit(code)

    async def reset(self, reason: str) -> None:
        await self.stream.reset(reason)

    def abandon(self, reason: str) -> None:
        self.stream.abandon(reason)
