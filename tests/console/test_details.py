"""What is easy to miss: work that outlives its page, names as people know them, commands for the object of a page."""

import time
from typing import Any

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, PROJECT, VIEWER, ConsoleServer
from tests.harness.server_process import CONFIGMAPS

FAST_INTERVALS = "const every = setInterval; window.setInterval = (run, time) => every(run, Math.min(time, 300));"
COUNT_STRINGIFY = """window.calls = 0; const stringify = JSON.stringify;
JSON.stringify = (...all) => { window.calls++; return stringify(...all); };"""
SUM_OF_SHIFTS = """new Promise((resolve) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) sum += each.value; })
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(sum), 300);
})"""


def manifest(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def admin(page: Page, sign_in: SignIn) -> Page:
    sign_in(page, ADMIN)
    return page


def test_a_runner_that_does_not_respond_needs_attention(admin: Page, server: ConsoleServer) -> None:
    server.create(f"{GROUP}/runners", manifest("Runner", "quiet"))
    ready = {"type": "Ready", "status": "Unknown", "reason": "Silent", "message": "no heartbeat since noon"}
    status = {"phase": "Initialized", "conditions": [ready | {"lastTransitionTime": "2026-01-01T12:00:00Z"}]}
    server.send("PATCH", f"{GROUP}/runners/quiet/status", {"status": status}, patch=True)
    admin.goto("")
    admin.wait_for_text("quiet", ".attention")
    admin.goto("runners?q=quiet")
    admin.wait_for_text("Silent", ".vtable-row")


def test_a_stopped_workspace_is_not_called_ready(admin: Page, server: ConsoleServer) -> None:
    workspaces = f"{GROUP}/namespaces/service-p-{PROJECT}/devpodworkspaceinstances"
    admin.goto(f"devpodworkspaceinstances/~new?project={PROJECT}")
    admin.wait_for_text("Workspace in a container", ".choices")
    admin.fill("Name", "resting")
    admin.click(role("button", "Create"))
    admin.wait_for_text("resting", "h1")
    ready = {"type": "Ready", "status": "False", "reason": "Stopped", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    status = {"phase": "Ready", "lastWorkspaceStatus": "Stopped", "conditions": [ready]}
    server.send("PATCH", f"{workspaces}/resting/status", {"status": status}, patch=True)
    admin.goto("devpodworkspaceinstances?q=resting")
    admin.wait_for_text("Stopped", ".vtable-row")
    row = admin.text(".vtable-body .vtable-row")
    assert "Ready" not in row
    assert ADMIN in row  # who created it


def test_a_filter_that_was_typed_just_before_leaving_changes_nothing(admin: Page) -> None:
    admin.goto("projects")
    admin.wait_for(role("link", PROJECT))
    admin.eval(
        """(() => {
          const filter = document.querySelector("[data-filter]");
          filter.value = "app=web";
          filter.dispatchEvent(new Event("input"));
          document.querySelector('#navigation a[href$="/teams"]').click();
        })()"""
    )
    admin.wait_until(lambda: admin.path == "/console/teams", "the other page is shown")
    time.sleep(0.6)
    assert admin.path == "/console/teams"


def test_the_health_of_deleted_clusters_is_not_requested(admin: Page, server: ConsoleServer) -> None:
    server.create(f"{GROUP}/clusters", manifest("Cluster", "short-lived"))
    admin.send("Page.addScriptToEvaluateOnNewDocument", source=FAST_INTERVALS)
    admin.goto("")
    requests = lambda: [each for each in admin.requests if each.path.endswith("/clusters/short-lived/health")]  # noqa: E731
    admin.wait_until(requests, "its health is requested")
    server.send("DELETE", f"{GROUP}/clusters/short-lived")
    admin.wait_gone('.cluster-tile[href$="/clusters/short-lived"]')
    for _ in range(2):  # one of them may have begun before
        admin.clear_requests()
        is_requested = lambda: any(each.path.endswith("/health") for each in admin.requests)  # noqa: E731
        admin.wait_until(is_requested, "the health of another cluster is requested")
        time.sleep(1.0)
    assert requests() == []


def test_parts_of_a_page_that_were_replaced_are_not_rendered_any_more(admin: Page, server: ConsoleServer) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "parts"}, "data": {"key": "begin"}}
    server.create(CONFIGMAPS, body)
    admin.send("Page.addScriptToEvaluateOnNewDocument", source=COUNT_STRINGIFY)
    admin.goto("configmaps/default/parts")
    admin.wait_for_text("begin", "main .tree")

    def count_calls(value: str) -> int:
        admin.wait_idle()
        admin.eval("window.calls = 0")
        server.send("PATCH", f"{CONFIGMAPS}/parts", {"data": {"key": value}}, patch=True)
        admin.wait_for_text(value, "main .tree")
        return int(admin.eval("window.calls"))

    before = count_calls("first")
    for _ in range(3):
        server.send("PATCH", f"{CONFIGMAPS}/parts", {"binaryData": {"more": "AAAA"}}, patch=True)
        admin.wait_for_text("more", "main .tree")
        server.send("PATCH", f"{CONFIGMAPS}/parts", {"binaryData": None}, patch=True)
        admin.wait_until(lambda: "more" not in "".join(admin.texts("main .tree")), "the part is gone")
    assert count_calls("second") <= before + 2


