"""Forms of the console in a real browser: fields from the schemas of kinds, the create page, and editing as a form."""

from typing import Any

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.forms import open_form, read_editor, run_module
from tests.console.servers import ADMIN, GROUP
from tests.harness.kind_examples import BY_NAME, build_example

PROJECT = {
    "apiVersion": "management.service.sh/v1",
    "kind": "Project",
    "metadata": {"name": "shop", "resourceVersion": "1", "labels": {"a/b": "c"}},
    "spec": {
        "displayName": "Shop",
        "members": [{"kind": "User", "name": "ada", "clusterRole": "admin", "unknown": [1]}],
        "quotas": {"project": {"spaceinstances": "10"}},
        "vault": {"anything": {"goes": [1, None, True, "yes"]}},
        "fieldOfALaterVersion": {"x": [{"y": 1.5}]},
    },
    "status": {"conditions": []},
}


@pytest.fixture
def signed_in(page: Page, sign_in: SignIn) -> Page:
    sign_in(page, ADMIN)
    return page


def collection(page: Page, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.eval(
        f"fetch('{GROUP}/{kind}').then((response) => response.json()).then((list) => list.items)"
    )
    return found


OPEN_ALL = """
  const openAll = async (node) => {
    for (let depth = 0; depth < 3; depth++) {
      for (const each of node.querySelectorAll("details:not([open])")) each.open = true;
      await new Promise((resolve) => setTimeout(resolve));
      for (const each of node.querySelectorAll("fieldset > button:not([data-seen])")) {
        each.dataset.seen = "";
        each.click();
      }
    }
  };
"""


def test_every_kind_that_can_be_created_has_a_form(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new")
    script = """
      const found = {};
      for (const kind of management.kinds.filter((each) => each.verbs.has("create"))) {
        const form = schemaForm({ kind, schema: await loadSchema(kind), value: { metadata: { name: "a" } } });
        document.body.append(form.node);
        await openAll(form.node);
        const controls = [...form.node.querySelectorAll("input, select, textarea")];
        const unnamed = controls.filter((each) => !each.labels?.length && !each.getAttribute("aria-label"));
        found[kind.segment] = [controls.length, unnamed.length, form.node.textContent.includes("undefined")];
        form.node.remove();
      }
      return found;
    """
    found = run_module(signed_in, OPEN_ALL + script)
    assert {"projects", "users", "secrets", "devpodworkspacetemplates"} < found.keys()
    assert len(found) > 25
    assert not {kind: counts for kind, counts in found.items() if counts[0] < 2 or counts[1] or counts[2]}


def test_a_form_without_edits_returns_the_same_object(signed_in: Page) -> None:
    creatable = [kind for kind in BY_NAME.values() if "create" in kind.verbs]
    kinds = [[kind.plural, kind.group, build_example(kind.name)] for kind in creatable]
    kinds.append(["projects", "management.service.sh", PROJECT])
    open_form(signed_in, "projects/~new")
    script = """
      const found = [];
      for (const [plural, group, example] of kinds) {
        const kind = management.find(plural, group);
        const form = schemaForm({ kind, schema: await loadSchema(kind), value: example, isExisting: true });
        document.body.append(form.node);
        for (const each of form.node.querySelectorAll("details")) each.open = true;
        await new Promise((resolve) => setTimeout(resolve));
        found.push([plural, form.value(), form.isDirty()]);
        form.node.remove();
      }
      return found;
    """
    assert len(kinds) > 15
    found = run_module(signed_in, script, kinds=kinds)
    assert found == [[plural, example, False] for plural, _, example in kinds]


def test_yaml_of_a_draft_is_read_back_as_the_same_draft(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new")
    texts = [
        "yes",
        "1.0",
        "0o7",
        "",
        " a",
        "a: b",
        "a #b",
        "- a",
        "x\ny\n",
        "x\n\n",
        "  x\ny",
        "2026-01-01",
        "{{ a }}",
        "ü\u2028",
    ]
    samples = [
        PROJECT,
        {"a": [texts, [[]], [{}], {"b": {"c": [{"d": None, "e": [1, -2.5]}]}}], **{text: text for text in texts}},
    ]
    script = (
        "const { emit, parse } = await load('widgets/form/yaml.js'); return samples.map((each) => parse(emit(each)));"
    )
    assert run_module(signed_in, script, samples=samples) == samples


def test_yaml_that_can_be_read_differently_is_left_to_the_server(signed_in: Page) -> None:
    texts = ["a: yes", "a: &x b", "a: 1.0", "a: b: c", "a: 1\n  b: 2", "a: 1\na: 2", "\ta: 1", "a: >\n  x", "a: 'b"]
    open_form(signed_in, "projects/~new")
    script = """
      const { parse } = await load("widgets/form/yaml.js");
      return texts.map((text) => { try { return parse(text); } catch (error) { return error.message.split(" ")[0]; } });
    """
    assert run_module(signed_in, script, texts=texts) == ["line"] * len(texts)


def test_a_project_with_members_and_quotas_is_created_by_keyboard(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new")
    signed_in.wait_until(lambda: signed_in.focused() == "textbox Name", "the name has the focus")
    signed_in.type("typed")
    signed_in.press("Tab", "Tab")
    signed_in.type("Typed by hand")
    signed_in.press("Tab", "Tab", "Enter")
    assert signed_in.focused() == "combobox Kind"
    signed_in.type("U")
    signed_in.press("Tab")
    signed_in.type("admin")
    signed_in.press("Tab")
    signed_in.type("admin")
    while signed_in.focused() != "DisclosureTriangle Quotas":
        signed_in.press("Tab")
    signed_in.press("Enter")
    while signed_in.focused() != "button + Add to project":
        signed_in.press("Tab")
    signed_in.press("Enter")
    signed_in.type("spaceinstances")
    signed_in.press("Tab")
    signed_in.type("7")
    signed_in.press("Enter")
    signed_in.wait_until(lambda: signed_in.path == "/console/projects/typed", "the page of the project is shown")
    found = next(each for each in collection(signed_in, "projects") if each["metadata"]["name"] == "typed")
    assert found["spec"]["displayName"] == "Typed by hand"
    assert found["spec"]["members"] == [{"kind": "User", "name": "admin", "clusterRole": "admin"}]
    assert found["spec"]["quotas"] == {"project": {"spaceinstances": "7"}}
    assert "description" not in found["spec"]


def test_the_form_of_a_project_fits_one_screen(signed_in: Page) -> None:
    signed_in.set_size(1280, 800)
    open_form(signed_in, "projects/~new")
    assert signed_in.eval(
        "document.querySelector('main').scrollHeight <= document.querySelector('main').clientHeight + 60"
    )


def test_the_form_of_a_project_offers_roles_keys_of_quotas_and_clusters(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new")
    signed_in.click(role("button", "+ Add to members"))
    signed_in.click(role("DisclosureTriangle", "Quotas"))
    signed_in.click(role("button", "+ Add to project"))
    offered = "[...{}.list.options].map((option) => option.value)"
    assert "spaceinstances.active" in signed_in.eval(offered.format("document.querySelector('.key')"))
    role_input = "[...document.querySelectorAll('.entry label')].find((l) => l.innerText === 'Cluster role').control"
    assert signed_in.eval(offered.format(role_input)) == ["admin", "user", "viewer"]
    signed_in.click(role("button", "+ Add to allowed clusters"))
    signed_in.wait_until(lambda: "frankfurt" in signed_in.eval(offered.format("document.activeElement")), "clusters")
    assert signed_in.eval("document.scrollingElement.scrollHeight <= innerHeight")  # only the page scrolls


def test_a_rejected_value_is_reported_at_its_field(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new?name=wrong&spec.quotas.project.spaceinstances=many")
    signed_in.click(role("button", "Check"))
    signed_in.wait_for_text("must be a quantity", ".entry .problem")
    assert signed_in.focused() == "textbox Value"
    described = signed_in.eval(
        "document.activeElement.getAttribute('aria-describedby').split(' ')"
        ".map((id) => document.getElementById(id)?.textContent ?? '').join('')"
    )
    assert "must be a quantity" in described
    signed_in.wait_for_text("Audit ID", ".verdict")


def test_names_are_checked_while_typing_and_existing_ones_are_reported_at_the_name(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new")
    signed_in.fill("Name", "Not Valid")
    signed_in.wait_for_text("Use lower-case letters", ".identity .problem")
    signed_in.fill("Name", "storefront")
    signed_in.click(role("button", "Create"))
    signed_in.wait_for_text("already exists", ".identity .problem")
    assert signed_in.focused() == "textbox Name"


def test_a_check_says_what_the_server_would_do_and_stores_nothing(signed_in: Page) -> None:
    open_form(
        signed_in,
        "projects/~new?name=checked&spec.members=%5B%7B%22kind%22%3A%22User%22%2C%22name%22%3A%22nobody%22%7D%5D",
    )
    signed_in.click(role("button", "Check"))
    signed_in.wait_for_text("would accept checked", ".verdict")
    signed_in.wait_for_text("nobody", ".verdict")
    assert "checked" not in [each["metadata"]["name"] for each in collection(signed_in, "projects")]


def test_form_and_yaml_show_the_same_draft(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new?name=draft")
    signed_in.fill("Display name", "Draft")
    signed_in.click(role("tab", "YAML"))
    text = read_editor(signed_in)
    assert "  displayName: Draft\n" in text
    signed_in.fill("YAML of the object", text + '  later: {"a": [1]}\n  vault:\n    path: /x\n')
    signed_in.click(role("tab", "Fields"))
    assert signed_in.value("Display name") == "Draft"
    signed_in.fill("Display name", "Changed")
    signed_in.click(role("tab", "YAML"))
    text = read_editor(signed_in)
    assert "displayName: Changed" in text
    assert "later:\n    a:\n    - 1\n" in text
    assert "vault:\n    path: /x\n" in text


def test_yaml_with_an_error_keeps_its_text_and_shows_the_line(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new?name=draft")
    signed_in.click(role("tab", "YAML"))
    text = "apiVersion: management.service.sh/v1\nkind: Project\nmetadata:\n  name: a: b\n"
    signed_in.fill("YAML of the object", text)
    signed_in.click(role("tab", "Fields"))
    signed_in.wait_for_text("line 4", ".verdict")
    assert read_editor(signed_in) == text
    signed_in.wait_until(lambda: signed_in.eval("getSelection().toString()") == "  name: a: b", "the line is selected")


def test_yaml_that_only_the_server_reads_becomes_a_form(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new?name=draft")
    signed_in.click(role("tab", "YAML"))
    head = "apiVersion: management.service.sh/v1\nkind: Project\nmetadata: {name: flow}\n"
    signed_in.fill("YAML of the object", head + "spec: {displayName: &name Flow, description: *name}\n")
    signed_in.click(role("tab", "Fields"))
    signed_in.wait_for_text("The server read this text")
    assert signed_in.value("Name") == "flow"
    assert signed_in.value("Description") == "Flow"


def test_a_link_fills_in_the_form(signed_in: Page) -> None:
    open_form(
        signed_in,
        "spaceinstances/~new?form=all&name=mine&project=storefront&spec.templateRef.name=isolated&spec.constructor.a=b",
    )
    signed_in.wait_until(
        lambda: signed_in.eval("document.querySelector('.identity select')?.value") == "service-p-storefront",
        "the project is chosen",
    )
    assert signed_in.eval("document.querySelector('.identity input').value") == "mine"
    signed_in.click(role("tab", "YAML"))
    assert "templateRef:\n    name: isolated\n" in read_editor(signed_in)
    assert "constructor" not in read_editor(signed_in)


def test_leaving_a_form_that_only_a_link_has_filled_in_does_not_ask(signed_in: Page) -> None:
    open_form(signed_in, "spaceinstances/~new?form=all&name=mine&project=storefront")
    signed_in.wait_idle()
    signed_in.click("a[href$='/console/clusters']")
    signed_in.wait_until(lambda: signed_in.path == "/console/clusters", "another page is shown")
    assert not signed_in.events.dialogs


def test_leaving_a_draft_asks_first(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new")
    signed_in.fill("Display name", "Half")
    signed_in.click("a[href$='/console/clusters']")
    signed_in.wait_until(lambda: signed_in.events.dialogs, "the page asks")


def test_a_value_that_is_shown_only_once_is_shown_before_the_page_changes(signed_in: Page) -> None:
    open_form(signed_in, "ownedaccesskeys/~new?form=all&name=made&spec.user=admin&spec.ttl=600")
    signed_in.click(role("button", "Create"))
    signed_in.wait_for_text("shown only now")
    assert signed_in.text(".code-block pre")
