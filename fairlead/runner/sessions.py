"""Connects a stream with a process or a port inside a workspace.

Each direction ends on its own: the end of stdin is passed on, and output is read until its end. When the stream ends
first, the process is ended with all that it started.
"""

import asyncio

from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.streams import Data, Eof
from fairlead.runner.activity.traffic import SessionMeter
from fairlead.runner.engines.contract import ByteReader, ByteStream, Process

READ_BYTES = 32 * 1024


async def run_process(process: Process, stream: Stream, meter: SessionMeter) -> None:
    """Serves a process to its end. It does not survive the stream. `meter` counts the input."""
    feeding = asyncio.create_task(_feed(process, stream, meter))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_send_output(process.stdout, stream, STDOUT, meter))
            group.create_task(_send_output(process.stderr, stream, STDERR, meter))
            ended = group.create_task(_wait(process, feeding))
        await stream.send_exit(ended.result())
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await process.kill()


async def _wait(process: Process, feeding: "asyncio.Task[None]") -> int:
    """The exit code. If the stream ends before, the process is ended."""
    waiting = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((waiting, feeding), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            await process.kill()
        return await waiting
    finally:
        waiting.cancel()


async def _feed(process: Process, stream: Stream, meter: SessionMeter) -> None:
    """Passes on input. Ends with the stream."""
    while (message := await stream.receive()) is not None:
        match message:
            case Data(channel, content) if channel == STDIN:
                meter.add(len(content))
                await process.stdin.write(content)
            case Eof(channel) if channel == STDIN:
                await process.stdin.close()
            case _:
                pass


async def _send_output(reader: ByteReader, stream: Stream, channel: int, meter: SessionMeter) -> None:
    while data := await reader.read(READ_BYTES):
        meter.add_output(len(data))
        await stream.send(channel, data)
    await stream.send_eof(channel)


async def run_port(connection: ByteStream, stream: Stream, meter: SessionMeter) -> None:
    """Serves a connection until both directions have ended. `meter` counts what the client sends."""

    async def feed() -> None:
        while (message := await stream.receive()) is not None:
            if isinstance(message, Data) and message.channel == STDIN:
                meter.add(len(message.content))
                await connection.writer.write(message.content)
            elif isinstance(message, Eof):
                break
        await connection.writer.close()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            group.create_task(_send_output(connection.reader, stream, STDOUT, meter))
        await stream.send_exit(0)
    finally:
        await connection.abort()
