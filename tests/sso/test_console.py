"""Single sign-on as users see it in the console, with a real provider."""

from collections.abc import Iterator

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Browser, Page, role
from tests.sso.deployments import Deployment, running_deployment
from tests.sso.providers.processes import NodeProvider

CORP = "corp"
SCOPES = ["openid", "profile", "email", "groups", "offline_access"]
RULE = {"id": "admins", "connector": CORP, "value": "administrators", "groups": ["system:masters"]}


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, node_provider: NodeProvider
) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("sso"), certificates) as deployment:
        node_provider.set_clients(deployment.client_of(CORP))
        node_provider.set_account("ada", preferred_username="ada", name="Ada", groups=["administrators"])
        node_provider.set_account("eve", preferred_username="eve", name="Eve", groups=["visitors"])
        options = {
            "scopes": SCOPES,
            "prompt": "consent",
            "refreshIntervalSeconds": 5,
            "allowedGroups": ["administrators"],
        }
        deployment.configure(deployment.connector(CORP, node_provider.issuer, **options), rules=[RULE])
        yield deployment


@pytest.fixture
def page(browser: Browser, deployment: Deployment) -> Iterator[Page]:
    page = browser.new_page(deployment.url)
    try:
        yield page
    finally:
        page.close_all()


def sign_on(page: Page, name: str) -> None:
    page.click(role("link", "Sign in with Corp"))
    page.fill("Enter any login", name)
    page.fill("and password", "any")
    page.click(role("button", "Sign-in"))
    page.click(role("button", "Continue"))


def test_a_user_signs_on_and_comes_back_to_the_page_and_signs_out(page: Page, deployment: Deployment) -> None:
    page.goto("users?q=ada&columns=wide")
    sign_on(page, "ada")
    page.wait_for(".vtable-body .vtable-row")
    assert page.path == "/console/users?q=ada&columns=wide"
    page.goto("account")
    page.wait_for_text("Corp", "main table")
    page.goto("settings")
    page.wait_for_text(f"{deployment.url}/auth/corp/callback", "main")
    page.wait_for_text("groups = administrators", "main table")
    page.click("details.account > summary")
    page.click(role("button", "Sign out"))
    page.wait_for_text("The provider still has a session", "dialog")
    page.click(role("button", "Only here"))
    page.wait_for(role("link", "Sign in with Corp"))


def test_a_user_who_is_not_allowed_reads_why(page: Page) -> None:
    page.goto("projects")
    sign_on(page, "eve")
    page.wait_for_text("You are in none of the groups that may use this server.", "dialog")


def test_a_login_that_the_provider_cannot_confirm_is_marked(page: Page, node_provider: NodeProvider) -> None:
    page.goto("account")
    sign_on(page, "ada")
    page.wait_for_text("Corp", "main table")
    node_provider.stop()
    try:
        page.wait_for_text("Not confirmed", "main table", timeout=60)
    finally:
        node_provider.start()
    page.wait_until(lambda: "Not confirmed" not in page.text("main table"), "the login is confirmed again", timeout=60)
