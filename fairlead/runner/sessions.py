"""Connects a stream with a process or a port inside a workspace.

Each direction ends on its own: the end of stdin is passed on, and output is read until its end. When the stream ends
first, the process is ended with all that it started.
"""

import asyncio

from fairlead.core.waiting import background_task
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT
from fairlead.links.streams import Data, Eof
from fairlead.runner.engines.contract import ByteReader, ByteStream, Process

READ_BYTES = 32 * 1024


async def run_process(process: Process, stream: Stream) -> None:
    """Serves a process to its end, and sends its exit code. It does not survive the stream."""
    code = await relay_process(process, stream)
    await stream.send_eof(STDERR)
    await stream.send_exit(code)


async def relay_process(process: Process, stream: Stream) -> int:
    """Passes on input and output of a process up to its end, and returns its exit code. Stderr stays open, for messages
    about the end."""
    try:
        async with background_task(_feed(process, stream)) as feeding, asyncio.TaskGroup() as group:
            group.create_task(_send_output(process.stdout, stream, STDOUT))
            group.create_task(_copy_output(process.stderr, stream, STDERR))
            ended = group.create_task(_wait(process, feeding))
        return ended.result()
    finally:
        await process.kill()


async def _wait(process: Process, feeding: "asyncio.Task[None]") -> int:
    """The exit code. If the stream ends before, the process is ended."""
    async with background_task(process.wait()) as waiting:
        await asyncio.wait((waiting, feeding), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            await process.kill()
        return await waiting


async def _feed(process: Process, stream: Stream) -> None:
    """Passes on input. Ends with the stream."""
    while (message := await stream.receive()) is not None:
        match message:
            case Data(channel, content) if channel == STDIN:
                await process.stdin.write(content)
            case Eof(channel) if channel == STDIN:
                await process.stdin.close()
            case _:
                pass


async def _copy_output(reader: ByteReader, stream: Stream, channel: int) -> None:
    while data := await reader.read(READ_BYTES):
        await stream.send(channel, data)


async def _send_output(reader: ByteReader, stream: Stream, channel: int) -> None:
    await _copy_output(reader, stream, channel)
    await stream.send_eof(channel)


async def run_port(connection: ByteStream, stream: Stream) -> None:
    """Serves a connection until both directions have ended."""

    async def feed() -> None:
        while (message := await stream.receive()) is not None:
            if isinstance(message, Data) and message.channel == STDIN:
                await connection.writer.write(message.content)
            elif isinstance(message, Eof):
                break
        await connection.writer.close()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            group.create_task(_send_output(connection.reader, stream, STDOUT))
        await stream.send_exit(0)
    finally:
        await connection.abort()
