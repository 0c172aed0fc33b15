"""A worker process: an ordinary server, like a replica, that shares its port with the other workers."""

import asyncio
from collections.abc import Callable

from fairlead.app import StartedServer, run
from fairlead.app.workers.child_process import Message
from fairlead.app.workers.context import WorkerContext
from fairlead.settings import Settings


async def run_worker(
    settings: Settings, worker: WorkerContext, stop: asyncio.Event, send: Callable[[Message], None]
) -> None:
    def ready(started: StartedServer) -> None:
        server = {
            "url": started.url,
            "ca_file": str(started.ca_file) if started.ca_file else None,
            "new_key": started.new_key,
            "is_key_replaced": started.is_key_replaced,
            "is_key_rejected": started.is_key_rejected,
        }
        send({"ready": server})

    await run(settings, stop, ready, worker)
