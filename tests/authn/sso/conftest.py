"""Fixtures of the tests of single sign-on."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.sign_on import SignOnFixture, open_sign_on
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories", "sso"]


@pytest.fixture
async def sso() -> AsyncIterator[SignOnFixture]:
    async with open_sign_on() as fixture:
        yield fixture
