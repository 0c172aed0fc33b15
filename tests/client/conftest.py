"""A fake server with canned responses, and a client of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client import Client
from fairlead.core.crypto.certificates import Certificates, ensure_certificates
from tests.harness.fake_server import KEY, FakeServer, running_fake_server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def fake(certificates: Certificates) -> Iterator[FakeServer]:
    with running_fake_server(certificates) as server:
        yield server


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Client]:
    with Client(fake.url, KEY, ca_file=Path(fake.ca_file)) as client:
        yield client
