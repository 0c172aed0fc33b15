"""Builds the hub for the connections of runners, and connects the workers of one server to each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from fairlead.app.workers.context import WorkerContext
from fairlead.core.clock import Clock
from fairlead.settings import Settings
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.peers import WorkerPeers


@asynccontextmanager
async def open_runner_hub(settings: Settings, clock: Clock, worker: WorkerContext | None) -> AsyncIterator[RunnerHub]:
    hub = RunnerHub(clock, uuid4().hex)
    if worker is None or worker.count == 1:
        yield hub
        return
    peers = WorkerPeers(settings.data, worker.index, worker.count, hub)
    hub.peers = peers
    async with peers.serve():
        yield hub
