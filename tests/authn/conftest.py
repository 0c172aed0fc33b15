"""Everybody that these tests are about."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.access_keys import Directory, new_directory


@pytest.fixture
async def directory() -> AsyncIterator[Directory]:
    async with new_directory() as made:
        yield made
