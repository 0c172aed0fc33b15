"""Access follows what the real providers say about a user: groups, and whether there is one."""

from collections.abc import Iterator

import httpx
import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.servers import GROUP
from tests.harness.eventually import wait_until
from tests.sso.deployments import SECRETS, Deployment, running_deployment
from tests.sso.providers.processes import MockProvider, NodeProvider
from tests.sso.real_providers import CORP, PARTNER, add_user, configure
from tests.sso.visits import Visitor

WAIT = 40


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory,
    certificates: Certificates,
    node_provider: NodeProvider,
    mock_provider: MockProvider,
) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        add_user(node_provider, mock_provider, deployment)
        configure(deployment, node_provider, mock_provider)
        yield deployment


@pytest.fixture
def visitor(deployment: Deployment) -> Iterator[Visitor]:
    with Visitor(deployment.ca_file) as visitor:
        yield visitor


def groups_of(deployment: Deployment, key: str) -> list[str]:
    user = deployment.whoami(key)
    return [] if user is None else list(user["groups"])


def test_access_follows_the_groups_at_the_provider(
    deployment: Deployment, node_provider: NodeProvider, visitor: Visitor
) -> None:
    node_provider.set_account("grace", preferred_username="grace", groups=["administrators"])
    key = deployment.key_of(deployment.sign_in(visitor, CORP, "grace"))
    with deployment.console.server.client(key) as client:
        assert client.get(SECRETS).status_code == 200
        node_provider.set_account("grace", preferred_username="grace", groups=["operators"])
        wait_until(lambda: client.get(SECRETS).status_code == 403, WAIT, "access is gone")
        assert "ops" in groups_of(deployment, key)
        node_provider.set_account("grace", preferred_username="grace", groups=["administrators"])
        wait_until(lambda: client.get(SECRETS).status_code == 200, WAIT, "access is back")


def test_a_user_disabled_at_the_provider_loses_keys_and_open_watches(
    deployment: Deployment, node_provider: NodeProvider, visitor: Visitor
) -> None:
    node_provider.set_account("heidi", preferred_username="heidi", groups=["administrators"])
    key = deployment.key_of(deployment.sign_in(visitor, CORP, "heidi"))
    with deployment.console.server.client(key) as client:
        with client.stream("GET", f"{GROUP}/projects?watch=true", timeout=httpx.Timeout(WAIT)) as watch:
            assert watch.status_code == 200
            node_provider.remove_account("heidi")
            list(watch.iter_lines())  # ends, as the server closes the watch
        assert client.get(f"{GROUP}/projects").status_code == 401


@pytest.mark.long
def test_tokens_revoked_at_oidc_provider_mock_end_the_session(
    deployment: Deployment, mock_provider: MockProvider, visitor: Visitor
) -> None:
    mock_provider.set_account("judy", preferred_username="judy", groups=[])
    key = deployment.key_of(deployment.sign_in(visitor, PARTNER, "judy"))
    assert deployment.whoami(key) is not None
    mock_provider.revoke_tokens("judy")
    wait_until(lambda: deployment.whoami(key) is None, WAIT, "the key is rejected")