@pytest.mark.parametrize("path", ["clusters", "apps"])
def test_what_is_above_a_list_does_not_push_it_down(admin: Page, path: str) -> None:
    admin.goto(path)
    admin.wait_for(".vtable-body .vtable-row")
    admin.wait_idle()
    assert admin.eval(SUM_OF_SHIFTS) < 0.1


def test_the_palette_offers_the_actions_and_tabs_of_the_object(admin: Page) -> None:
    admin.goto(f"projects/{PROJECT}")
    admin.wait_for(role("tab", "Members"))
    admin.wait_idle()
    admin.press("Control+k")
    admin.wait_for(role("combobox", "Search pages, objects and actions"))
    admin.type("members")
    admin.wait_for_text("Members", ".palette [aria-selected=true]")
    admin.press("Enter")
    admin.wait_until(lambda: admin.path.endswith("?view=members"), "the tab is chosen")
    admin.press("Control+k")
    admin.type("delete…")
    admin.wait_for_text("On this page", ".palette [aria-selected=true]")
    admin.press("Enter")
    admin.wait_for_text("Delete project", "dialog")


def test_display_names_and_titles_of_kinds_stand_for_names(admin: Page, server: ConsoleServer) -> None:
    server.create(f"{GROUP}/users", manifest("User", "ghopper", displayName="Grace Hopper", username="ghopper"))
    admin.goto("audit")
    admin.fill("User", "grace hopper")
    admin.press("Tab")
    admin.wait_until(lambda: "user=ghopper" in admin.path and admin.value("User") == "ghopper", "the name is found")
    admin.fill("Kind", "Virtual clusters")
    admin.press("Tab")
    admin.wait_until(lambda: "resource=virtualclusterinstances" in admin.path, "the kind is found")
    admin.goto("access?verb=get&resource=x.y")
    admin.fill("Kind", "Workspaces")
    admin.click(role("button", "Ask"))
    admin.wait_for_text("May I get workspaces?", ".answer")


def test_an_unknown_field_of_a_new_object_is_shown_at_its_line(admin: Page) -> None:
    admin.goto("projects/~new?name=strict")
    admin.click(role("tab", "YAML"))
    text = "apiVersion: management.service.sh/v1\nkind: Project\nmetadata:\n  name: strict\nspec:\n  quota: 1\n"
    admin.fill("YAML of the object", text)
    admin.click(role("button", "Check"))
    admin.wait_for_text('Line 6: unknown field "spec.quota"', ".problems")


def test_an_administrator_acts_as_another_user_until_stopped(admin: Page) -> None:
    admin.goto(f"users/{VIEWER}")
    action = role("button", "Act as this user")
    admin.wait_until(lambda: admin.attribute(action, "aria-disabled") is None, "it is known to be permitted")
    admin.click(action)
    admin.wait_for_text(f"You act as {VIEWER}. You are {ADMIN}.", ".acting")
    admin.goto("users")
    admin.wait_for_text("You act as", ".acting")
    other = admin.open_tab()
    other.goto("about")
    other.wait_for_text("Version", "main")
    assert other.count(".acting") == 0
    admin.click(role("button", "Stop"))
    admin.wait_gone(".acting")
    admin.wait_for_text(f"Hello, {ADMIN}", "h1")
