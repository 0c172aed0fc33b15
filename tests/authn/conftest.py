"""Fixtures of the authentication tests: users, teams and access keys in a store."""

from collections.abc import AsyncIterator

import pytest

from tests.harness.access_keys import KeyDirectory, open_key_directory


@pytest.fixture
async def directory() -> AsyncIterator[KeyDirectory]:
    async with open_key_directory() as fixture:
        yield fixture
