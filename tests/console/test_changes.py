"""The tabs Changes and Details of an object: who changed it and which fields, and its metadata."""

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, OWNER, PROJECT, VIEWER, ConsoleServer

PROJECT_PATH = f"{GROUP}/projects/{PROJECT}"


def test_the_changes_of_an_object_are_one_click_from_it(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    description = {"spec": {"description": "Sells ships."}}
    server.send("PATCH", f"{PROJECT_PATH}?fieldManager=test-of-changes", description, patch=True)
    with server.server.client() as client:
        headers = {"Content-Type": "application/merge-patch+json"}
        assert client.patch(PROJECT_PATH, json={"spec": {"owner": 1}}, headers=headers).status_code == 422
    sign_in(page, ADMIN)
    page.goto(f"projects/{PROJECT}")
    page.click(role("tab", "Changes"))
    page.wait_for("table.changes tbody tr")
    refused, changed, *_ = page.texts("table.changes tbody tr")
    assert "422" in refused and "spec" not in refused
    assert ADMIN in changed and "spec.description" in changed and "done" in changed
    assert "created" in page.texts("table.changes tbody tr")[-1]
    page.click("table.changes tbody tr:nth-child(2) a")
    page.wait_for_text(f"admin changed the project {PROJECT}", "h1")


def test_members_see_their_own_changes_without_a_refused_request(page: Page, sign_in: SignIn) -> None:
    sign_in(page, VIEWER)
    page.goto(f"projects/{PROJECT}?view=changes")
    page.wait_for_text("You have not changed it", "main")
    page.wait_idle()
    assert [each.path for each in page.requests if each.status >= 400] == []


def test_metadata_is_in_the_details(page: Page, sign_in: SignIn) -> None:
    sign_in(page, OWNER)
    page.goto(f"projects/{PROJECT}")
    page.wait_for_text("Quotas", "main")
    page.wait_idle()
    for title in ("Labels", "Annotations", "Who set this", "Dependants", "Specification"):
        assert title not in page.texts("main h2"), title
    page.click(role("tab", "Details"))
    page.wait_for_text("Specification", "main")
    for title in ("Labels", "Annotations", "Who set this", "Dependants"):
        assert title in page.texts("main h2"), title
