"""What five kinds of users see, what they are offered, and that no page asks for what its user may not do.

A 403 is for requests that a user chose to send. A page that sends them by itself fills the audit log with refusals,
among which a real one is not found.
"""

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, AUDITOR, GROUP, OUTSIDER, OWNER, PROJECT, USERS, VIEWER, ConsoleServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ENTRIES = "[...document.querySelectorAll('#navigation li:not([hidden]) a')]"
WORK = ("Projects", "Workspaces", "Spaces", "Virtual clusters")
NEW = ".list-tools a.primary"
VIEWS = ("", "?view=members", "?view=events", "?view=form", "?view=changes", "?view=details", "?view=yaml")


def open_console(page: Page) -> dict[str, str]:
    """The entries of the navigation: paths by their titles."""
    page.goto("")
    page.wait_for("main .content")
    page.wait_idle(0.5, timeout=30)
    found: dict[str, str] = page.eval(
        f"Object.fromEntries({ENTRIES}.map((a) => [a.children[1].innerText, a.pathname]))"
    )
    return found


def visit(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for("main .content")
    page.wait_idle(0.4, timeout=30)


def list_denied(page: Page) -> list[str]:
    return [f"{each.method} {each.path}" for each in page.requests if each.status == 403]


@pytest.mark.parametrize("user", USERS)
def test_no_page_of_the_navigation_asks_for_what_the_user_may_not_do(page: Page, sign_in: SignIn, user: str) -> None:
    sign_in(page, user)
    for title, path in open_console(page).items():
        visit(page, path)
        assert page.count("section.error") == 0, f"{title}: {page.text('main')}"
    assert list_denied(page) == []


@pytest.mark.parametrize("user", [ADMIN, OWNER, VIEWER, AUDITOR])
def test_no_page_of_a_project_asks_for_what_the_user_may_not_do(page: Page, sign_in: SignIn, user: str) -> None:
    sign_in(page, user)
    paths = [*(f"projects/{PROJECT}{view}" for view in VIEWS), "account", "access"]
    if user != VIEWER:  # it is not theirs
        paths.append(f"devpodworkspaceinstances/service-p-{PROJECT}/cart")
    for path in paths:
        visit(page, path)
        assert page.count("section.error") == 0, path
    assert list_denied(page) == []


@pytest.mark.parametrize(
    ("user", "shown", "hidden"),
    [
        (ADMIN, ("Clusters", "Users", "Teams", "Settings", "Audit log", *WORK), ()),
        (OWNER, (*WORK, "Audit log", "May I?"), ("Settings",)),
        (VIEWER, (*WORK, "Audit log", "May I?"), ("Settings",)),
        (AUDITOR, ("Clusters", "Users", "Teams", "Audit log", *WORK), ()),
        (OUTSIDER, ("Overview", "May I?", "About"), ("Settings", "Runners")),
    ],
)
def test_the_navigation_has_what_the_user_may_list(
    page: Page, sign_in: SignIn, user: str, shown: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    sign_in(page, user)
    titles = open_console(page).keys()
    assert set(shown) <= titles and not set(hidden) & titles, titles


@pytest.mark.parametrize(
    ("user", "path", "is_offered"),
    [
        (ADMIN, "clusters", True),
        (ADMIN, "users", True),
        (OWNER, "spaceinstances", True),
        (VIEWER, "spaceinstances", False),
        (AUDITOR, "users", False),
        (AUDITOR, "clusters", False),
        (OUTSIDER, "spaceinstances", False),
    ],
)
def test_creating_is_offered_to_those_who_may(
    page: Page, sign_in: SignIn, user: str, path: str, is_offered: bool
) -> None:
    sign_in(page, user)
    visit(page, path)
    assert page.attribute(NEW, "aria-disabled") == (None if is_offered else "true")
    assert is_offered or page.attribute(NEW, "title")


@pytest.mark.parametrize(("user", "may_change"), [(ADMIN, True), (OWNER, True), (VIEWER, False), (AUDITOR, False)])
def test_a_project_can_be_changed_by_those_who_may(page: Page, sign_in: SignIn, user: str, may_change: bool) -> None:
    sign_in(page, user)
    visit(page, f"projects/{PROJECT}")
    for name in ("Edit YAML", "Delete…"):
        disabled = page.attribute(role("button", name), "aria-disabled") == "true"
        assert disabled != may_change, name
    visit(page, f"projects/{PROJECT}?view=members")
    assert (page.count(role("button", "Add")) > 0) == may_change


def test_an_auditor_finds_who_changed_a_project(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    server.send("PATCH", f"{GROUP}/projects/{PROJECT}", {"metadata": {"labels": {"seen": "yes"}}}, patch=True)
    sign_in(page, AUDITOR)
    visit(page, f"audit?resource=projects&name={PROJECT}")
    page.wait_for_text("admin", "table.audit", timeout=20)
    page.wait_for_text(f"projects/{PROJECT}", "table.audit")


def test_one_without_rights_reads_and_changes_only_the_own_account(page: Page, sign_in: SignIn) -> None:
    sign_in(page, OUTSIDER)
    visit(page, "account")
    page.wait_for_text("this browser", "main")
    visit(page, f"projects/{PROJECT}")
    page.wait_for("section.error")
    assert "Storefront" not in page.text()
