"""The first page of the console for its readers: the fleet, own things of members, first steps on a new server."""

from collections.abc import Iterator

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Browser, Page, role
from tests.console.conftest import SignIn
from tests.console.servers import (
    ADMIN,
    GROUP,
    LOGIN_COOKIE,
    OUTSIDER,
    OWNER,
    PROJECT,
    VIEWER,
    ConsoleServer,
    create_user,
    running_console,
)
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT

STEPS = ("cluster", "project", "invite", "space", "workspace")


@pytest.fixture(scope="module")
def new_server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ConsoleServer]:
    with running_console(tmp_path_factory.mktemp("new") / "data", certificates) as console:
        yield console


@pytest.fixture
def first_page(browser: Browser, new_server: ConsoleServer) -> Iterator[Page]:
    """The overview of the administrator of a server without objects."""
    page = browser.new_page(new_server.url)
    try:
        page.set_cookie(LOGIN_COOKIE, new_server.log_in(ADMIN))
        page.goto("")
        page.wait_for(".first-steps li")
        yield page
        assert page.errors == []
    finally:
        page.close_all()


def test_the_overview_shows_the_fleet_what_needs_attention_and_recent_changes(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("")
    page.wait_for_text("Singapore (gone)", "main")
    page.wait_for_text("Offline", ".cluster-tiles")
    page.wait_for_text("ledger", "main")
    page.wait_for_text("created", "main")


def test_heartbeats_are_no_recent_changes(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    server.create(f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/default/leases", {"metadata": {"name": "beat"}})
    server.create(CONFIGMAPS, {"metadata": {"name": "changed"}})
    sign_in(page, ADMIN)
    page.goto("")
    page.wait_for_text("admin created the config maps changed", timeout=20)
    assert "lease" not in page.text("main")


def test_a_user_without_any_right_sees_an_overview_without_errors(page: Page, sign_in: SignIn) -> None:
    sign_in(page, OUTSIDER)
    page.goto("")
    page.wait_for_text("Hello,", "h1")
    page.wait_for_text("Needs attention", "main")
    assert "Singapore" not in page.text("main")


def test_a_new_server_shows_the_first_steps_instead_of_zeros(first_page: Page, new_server: ConsoleServer) -> None:
    steps = first_page.eval("[...document.querySelectorAll('.first-steps li')].map((each) => each.dataset.step)")
    assert steps == list(STEPS)
    assert first_page.eval("document.querySelector('.tiles').hidden")
    assert first_page.count("main .primary") == 1  # the next step
    project = {"apiVersion": "management.service.sh/v1", "kind": "Project", "metadata": {"name": "first"}, "spec": {}}
    new_server.create(f"{GROUP}/projects", project)
    first_page.wait_for("[data-step=project][data-done=true]")
    assert first_page.count("[data-step=project] .button") == 0
    create_user(new_server, "ada")
    first_page.reload()
    first_page.wait_for("[data-step=invite][data-done=true]")
    first_page.click(role("link", "Connect"))
    first_page.wait_for_text("Connect a cluster", "h1")


def test_the_first_steps_can_be_hidden(first_page: Page) -> None:
    first_page.click(role("button", "Hide these steps"))
    first_page.wait_gone(".first-steps")
    first_page.reload()
    first_page.wait_for_text("No cluster is connected yet", "main")
    assert first_page.count(".first-steps") == 0


def test_members_get_no_first_steps_and_see_their_own_things_first(
    page: Page, server: ConsoleServer, sign_in: SignIn
) -> None:
    space = {
        "apiVersion": "management.service.sh/v1",
        "kind": "SpaceInstance",
        "metadata": {"name": "mine"},
        "spec": {"owner": {"user": OWNER}, "clusterRef": {"cluster": "frankfurt"}},
    }
    server.create(f"{GROUP}/namespaces/service-p-{PROJECT}/spaceinstances", space)
    sign_in(page, OWNER)
    page.goto("")
    page.wait_for_text(f"Space in {PROJECT}", "main")
    page.wait_for(role("link", "Create a workspace"))
    page.wait_for_text("owner", "main .card:has(a[href$='/projects/storefront'])")
    assert page.eval("document.querySelector('main h2').innerText") == "Mine"
    assert page.count(".first-steps") == 0 and page.count(".tiles") == 0
    assert page.count("main .primary") == 1
    page.click(role("link", "mine"))
    page.wait_for_text("mine", "h1")


def test_no_request_of_an_overview_is_refused(page: Page, sign_in: SignIn) -> None:
    for user in (OUTSIDER, VIEWER, OWNER):
        sign_in(page, user)
        page.clear_requests()
        page.goto("")
        page.wait_idle()
        assert [each.path for each in page.requests if each.status >= 400] == [], user


def test_recent_changes_are_grouped_and_without_what_was_refused(
    page: Page, server: ConsoleServer, sign_in: SignIn
) -> None:
    for name in ("one", "two", "three", "four", "five"):
        server.create(CONFIGMAPS, {"metadata": {"name": f"grouped-{name}"}})
    with server.server.client() as client:
        assert client.post(CONFIGMAPS, json={"metadata": {"name": "grouped-one"}}).status_code == 409
        assert client.delete(f"{CONFIGMAPS}/missing").status_code == 404
        assert client.delete(f"{CONFIGMAPS}/grouped-one").status_code == 200
    sign_in(page, ADMIN)
    page.goto("")
    page.wait_for_text("admin created the config maps grouped-five, grouped-four, grouped-three and ", "main")
    page.wait_for_text("admin deleted the config map grouped-one", "main")
    assert "missing" not in page.text("main")
    page.click(role("link", "grouped-five"))
    page.wait_for_text("grouped-five", "h1")
