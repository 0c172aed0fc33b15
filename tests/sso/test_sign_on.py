"""Sign-ons with providers that others wrote: a browser goes through their pages, and access follows the provider."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Browser, Page, Role, role
from tests.console.servers import GROUP
from tests.harness.eventually import wait_until
from tests.harness.server_process import MANAGEMENT
from tests.sso.deployments import CANARY, CONFIG, SECRETS, Deployment, running_deployment
from tests.sso.providers.processes import MockProvider, NodeProvider
from tests.sso.real_providers import CORP, EMAIL, PARTNER, add_user, configure
from tests.sso.visits import Visitor


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        yield deployment


@pytest.fixture
def deployment(running: Deployment, node_provider: NodeProvider, mock_provider: MockProvider) -> Deployment:
    """With both providers, and the same user at both."""
    add_user(node_provider, mock_provider, running)
    configure(running, node_provider, mock_provider)
    return running


@pytest.fixture
def visitor(deployment: Deployment) -> Iterator[Visitor]:
    with Visitor(deployment.ca_file) as visitor:
        yield visitor


@pytest.fixture
def page(browser: Browser, deployment: Deployment) -> Iterator[Page]:
    page = browser.new_page(deployment.url)
    try:
        yield page
    finally:
        page.close_all()


def click_and_load(page: Page, target: Role) -> None:
    """Waits for the next page before anything is searched in it: that of another site is in another process."""
    count = len(page.events.loaded)
    page.click(target)
    page.wait_until(lambda: len(page.events.loaded) > count, "the next page is loaded")


def test_a_browser_signs_in_through_the_pages_of_oidc_provider(
    page: Page, deployment: Deployment, node_provider: NodeProvider
) -> None:
    page.goto(f"/auth/{CORP}/login?return=/console/projects")
    page.fill("Enter any login", "ada")
    page.fill("and password", "any")
    click_and_load(page, role("button", "Sign-in"))
    click_and_load(page, role("button", "Continue"))
    page.wait_until(lambda: page.path.startswith("/console/projects"), "the browser is back at the console")
    name = deployment.user_of(node_provider.issuer, "ada")["metadata"]["name"]
    review = page.eval(
        f"""fetch("{MANAGEMENT}/apis/authentication.k8s.io/v1/selfsubjectreviews", {{
            method: "POST", headers: {{ "Content-Type": "application/json" }},
            body: JSON.stringify({{ apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" }}),
        }}).then((response) => response.json())"""
    )
    assert review["status"]["userInfo"]["username"] == name


def test_a_browser_signs_in_through_the_page_of_oidc_provider_mock(
    page: Page, deployment: Deployment, mock_provider: MockProvider
) -> None:
    page.goto(f"/auth/{PARTNER}/login?return=/console/projects")
    page.fill("sub", "ada")
    click_and_load(page, role("button", "Authorize"))
    page.wait_until(lambda: page.path.startswith("/console/projects"), "the browser is back at the console")
    assert deployment.user_of(mock_provider.issuer, "ada")["spec"]["email"] == EMAIL


def test_a_user_who_declines_at_the_provider_gets_a_page(page: Page, deployment: Deployment) -> None:
    page.goto(f"/auth/{CORP}/login?return=/console/projects")
    click_and_load(page, role("link", "[ Cancel ]"))
    page.wait_until(lambda: page.path.startswith("/console/"), "the browser is back at the console")
    assert "access_denied" in page.path


def test_the_same_address_at_two_providers_is_two_users(
    deployment: Deployment, node_provider: NodeProvider, mock_provider: MockProvider, visitor: Visitor
) -> None:
    keys = [deployment.key_of(deployment.sign_in(visitor, id, "ada")) for id in (CORP, PARTNER)]
    corp, partner = (deployment.user_of(issuer, "ada") for issuer in (node_provider.issuer, mock_provider.issuer))
    assert corp["spec"]["email"] == partner["spec"]["email"] == EMAIL
    assert corp["metadata"]["name"] != partner["metadata"]["name"]
    names = [user["username"] for key in keys if (user := deployment.whoami(key)) is not None]
    assert names == [corp["metadata"]["name"], partner["metadata"]["name"]]


def test_the_provider_changes_its_keys(deployment: Deployment, node_provider: NodeProvider, visitor: Visitor) -> None:
    first = deployment.key_of(deployment.sign_in(visitor, CORP, "ada"))
    node_provider.rotate_keys()
    second = deployment.key_of(deployment.sign_in(visitor, CORP, "ada"))
    node_provider.rotate_keys(forget=True)
    third = deployment.key_of(deployment.sign_in(visitor, CORP, "ada"))
    assert None not in [deployment.whoami(key) for key in (first, second, third)]


def test_sessions_go_on_while_the_provider_is_down(
    deployment: Deployment, node_provider: NodeProvider, visitor: Visitor, page: Page
) -> None:
    key = deployment.key_of(deployment.sign_in(visitor, CORP, "ada"))
    node_provider.stop()
    try:
        wait_until(lambda: "signInError" in deployment.start(visitor, CORP).headers["location"], what="it is noticed")
        page.goto(f"/auth/{CORP}/login?return=/console/projects")
        page.wait_until(lambda: "provider_unavailable" in page.path, "the console says why")
        assert deployment.whoami(key) is not None
    finally:
        node_provider.start()
    wait_until(lambda: "signInError" not in deployment.start(visitor, CORP).headers["location"], what="it is back")
    assert deployment.key_of(deployment.sign_in(visitor, CORP, "ada"))


def test_a_logout_at_the_provider_ends_the_session_at_once(
    deployment: Deployment, node_provider: NodeProvider, visitor: Visitor
) -> None:
    node_provider.set_account("ivan", preferred_username="ivan", groups=[])
    key = deployment.key_of(deployment.sign_in(visitor, CORP, "ivan"))
    other = deployment.key_of(deployment.sign_in(visitor, PARTNER, "ivan"))
    node_provider.log_out(deployment.client_of(CORP), "ivan")
    assert deployment.whoami(key) is None
    assert deployment.whoami(other) is not None


def test_kubectl_is_rejected_once_the_connector_is_removed(
    deployment: Deployment,
    node_provider: NodeProvider,
    mock_provider: MockProvider,
    visitor: Visitor,
    component: Callable[[str], Path],
) -> None:
    node_provider.set_account("kim", preferred_username="kim", groups=["administrators"])
    key = deployment.key_of(deployment.sign_in(visitor, CORP, "kim"))
    command = [str(component("kubectl")), f"--server={deployment.url}{MANAGEMENT}", f"--token={key}"]
    command += [f"--certificate-authority={deployment.ca_file}", "get", "users.management.service.sh"]

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, capture_output=True, text=True, env={"HOME": "/nonexistent"}, check=False)

    listed = run()
    assert listed.returncode == 0 and "kim" in listed.stdout, listed.stderr
    deployment.configure()
    try:
        rejected = run()
        assert rejected.returncode == 1
        assert "must be logged in" in rejected.stderr or "Unauthorized" in rejected.stderr, rejected.stderr
    finally:
        configure(deployment, node_provider, mock_provider)


def test_the_client_secret_is_shown_and_written_nowhere(
    deployment: Deployment, visitor: Visitor, node_provider: NodeProvider
) -> None:
    """Except in the Secret itself, for those who can read Secrets."""
    deployment.sign_in(visitor, CORP, "ada")
    with deployment.console.server.client() as client:
        shown = [client.get(CONFIG).text, client.get(f"{GROUP}/ownedaccesskeys").text, client.get("/auth/methods").text]
        rejected = deployment.try_configure(deployment.connector(CORP, node_provider.issuer, clientSecret=CANARY))
    shown.append(rejected.text)
    assert rejected.status_code == 422
    written = deployment.audit_text() + deployment.console.server.log.read_text()
    assert CANARY not in "".join(shown) + written


def test_the_sign_in_methods_list_the_connectors_and_nothing_else_of_them(deployment: Deployment) -> None:
    with deployment.console.server.client(None) as client:
        response = client.get("/auth/methods")
    methods = response.json()["methods"]["sso"]
    assert [method["id"] for method in methods] == [CORP, PARTNER]
    for part in ("issuer", "clientId", "localhost", "ca"):
        assert part not in json.dumps([sorted(method) for method in methods])


def test_a_connector_without_its_secret_gets_a_page(
    deployment: Deployment, node_provider: NodeProvider, mock_provider: MockProvider, visitor: Visitor
) -> None:
    connector = deployment.connector(CORP, node_provider.issuer, clientSecretRef={"name": "nothing"})
    deployment.configure(connector)
    try:
        response = deployment.start(visitor, CORP)
        if response.is_redirect and response.headers["location"].startswith(node_provider.issuer):
            callback = f"{deployment.url}/auth/{CORP}/callback"
            response = visitor.get(visitor.sign_in(response.headers["location"], "ada", callback))
        assert deployment.reason_of(response) == "client_secret_missing"
    finally:
        configure(deployment, node_provider, mock_provider)


def test_a_secret_can_be_replaced_without_a_restart(
    deployment: Deployment, node_provider: NodeProvider, visitor: Visitor
) -> None:
    replaced = "another secret of the client, 0000000000002"
    node_provider.set_clients(replace(deployment.client_of(CORP), secret=replaced))
    try:
        refused = deployment.sign_in(visitor, CORP, "ada")
        assert deployment.reason_of(refused) == "provider_misconfigured"
        secret = {"stringData": {"clientSecret": replaced}}
        deployment.console.send("PATCH", f"{SECRETS}/provider", secret, patch=True)
        assert deployment.key_of(deployment.sign_in(visitor, CORP, "ada"))
    finally:
        node_provider.set_clients(deployment.client_of(CORP))
        deployment.console.send("PATCH", f"{SECRETS}/provider", {"stringData": {"clientSecret": CANARY}}, patch=True)
