"""Pages of the console that are made by hand: sign-in, overview, account, projects, apps, instances, audit log."""

import time

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, OUTSIDER, OWNER, PASSWORD, PROJECT, VIEWER, ConsoleServer
from tests.harness.server_process import CONFIGMAPS

HOSTILE = "<img src=x onerror=window.hacked=1>"
RECORD_BUTTON = """
window.positions = new Set();
const record = () => {
  const button = document.querySelector("main .create-instance button.primary");
  if (button) window.positions.add(Math.round(button.getBoundingClientRect().top));
  requestAnimationFrame(record);
};
record();
"""
PROJECT_NAMESPACE = f"service-p-{PROJECT}"


def test_a_user_signs_in_and_comes_to_the_page_of_the_address(page: Page) -> None:
    page.goto("projects")
    page.fill("User name", ADMIN)
    page.fill("Password", "wrong")
    page.press("Enter")
    page.wait_for_text("User name or password is wrong")
    page.fill("Password", PASSWORD)
    page.press("Enter")
    page.wait_for(role("link", PROJECT))
    assert page.path.endswith("/console/projects")


def test_an_ended_login_is_renewed_over_the_page_and_drafts_are_kept(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("projects/~new")
    page.wait_for(role("textbox", "Name"))
    page.fill("Name", "half-typed")
    page.clear_cookies()
    page.click(role("button", "Check"))
    page.wait_for("dialog.sign-in")
    page.fill("Password", PASSWORD)
    page.press("Enter")
    page.wait_gone("dialog.sign-in")
    assert page.value("Name") == "half-typed"


def test_the_palette_leads_to_objects_and_pages_by_keyboard(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("")
    page.wait_for("#navigation a")
    page.press("Control+k")
    page.wait_for("dialog.palette")
    page.type("frankfurt")
    page.wait_for_text("Cluster", "dialog.palette [aria-selected=true]")
    page.press("Enter")
    page.wait_for_text("Frankfurt", "h1")
    page.press("g", "p")
    page.wait_for_text("Projects", "h1")


def test_the_account_page_changes_the_profile_and_lists_logins(
    page: Page, server: ConsoleServer, sign_in: SignIn
) -> None:
    sign_in(page, VIEWER)
    page.goto("account")
    page.wait_for_text("this browser", "main")
    page.fill("Display name", HOSTILE)
    page.click(role("button", "Save"))
    page.wait_for_text("Saved", "body")
    assert server.send("GET", f"{GROUP}/users/{VIEWER}")["spec"]["displayName"] == HOSTILE
    page.reload()
    page.wait_for_text(HOSTILE, "header.top")
    assert page.eval("window.hacked") is None


def test_signing_out_everywhere_ends_other_logins(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    sign_in(page, OUTSIDER)
    other = server.log_in(OUTSIDER)
    page.goto("account")
    page.wait_for_text("this browser", "main")
    page.click(role("button", "Sign out everywhere"))
    page.click("dialog footer button.danger")
    page.wait_for("dialog.sign-in")
    page.set_cookie("__Host-service_access_key", other)
    page.goto("account")
    page.wait_for("dialog.sign-in")


def test_an_owner_adds_and_removes_a_member(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    sign_in(page, OWNER)
    page.goto(f"projects/{PROJECT}?view=members")
    page.wait_for(role("button", "Add"))
    page.fill("Name", OUTSIDER)
    page.click(role("button", "Add"))
    page.wait_for(role("button", f"Remove {OUTSIDER}"))
    members = server.send("GET", f"{GROUP}/projects/{PROJECT}")["spec"]["members"]
    assert {"kind": "User", "name": OUTSIDER, "clusterRole": "user"} in members
    page.click(role("button", f"Remove {OUTSIDER}"))
    page.wait_gone(role("button", f"Remove {OUTSIDER}"))


def test_a_viewer_sees_members_but_cannot_change_them(page: Page, sign_in: SignIn) -> None:
    sign_in(page, VIEWER)
    page.goto(f"projects/{PROJECT}?view=members")
    page.wait_for_text(VIEWER, "main table")
    assert page.count(role("button", "Add")) == 0


def test_the_page_of_a_project_shows_quotas_and_what_is_in_it(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"projects/{PROJECT}")
    page.wait_for_text("2 of 5", "main")
    page.wait_for_text("Workspaces", "main")


def test_an_owner_creates_a_space_from_a_template(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"spaceinstances/~new?project={PROJECT}&template=team-space")
    page.wait_for(".choice input:checked")
    page.fill("Name", "made-here")
    assert page.value("Cluster") in ("frankfurt", "virginia")  # without one, it would wait for ever
    page.fill("Cluster", "frankfurt")
    page.fill("Sleeps after", "7200")
    page.click(role("button", "Check"))
    page.wait_for_text("Nothing has been created yet", "main")
    page.click(role("button", "Create"))
    page.wait_for_text("made-here", "h1")
    made = server.send("GET", f"{GROUP}/namespaces/{PROJECT_NAMESPACE}/spaceinstances/made-here")
    assert made["metadata"]["annotations"]["sleepmode.service.sh/sleep-after"] == "7200"
    spec = made["spec"]
    assert spec["clusterRef"]["cluster"] == "frankfurt"
    assert spec["templateRef"]["name"] == "team-space"


def test_a_template_with_a_parameter_for_it_asks_for_the_time_of_sleep_itself(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"virtualclusterinstances/~new?project={PROJECT}&template=default")
    page.wait_for_text("Seconds without requests after which it sleeps", "main")
    assert "Sleeps after" not in page.text("main")


def test_a_space_is_held_awake(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    path = f"{GROUP}/namespaces/{PROJECT_NAMESPACE}/spaceinstances"
    kind = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance"}
    notes = {"sleepmode.service.sh/sleep-after": "3600"}
    spec = {"clusterRef": {"cluster": "frankfurt", "namespace": "held"}}
    server.create(path, {**kind, "metadata": {"name": "held", "annotations": notes}, "spec": spec})
    sign_in(page, ADMIN)
    page.goto(f"spaceinstances/{PROJECT_NAMESPACE}/held")
    hold = role("button", "Keep awake for 2 h")
    page.wait_until(lambda: page.attribute(hold, "aria-disabled") is None, "it may be held")
    page.click(hold)
    page.wait_for_text("Held awake until")
    until = server.send("GET", f"{path}/held")["metadata"]["annotations"]["sleepmode.service.sh/hold-until"]
    assert abs(int(until) - time.time() - 7200) < 60
    release = role("button", "End keeping awake")
    page.wait_until(lambda: page.attribute(release, "aria-disabled") is None, "it may be released")
    page.click(release)
    page.wait_until(lambda: "Held awake until" not in page.text(), "it is not held")


def test_the_form_of_a_space_does_not_move_while_it_loads(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.send("Page.addScriptToEvaluateOnNewDocument", source=RECORD_BUTTON)
    page.goto(f"spaceinstances/~new?project={PROJECT}")
    page.wait_for(".choice input:checked")
    page.wait_idle()
    assert page.eval("window.positions.size") == 1


def test_a_user_without_a_project_learns_why_nothing_can_be_created(page: Page, sign_in: SignIn) -> None:
    sign_in(page, OUTSIDER)
    page.goto("spaceinstances/~new")
    page.wait_for_text("An owner of a project can add you", "main")


def test_apps_are_a_catalogue_with_readmes_that_stay_text(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    readme = f"# About\n\n{HOSTILE} and [a link](javascript:alert(1)) and **bold**\n\n- one\n- two\n"
    server.send("PATCH", f"{GROUP}/apps/ingress", {"spec": {"readme": readme}}, patch=True)
    sign_in(page, ADMIN)
    page.goto("apps")
    page.wait_for_text("Ingress", ".catalogue")
    page.goto("apps/ingress")
    page.wait_for_text(HOSTILE, ".markdown")
    assert page.count(".markdown li") == 2 and page.count(".markdown a") == 0 and page.count(".markdown img") == 0
    page.click(role("button", "Install"))
    page.wait_for_text("Create installed app", "h1")


def test_the_audit_log_shows_changes_live_and_why_a_request_was_denied(
    page: Page, server: ConsoleServer, sign_in: SignIn
) -> None:
    sign_in(page, ADMIN)
    page.goto("audit")
    page.wait_for_text("New requests appear", "main")
    server.create(CONFIGMAPS, {"metadata": {"name": "audited"}})
    page.wait_for(role("link", "config map audited"), timeout=20)
    page.click(role("link", "config map audited"))
    page.wait_for_text("Audit ID", "main")
    page.wait_for_text("allowed", "main")
    page.goto("audit?what=all")
    page.wait_for_text("asked to sign in", "table.audit")
    page.click(role("link", "/auth/password/login"))
    page.wait_until(lambda: page.text("h1") == "admin asked to sign in", "the title is in words")


def test_dry_runs_are_no_changes(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    server.create(CONFIGMAPS, {"metadata": {"name": "tried"}})
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
    server.send("DELETE", f"{CONFIGMAPS}/tried", options)
    server.send("PATCH", f"{CONFIGMAPS}/tried?dryRun=All", {"data": {"a": "b"}}, patch=True)
    server.create(CONFIGMAPS, {"metadata": {"name": "tried-last"}})
    sign_in(page, ADMIN)
    page.goto("audit")
    page.wait_for(role("link", "config map tried-last"), timeout=20)
    assert page.count(role("link", "config map tried")) == 1
    page.goto("audit?what=all&name=tried")
    page.wait_for_text("deleted (dry run)", "table.audit")
    page.wait_for_text("changed (dry run)", "table.audit")
    page.goto("")
    page.wait_for_text("created the config maps tried-last, tried", "main")
    assert "deleted the config map" not in page.text("main") and "changed the config map" not in page.text("main")


def test_users_see_only_their_own_requests_in_the_audit_log(page: Page, sign_in: SignIn) -> None:
    sign_in(page, VIEWER)
    page.goto("audit?what=all")
    page.wait_for_text("You see your own requests", "main")
    page.wait_for("table.audit tbody tr")
    assert set(page.texts("table.audit tbody td:nth-child(2)")) == {VIEWER}


def test_settings_are_for_administrators(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("settings")
    page.wait_for_text("While the server runs", "main")
    sign_in(page, VIEWER)
    page.goto("settings")
    page.wait_for("section.error")


def test_an_address_without_a_page_says_so(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("no/such/page")
    page.wait_for_text("This page does not exist", "main")


def test_pages_fit_on_a_phone(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.set_size(360, 740)
    for path in ("", "account", f"projects/{PROJECT}", "audit", "apps", "spaceinstances/~new", "about", "kinds"):
        page.goto(path)
        page.wait_idle()
        assert page.eval("document.documentElement.scrollWidth") <= 360, path
        overflow = "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"
        assert page.eval(overflow) <= 0, path
    page.goto("audit")
    page.wait_for("table.audit td")
    rows = "[...document.querySelectorAll('table.audit tbody tr')]"
    assert page.eval(f"Math.max(...{rows}.map((row) => row.offsetHeight))") < 180, "five labelled lines, or one wraps"


def test_a_space_is_put_to_sleep_and_woken_up(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    path = f"{GROUP}/namespaces/{PROJECT_NAMESPACE}/spaceinstances"
    spec = {"clusterRef": {"cluster": "frankfurt", "namespace": "sleeper"}}
    kind = {"apiVersion": "management.service.sh/v1", "kind": "SpaceInstance"}
    server.create(path, {**kind, "metadata": {"name": "sleeper"}, "spec": spec})
    sign_in(page, ADMIN)
    page.goto(f"spaceinstances/{PROJECT_NAMESPACE}/sleeper")
    button = role("button", "Put to sleep")
    page.wait_until(lambda: page.attribute(button, "aria-disabled") is None, "it may be put to sleep")
    page.click(button)
    page.wait_for_text("Put sleeper to sleep?", "dialog")
    page.click("dialog footer button.primary")
    page.wait_for_text("Asleep since")
    page.wait_for_text("(by request)")
    wake = role("button", "Wake up")
    page.wait_until(lambda: page.attribute(wake, "aria-disabled") is None, "it may be woken up")
    page.click(wake)
    page.wait_until(lambda: "Asleep since" not in page.text(), "it is awake")
