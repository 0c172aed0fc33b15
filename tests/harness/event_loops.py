"""The event loops that tests run on: asyncio's own, or also uvloop, which servers use and which closes connections
differently. A `conftest.py` chooses with the hook `pytest_asyncio_loop_factories`."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop

LoopFactories = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]
ASYNCIO_ONLY: LoopFactories = {"asyncio": asyncio.SelectorEventLoop}
BOTH_LOOPS: LoopFactories = {**ASYNCIO_ONLY, "uvloop": uvloop.new_event_loop}
