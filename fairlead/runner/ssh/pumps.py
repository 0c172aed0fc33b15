"""Processes and ports of engines whose streams are no descriptors, those of Kubernetes, made descriptors by copying."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fairlead.core.waiting import end_tasks
from fairlead.runner.engines.contract import ByteReader, ByteStream, ByteWriter, Process
from fairlead.runner.engines.descriptors import Connection, Pipe, open_pipe

READ_BYTES = 32 * 1024


@asynccontextmanager
async def pump_process(process: Process) -> AsyncIterator[list[int]]:
    """Descriptors for stdin, stdout and stderr, which the block owns. What is in them is copied until it ends."""
    stdin, their_stdin = open_pipe()
    their_stdout, stdout = open_pipe()
    their_stderr, stderr = open_pipe()
    own = (Pipe(stdin), Pipe(stdout), Pipe(stderr))
    tasks = (
        asyncio.create_task(_copy(own[0], process.stdin)),
        asyncio.create_task(_copy(process.stdout, own[1])),
        asyncio.create_task(_copy(process.stderr, own[2])),
    )
    try:
        yield [their_stdin, their_stdout, their_stderr]
    finally:
        await end_tasks(*tasks)
        for each in own:
            await each.release()


async def pump_port(stream: ByteStream, connection: Connection) -> None:
    """Up to the end of both directions."""
    try:
        with suppress(ExceptionGroup):  # one of them was reset
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(connection, stream.writer))
                group.create_task(_copy(stream.reader, connection))
    finally:
        await stream.abort()
        await connection.abort()


async def _copy(reader: ByteReader, writer: ByteWriter) -> None:
    while data := await reader.read(READ_BYTES):
        await writer.write(data)
    await writer.close()
