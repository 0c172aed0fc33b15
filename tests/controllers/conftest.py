"""Fixtures for tests of controllers, which run on virtual time."""

import pytest

from tests.fake_cluster.kube import FakeKube
from tests.harness.remote import FakeAccess
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]


@pytest.fixture
def access() -> FakeAccess:
    return FakeAccess()


@pytest.fixture
def kube(access: FakeAccess) -> FakeKube:
    return access.kube
