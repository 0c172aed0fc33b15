"""The owner process: it has opened the store of a server with several workers, if only one process can.

With PostgreSQL and etcd, the workers open the store themselves.
"""

import asyncio
from collections.abc import Callable

from fairlead.app.workers.child_process import Message
from fairlead.settings import Settings


async def run_owner(settings: Settings, stop: asyncio.Event, send: Callable[[Message], None]) -> None:
    send({"ready": {}})
    await stop.wait()
