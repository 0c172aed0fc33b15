"""The tests of links run on virtual time: keepalive and deadlines are part of the protocol."""

from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
