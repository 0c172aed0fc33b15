"""What a new user does first, in the browser alone: from the key that the server prints to who changed what.

Nothing is known of the console: controls are found by what they are called on the screen, and no address is entered.
The cluster is a stand-in, with one pod that runs.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.controllers.instances.remote_namespace import default_namespace
from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Browser, Page, role
from tests.console.forms import read_editor, replace_in_editor
from tests.console.servers import PASSWORD, ConsoleServer, restarted_console
from tests.console.space_cluster import POD, SpaceCluster, running_cluster, serve_contents
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.pods import serve_streams

USER = "mary"
LOG = b"2026-11-17T01:00:00.5Z ready to serve\n"


@pytest.fixture
def new_server(tmp_path: Path, certificates: Certificates) -> Iterator[ConsoleServer]:
    """A server after its first start: no user has a password."""
    with restarted_console(tmp_path / "data", certificates) as console:
        yield console


@pytest.fixture
def cluster() -> Iterator[SpaceCluster]:
    namespace = default_namespace("space", "shop", "dev")
    with running_cluster() as cluster:
        serve_contents(cluster.fake, namespace)
        path = f"/api/v1/namespaces/{namespace}/pods/{POD}"
        serve_streams(cluster.fake, path)
        cluster.fake.set_response(f"{path}/log", CannedResponse(200, LOG, "text/plain"))
        yield cluster


@pytest.mark.timeout(600)
def test_a_new_user_does_ten_tasks_with_the_printed_key_alone(
    browser: Browser, new_server: ConsoleServer, cluster: SpaceCluster
) -> None:
    page = browser.new_page(new_server.url)
    page.allow_errors("401")
    sign_in_with_the_key(page, new_server.server.key)
    create_a_project(page)
    add_a_member_who_does_not_exist_yet(page)
    connect_a_cluster(page, cluster)
    create_a_space(page)
    read_the_log_and_type_into_the_terminal(page)
    create_a_limited_key(page)
    member = browser.new_page(new_server.url)
    member.allow_errors("401")
    ask_why_not(member)
    edit_what_another_tab_changes(page)
    delete_with_dependents(page)
    see_who_changed_what(page)
    assert page.errors == [] and member.errors == []
    page.close_all()
    member.close_all()


def go(page: Page, title: str) -> None:
    """By the navigation, where the number of objects may stand behind the title."""
    pattern = re.compile(rf"{re.escape(title)}( \d+)?")
    page.wait_for(role("link", title, exact=False))
    page.wait_idle()
    page.click(role("link", next(name for name in page.names("link") if pattern.fullmatch(name))))
    page.wait_for_text(title, "h1")


def sign_in_with_the_key(page: Page, key: str) -> None:
    page.goto("")
    page.wait_until(lambda: page.focused() == "textbox Access key", "the key is asked for first")
    page.send("Input.insertText", text=key)
    page.press("Enter")
    page.wait_for_text("Hello, admin", "h1")
    page.click(role("button", "Not now"))


def create_a_project(page: Page) -> None:
    page.click(role("link", "Create project"))
    page.fill("Name", "shop")
    page.click(role("button", "Create"))
    page.wait_for_text("shop", "h1")


def add_a_member_who_does_not_exist_yet(page: Page) -> None:
    page.click(role("tab", "Members"))
    page.fill("Name", USER)
    page.click(role("button", "Add"))
    page.wait_for_text("There is no such user", "main")
    page.click(role("link", f"Create the user {USER}"))
    page.wait_for_text("Create user", "h1")
    page.wait_until(lambda: page.value("Name") == USER, "the name is filled in")
    page.click(role("button", "Create"))
    page.wait_for_text(USER, "h1")
    page.click(role("button", "Set password…"))
    page.fill("New password", PASSWORD)
    page.press("Enter")
    page.wait_for_text("The password is set", ".toasts")
    page.wait_for_text("shop", "main")


def connect_a_cluster(page: Page, cluster: SpaceCluster) -> None:
    go(page, "Clusters")
    page.click(role("link", "Connect cluster"))
    page.fill("Name", "oslo")
    page.fill("Kubeconfig", cluster.fake.build_kubeconfig().decode())
    page.click(role("button", "Connect"))
    page.click(role("link", "Open the cluster"))
    page.wait_for_text("Ready", ".object-head")


def create_a_space(page: Page) -> None:
    go(page, "Spaces")
    page.click(role("link", "Create space"))
    page.fill("Project", "shop")
    page.fill("Name", "dev")
    page.click(role("button", "Create"))
    page.wait_for(role("link", POD))


def read_the_log_and_type_into_the_terminal(page: Page) -> None:
    page.click(role("link", "Logs"))
    page.wait_for_text("ready to serve", ".log")
    page.click(role("tab", "Terminal"))
    page.fill("Command", "cat")
    page.click(role("button", "Open a terminal"))
    page.wait_for_text("Connected", ".terminal-status")
    page.type("hello")
    page.wait_for_text("hello", ".terminal-lines")


def create_a_limited_key(page: Page) -> None:
    go(page, "Access keys")
    page.click(role("link", "Create access key"))
    page.fill("Display name", "Robot")
    page.click(role("radio", "Read only"))
    page.click(role("button", "Ask"))
    page.wait_for_text("No", ".tester .answer")
    page.click(role("button", "Create"))
    page.wait_for_text("fairlead_", "dialog")
    page.click(role("button", "Done"))
    page.wait_for_text("Robot", "h1")
    assert page.count(".toast") == 0, "the server does not warn of what the form has written"


def ask_why_not(page: Page) -> None:
    page.goto("")
    page.fill("User name", USER)
    page.fill("Password", PASSWORD)
    page.press("Enter")
    page.wait_for_text(f"Hello, {USER}", "h1")
    page.click(role("link", "shop"))
    page.wait_for(role("button", "Delete…"))
    # It is disabled without a reason while the permission is asked for.
    page.wait_until(lambda: page.attribute(role("button", "Delete…"), "title"), "it says why it is disabled")
    assert page.attribute(role("button", "Delete…"), "aria-disabled")
    go(page, "May I?")
    page.fill("Verb", "delete")
    page.fill("Kind", "projects")
    page.fill("Name", "shop")
    page.click(role("button", "Ask"))
    page.wait_for_text("No", ".answer")


def edit_what_another_tab_changes(page: Page) -> None:
    go(page, "Projects")
    page.click(role("link", "shop"))
    page.click(role("tab", "YAML"))
    page.wait_until(lambda: read_editor(page), "the editor has the text")
    replace_in_editor(page, "spec:\n", "spec:\n  displayName: The shop\n")
    other = page.open_tab()
    other.goto("")
    go(other, "Projects")
    other.click(role("link", "shop"))
    other.click(role("tab", "Edit"))
    other.fill("Display name", "Web shop")
    other.click(role("button", "Save"))
    other.wait_for_text("Web shop", "h1")
    other.close()
    page.wait_for_text("The object was changed since you opened this editor.", "main")
    page.click(role("button", "Review changes"))
    page.wait_for(".conflict")
    page.click(role("radio", "Keep mine"))
    page.click(role("button", "Merge"))
    page.click(role("button", "Review changes"))
    page.click(role("button", "Save"))
    page.wait_for_text("Saved.", "main")
    page.wait_for_text("The shop", "h1")


def delete_with_dependents(page: Page) -> None:
    page.click(role("button", "Delete…"))
    page.wait_for_text("dev", "dialog")
    page.click("dialog input")
    page.type("shop")
    page.click(role("button", "Delete"))
    page.wait_for_text("shop was deleted.", "main")


def see_who_changed_what(page: Page) -> None:
    go(page, "Audit log")
    page.fill("Name", "shop")

    def has_deletion() -> bool:
        return any("deleted" in row and "project shop" in row for row in page.texts("main tbody tr"))

    page.wait_until(has_deletion, "the deletion is listed")
    assert any("created" in row and "project shop" in row for row in page.texts("main tbody tr"))
