"""Fixtures of the tests of the sign-on endpoints, on virtual time."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.sign_on import SignOnFixture, SignOnServer, open_server, open_sign_on
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories", "server", "sso"]


@pytest.fixture
async def sso() -> AsyncIterator[SignOnFixture]:
    async with open_sign_on() as fixture:
        yield fixture


@pytest.fixture
async def server(sso: SignOnFixture) -> SignOnServer:
    return await open_server(sso)
