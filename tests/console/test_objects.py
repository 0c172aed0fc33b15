"""Pages of objects in a real browser: what they show, editing as YAML, and deletion."""

from typing import Any

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.forms import EDITOR, read_editor, replace_in_editor
from tests.console.servers import ADMIN, AUDITOR, GROUP, OUTSIDER, PROJECT, RBAC, VIEWER, ConsoleServer
from tests.harness.server_process import CONFIGMAPS, MANAGEMENT

HOSTILE = "</pre><img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"
DELETE = ".actions button.danger:not([aria-disabled])"


def create_config_map(server: ConsoleServer, name: str, **metadata: Any) -> None:
    body = {"metadata": {"name": name, **metadata}, "data": dict.fromkeys("abcdefgh", "1")}
    server.create(CONFIGMAPS, body)


def manifest(kind: str, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": metadata, "spec": spec}


def change_data(server: ConsoleServer, name: str, **data: str) -> None:
    server.send("PATCH", f"{CONFIGMAPS}/{name}", {"data": data}, patch=True)


def open_editor(page: Page, path: str) -> None:
    page.goto(f"{path}?view=yaml")
    page.wait_until(lambda: read_editor(page), "the editor has the text")


@pytest.fixture
def admin(page: Page, sign_in: SignIn) -> Page:
    sign_in(page, ADMIN)
    return page


def test_an_object_shows_its_state_fields_labels_and_who_set_them(admin: Page) -> None:
    admin.goto(f"projects/{PROJECT}")
    admin.wait_for_text("Conditions")
    assert "Ready" in admin.text("main")
    admin.click(role("tab", "Details"))
    admin.wait_for_text("Specification")
    shown = admin.text("main")
    for expected in ("Ready", "Labels", "Annotations", "Who set this", "Members"):
        assert expected in shown
    admin.click(role("tab", "Events"))
    admin.wait_for_text("NamespaceReady", "table")
    assert admin.path.endswith("?view=events")


def test_hostile_strings_stay_text_in_every_view(admin: Page, server: ConsoleServer) -> None:
    spec = {"displayName": HOSTILE, "description": HOSTILE + "\n" + HOSTILE}
    server.create(f"{GROUP}/projects", manifest("Project", "hostile", {"example.com/note": HOSTILE}, **spec))
    admin.goto("projects/hostile?view=details")
    admin.wait_for_text("Specification")
    assert admin.text("h1") == HOSTILE
    assert admin.text("main").count(HOSTILE) >= 4
    open_editor(admin, "projects/hostile")
    assert HOSTILE in read_editor(admin)
    admin.click(DELETE)
    admin.wait_for_text(HOSTILE, "dialog")
    assert not admin.eval("window.hacked") and admin.count("main img, dialog img, main script") == 0


def test_yaml_is_saved_after_the_diff_of_a_dry_run(admin: Page, server: ConsoleServer) -> None:
    create_config_map(server, "edited")
    open_editor(admin, "configmaps/default/edited")
    assert "managedFields" not in read_editor(admin)
    replace_in_editor(admin, 'a: "1"', 'a: "2"')
    admin.press("Control+s")
    admin.wait_for(".diff")
    assert [text.split()[-1] for text in admin.texts(".diff .removed, .diff .added")] == ['"1"', '"2"']
    assert "1 added, 1 removed" in admin.text(".diff caption")
    assert server.send("GET", f"{CONFIGMAPS}/edited")["data"]["a"] == "1"
    admin.click(role("button", "Save"))
    admin.wait_for_text("Saved.", "main")
    stored = server.send("GET", f"{CONFIGMAPS}/edited")
    assert stored["data"]["a"] == "2"
    assert "fairlead-console" in {entry["manager"] for entry in stored["metadata"]["managedFields"]}


def test_errors_of_the_server_are_shown_at_their_line(admin: Page, server: ConsoleServer) -> None:
    create_config_map(server, "wrong")
    open_editor(admin, "configmaps/default/wrong")
    replace_in_editor(admin, 'c: "1"', "c: x: y")
    admin.click(role("button", "Review changes"))
    admin.wait_for_text("Line 5", ".yaml")
    admin.wait_for(".cm-lint-marker-error")
    replace_in_editor(admin, "c: x: y", 'c: "1"')
    replace_in_editor(admin, "data:", "dat:")
    admin.click(role("button", "Review changes"))
    admin.wait_for_text('unknown field "dat"', ".yaml")
    admin.wait_for(".cm-lint-marker-error")


def test_changes_of_others_are_shown_and_merged_and_conflicts_are_decided(admin: Page, server: ConsoleServer) -> None:
    create_config_map(server, "shared")
    open_editor(admin, "configmaps/default/shared")
    replace_in_editor(admin, 'a: "1"', "a: mine")
    change_data(server, "shared", g="theirs")
    admin.wait_for_text("The object was changed since you opened this editor.")
    assert "g: theirs" not in read_editor(admin) and "a: mine" in read_editor(admin)
    admin.click(role("button", "Show what changed"))
    admin.wait_for_text("g: theirs", ".diff")
    admin.click(role("button", "Review changes"))
    admin.wait_for_text("are merged below")
    assert "g: theirs" in read_editor(admin) and "a: mine" in read_editor(admin)
    change_data(server, "shared", a="theirs", h="theirs")
    admin.wait_for_text("The object was changed since you opened this editor.")
    admin.click(role("button", "Review changes"))
    admin.wait_for(".conflict")
    assert admin.texts(".conflict pre") == ["  a: mine", "  a: theirs", '  a: "1"']
    admin.click(role("radio", "Keep mine"))
    admin.click(role("button", "Merge"))
    admin.click(role("button", "Review changes"))
    admin.click(role("button", "Save"))
    admin.wait_for_text("Saved.", "main")
    notice = "document.querySelector('.notice.done').getBoundingClientRect()"
    assert admin.eval(f"{notice}.top >= document.querySelector('main').getBoundingClientRect().top")
    data = server.send("GET", f"{CONFIGMAPS}/shared")["data"]
    assert (data["a"], data["b"], data["g"], data["h"]) == ("mine", "1", "theirs", "theirs")


def test_a_change_of_the_status_does_not_disturb_an_editor(admin: Page, server: ConsoleServer) -> None:
    secrets = f"{GROUP}/namespaces/service-p-{PROJECT}/projectsecrets"
    server.create(secrets, manifest("ProjectSecret", "bumped", displayName="Before"))
    admin.goto(f"projectsecrets/service-p-{PROJECT}/bumped?view=yaml")
    admin.click(role("button", "Show YAML with secret values"))
    admin.wait_until(lambda: read_editor(admin), "the editor has the text")
    replace_in_editor(admin, "displayName: Before", "displayName: After")
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    seen = {"type": "Seen", "status": "True", "reason": "Test", "message": "by a test", **times}
    server.send("PATCH", f"{secrets}/bumped/status", {"status": {"conditions": [seen]}}, patch=True)
    admin.click(role("tab", "Overview"))
    admin.wait_for_text("by a test", ".conditions")
    admin.click(role("tab", "YAML"))
    assert "since you opened" not in admin.text("main") and "displayName: After" in read_editor(admin)
    admin.click(role("button", "Review changes"))
    admin.click(role("button", "Save"))
    admin.wait_for_text("Saved.", "main")
    saved = server.send("GET", f"{secrets}/bumped")
    assert saved["spec"]["displayName"] == "After"
    assert saved["status"]["conditions"] == [seen]


def test_values_of_a_secret_are_hidden_until_they_are_shown(admin: Page, server: ConsoleServer) -> None:
    data = {"password": "aHVudGVyMg==", "binary": "//79AAE="}
    server.create(SECRETS, {"metadata": {"name": "hidden"}, "data": data})
    admin.goto("secrets/default/hidden")
    admin.wait_for_text("7 bytes")
    assert "hunter2" not in admin.text() and data["password"] not in admin.eval("document.body.textContent")
    admin.click(role("button", "Show"))
    admin.wait_for_text("hunter2")
    admin.click(role("tab", "YAML"))
    assert admin.count(EDITOR) == 0
    admin.click(role("button", "Show YAML with secret values"))
    admin.wait_until(lambda: data["binary"] in read_editor(admin), "the YAML is shown")
    replace_in_editor(admin, "type: Opaque", "stringData:\n  new: text\ntype: Opaque")
    admin.click(role("button", "Review changes"))
    admin.click(role("button", "Save"))
    admin.wait_for_text("Saved.", "main")
    assert server.send("GET", f"{SECRETS}/hidden")["data"] == {**data, "new": "dGV4dA=="}


def test_a_label_is_added_and_removed(admin: Page, server: ConsoleServer) -> None:
    create_config_map(server, "labelled")
    admin.goto("configmaps/default/labelled?view=details")
    admin.wait_idle()
    admin.click(role("button", "Add label"))
    admin.fill("Add label: Key", "team")
    admin.fill("Add label: Value", "not valid!")
    admin.press("Enter")
    admin.wait_for_text("Invalid", ".error")
    admin.fill("Add label: Value", "blue")
    admin.press("Enter")
    admin.wait_for_text("team=blue", ".labels")
    assert server.send("GET", f"{CONFIGMAPS}/labelled")["metadata"]["labels"] == {"team": "blue"}
    admin.click(".labels button:not([aria-disabled])")
    admin.wait_gone(".labels")


def test_a_deleted_object_says_what_it_waits_for_and_then_that_it_is_gone(admin: Page, server: ConsoleServer) -> None:
    create_config_map(server, "held", finalizers=["example.com/hold"])
    admin.goto("configmaps/default/held")
    admin.click(DELETE)
    admin.wait_for_text("example.com/hold", "dialog")
    admin.click("dialog button.danger:enabled")
    admin.wait_for_text("It waits for 1 finalizer: example.com/hold")
    server.send("PATCH", f"{CONFIGMAPS}/held", {"metadata": {"finalizers": None}}, patch=True)
    admin.wait_for_text("held was deleted.")
    admin.wait_for(role("link", "All config maps"))


def test_a_refused_deletion_shows_the_reason_before_anything_is_deleted(admin: Page) -> None:
    admin.goto(f"namespaces/service-p-{PROJECT}")
    admin.click(DELETE)
    admin.wait_for_text(f'it belongs to project "{PROJECT}"', "dialog")
    admin.wait_for_text("The server refuses to delete this.", "dialog")
    assert admin.count("dialog button.danger:enabled") == 0


def test_a_project_says_what_is_in_it_and_asks_for_its_name(admin: Page, server: ConsoleServer) -> None:
    server.create(f"{GROUP}/projects", manifest("Project", "typed"))
    server.create(f"{GROUP}/namespaces/service-p-typed/projectsecrets", manifest("ProjectSecret", "inside"))
    admin.goto("projects/typed")
    admin.click(DELETE)
    admin.wait_for_text("1 project secret: inside", "dialog")
    assert admin.count("dialog button.danger:enabled") == 0
    admin.fill("Type typed to confirm", "typed")
    admin.click("dialog button.danger:enabled")
    admin.wait_for_text("typed was deleted.")


def test_what_a_member_may_not_do_is_disabled_with_the_reason(page: Page, sign_in: SignIn) -> None:
    sign_in(page, VIEWER)
    page.goto(f"projects/{PROJECT}")
    page.wait_idle()
    for title in ("Edit YAML", "Delete…"):
        assert page.attribute(role("button", title), "aria-disabled") == "true"
        assert page.attribute(role("button", title), "title")
    page.click(role("button", "Delete…"))
    assert page.count("dialog[open]") == 0
    page.click(role("tab", "YAML"))
    page.wait_for(f"{EDITOR}[aria-readonly=true]")


@pytest.mark.long
def test_who_may_get_an_object_but_not_list_it_sees_its_changes(
    page: Page, server: ConsoleServer, sign_in: SignIn
) -> None:
    create_config_map(server, "narrow")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["narrow"], "verbs": ["get"]}
    names = {"metadata": {"name": "narrow"}}
    namespaced = RBAC + "/namespaces/default"
    server.create(f"{namespaced}/roles", {**names, "rules": [rule]})
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OUTSIDER}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "narrow"}
    server.create(f"{namespaced}/rolebindings", {**names, "roleRef": reference, "subjects": subjects})
    sign_in(page, OUTSIDER)
    page.goto("configmaps/default/narrow")
    page.wait_for_text("cannot be watched")
    change_data(server, "narrow", a="seen later")
    page.wait_for_text("seen later")


def test_an_auditor_reads_the_yaml_of_any_object(page: Page, sign_in: SignIn) -> None:
    sign_in(page, AUDITOR)
    open_editor(page, f"clusterroles.rbac.authorization.k8s.io/{AUDITOR}")
    assert "rules:" in read_editor(page)
    page.check("Status and managed fields")
    page.wait_until(lambda: "managedFields:" in read_editor(page), "everything is shown")


@pytest.mark.long
def test_a_manifest_of_10_000_lines_stays_editable(admin: Page, server: ConsoleServer) -> None:
    server.create(
        CONFIGMAPS, {"metadata": {"name": "big"}, "data": {f"key-{index}": str(index) for index in range(9_990)}}
    )
    open_editor(admin, "configmaps/default/big")
    replace_in_editor(admin, 'key-5000: "5000"', "key-5000: changed")
    assert admin.count(".cm-line") < 200
    admin.click(".bar button.primary")
    admin.wait_for_text("1 added, 1 removed", ".diff caption")
    assert admin.count(".diff tr") < 20
