"""Fixtures for tests of single sign-on: real providers, one that forges, and a browser that trusts all of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates, ensure_certificates
from tests.console.browser import Browser, open_browser
from tests.console.servers import hash_public_key
from tests.sso.attacks import CONNECTOR, OTHER
from tests.sso.deployments import Deployment, running_deployment
from tests.sso.providers.forging import Forger, running_forger
from tests.sso.providers.processes import MockProvider, NodeProvider, running_mock_provider, running_node_provider


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificate of the server and of the providers, by an authority of the tests."""
    return ensure_certificates(tmp_path_factory.mktemp("certificates"), ("localhost", "127.0.0.1"))


@pytest.fixture(scope="session")
def browser(
    tmp_path_factory: pytest.TempPathFactory, component: Callable[[str], Path], certificates: Certificates
) -> Iterator[Browser]:
    program, folder = component("chromium-headless-shell"), tmp_path_factory.mktemp("chromium")
    with open_browser(program, folder, [hash_public_key(certificates.cert_file)]) as browser:
        yield browser


@pytest.fixture(scope="session")
def node_provider(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[NodeProvider]:
    """Each file sets its clients and accounts."""
    with running_node_provider(tmp_path_factory.mktemp("node-provider"), certificates) as provider:
        yield provider


@pytest.fixture(scope="session")
def mock_provider(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[MockProvider]:
    with running_mock_provider(tmp_path_factory.mktemp("mock-provider"), certificates) as provider:
        yield provider


@pytest.fixture(scope="module")
def running_forging_provider(certificates: Certificates) -> Iterator[Forger]:
    with running_forger(certificates) as forger:
        yield forger


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, running_forging_provider: Forger
) -> Iterator[Deployment]:
    """A server whose connector is the provider that forges. Another file may have its own."""
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        running_forging_provider.use(deployment.client_of(CONNECTOR))
        yield deployment


@pytest.fixture
def forger(running_forging_provider: Forger) -> Forger:
    """The provider that forges, as it is without instructions."""
    running_forging_provider.reset()
    return running_forging_provider


@pytest.fixture(scope="module")
def other_forger(certificates: Certificates) -> Iterator[Forger]:
    """A second provider, whose administrator may be the attacker."""
    with running_forger(certificates) as forger:
        yield forger


@pytest.fixture(scope="module")
def deployment_with_two_forgers(
    tmp_path_factory: pytest.TempPathFactory,
    certificates: Certificates,
    running_forging_provider: Forger,
    other_forger: Forger,
) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        running_forging_provider.use(deployment.client_of(CONNECTOR))
        other_forger.use(deployment.client_of(OTHER))
        deployment.configure(
            deployment.connector(CONNECTOR, running_forging_provider.issuer),
            deployment.connector(OTHER, other_forger.issuer),
        )
        yield deployment
