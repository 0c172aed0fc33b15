"""Forms of existing objects, and of the parameters of templates and apps, in a real browser."""

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.forms import open_form, read_editor, run_module
from tests.console.servers import ADMIN, GROUP, ConsoleServer


@pytest.fixture
def signed_in(page: Page, sign_in: SignIn) -> Page:
    sign_in(page, ADMIN)
    return page


def show_edit_form(page: Page, plural: str, name: str) -> None:
    """Shows the form of an existing object in place of the page."""
    open_form(page, f"{plural}/~new")
    script = """
      const { show } = await load("pages/edit-form.js");
      const { Scope, h } = await load("core/dom.js");
      const { getObject } = await load("core/kinds.js");
      const kind = management.find(plural);
      const node = h("div", { id: "edit" });
      document.querySelector("main").replaceChildren(node);
      await show(node, { kind, object: await getObject(kind, "", name), scope: new Scope() });
    """
    run_module(page, script, plural=plural, name=name)


def test_stored_passwords_are_never_read_back_and_are_kept(signed_in: Page, server: ConsoleServer) -> None:
    chart = {"name": "web", "repoURL": "https://charts.example.com", "username": "ci", "password": "s3cret"}
    app = {
        "apiVersion": "management.service.sh/v1",
        "kind": "App",
        "metadata": {"name": "private"},
        "spec": {"config": {"chart": chart}},
    }
    server.create(f"{GROUP}/apps", app)
    show_edit_form(signed_in, "apps", "private")
    signed_in.fill("Display name", "Private")
    signed_in.eval("document.querySelectorAll('#edit details').forEach((each) => { each.open = true; })")
    signed_in.wait_for("#edit input[type=password]")
    assert signed_in.attribute("#edit input[type=password]", "placeholder") == "unchanged"
    assert signed_in.eval("document.querySelector('#edit input[type=password]').value") == ""
    signed_in.click(role("button", "Save"))
    signed_in.wait_for_text("Saved.", ".verdict")
    patches = [each for each in signed_in.requests if each.method == "PATCH"]
    assert [each.status for each in patches] == [200]
    stored = server.send("GET", f"{GROUP}/apps/private")
    assert stored["spec"]["displayName"] == "Private"
    assert stored["spec"]["config"]["chart"]["username"] == "ci"


def test_only_changes_are_sent_and_a_conflict_names_the_fields(signed_in: Page, server: ConsoleServer) -> None:
    body = {
        "apiVersion": "management.service.sh/v1",
        "kind": "Team",
        "metadata": {"name": "edited"},
        "spec": {"displayName": "A"},
    }
    server.create(f"{GROUP}/teams", body)
    show_edit_form(signed_in, "teams", "edited")
    server.send("PATCH", f"{GROUP}/teams/edited", {"spec": {"description": "other"}}, patch=True)
    signed_in.fill("Display name", "B")
    signed_in.click(role("button", "Save"))
    signed_in.wait_for_text("Saved.", ".verdict")
    spec = server.send("GET", f"{GROUP}/teams/edited")["spec"]
    assert (spec["displayName"], spec["description"]) == ("B", "other")
    server.send("PATCH", f"{GROUP}/teams/edited", {"spec": {"displayName": "C"}}, patch=True)
    signed_in.fill("Display name", "D")
    signed_in.click(role("button", "Save"))
    signed_in.wait_for_text("spec.displayName", ".verdict")
    signed_in.click(role("button", "Keep my changes, on the new version"))
    signed_in.wait_for_text("Saved.", ".verdict")
    assert server.send("GET", f"{GROUP}/teams/edited")["spec"]["displayName"] == "D"


PARAMETERS = [
    {"variable": "image.tag", "label": "Tag", "type": "string", "validation": "^v[0-9]+$", "required": True},
    {"variable": "size", "type": "number", "min": 1, "max": 3, "defaultValue": "2", "section": "Size"},
    {"variable": "token", "type": "password"},
    {"variable": "region", "options": ["eu", "us"], "section": "Size"},
    {"variable": "debug", "type": "boolean", "defaultValue": "true"},
]


def test_parameters_of_a_template_have_typed_fields_and_are_checked_before_they_are_sent(
    signed_in: Page, server: ConsoleServer
) -> None:
    template = {
        "apiVersion": "management.service.sh/v1",
        "kind": "SpaceTemplate",
        "metadata": {"name": "typed"},
        "spec": {"template": {}, "parameters": PARAMETERS},
    }
    server.create(f"{GROUP}/spacetemplates", template)
    open_form(
        signed_in,
        "spaceinstances/~new?form=all&name=typed&project=storefront&spec.templateRef.name=typed&parameter.image.tag=latest",
    )
    signed_in.wait_until(lambda: "Tag" in signed_in.text(".create-form"), "the parameters are shown")
    assert signed_in.value("Tag") == "latest"
    assert "Default: 2" in signed_in.text(".create-form")
    signed_in.fill("size", "9")
    signed_in.click(role("button", "Check"))
    signed_in.wait_for_text("Must match ^v[0-9]+$", ".problem")
    signed_in.wait_for_text("Must be from 1 to 3", ".problem")
    signed_in.fill("Tag", "v1")
    signed_in.fill("size", "3")
    signed_in.fill("region", "eu")
    signed_in.fill("token", "hush")
    signed_in.click(role("tab", "YAML"))
    lines = ("image.tag: v1", "size: 3", "token: hush", "region: eu")
    signed_in.wait_until(lambda: all(line in read_editor(signed_in) for line in lines), "the YAML has the parameters")
    assert "debug" not in read_editor(signed_in)
    signed_in.click(role("tab", "Fields"))
    signed_in.wait_until(lambda: signed_in.count(role("combobox", "region")), "the parameters are shown again")
    signed_in.click(role("button", "Check"))
    signed_in.wait_for_text("would accept typed", ".verdict")


def test_problems_with_parameters_that_the_server_reports_are_shown_at_their_fields(signed_in: Page) -> None:
    open_form(signed_in, "projects/~new")
    script = """
      const { parameterForm } = await load("widgets/form/parameters.js");
      const form = parameterForm(parameters, "image: {\\"tag\\": \\"v1\\"}\\ntoken: <hidden>\\nother: 1\\n");
      document.querySelector("main").replaceChildren(form.node);
      const before = form.text();
      form.setErrors([{ field: "spec.parameters[image.tag]", message: "is taken" }]);
      const tag = document.activeElement;
      tag.value = "v2";
      tag.dispatchEvent(new Event("input"));
      return [before, form.value(), [...form.node.querySelectorAll("input[type=password]")].map((each) => each.value)];
    """
    before, value, passwords = run_module(signed_in, script, parameters=PARAMETERS)
    assert before == 'image: {"tag": "v1"}\ntoken: <hidden>\nother: 1\n'
    assert value == {"image": {"tag": "v2"}, "token": "<hidden>", "other": 1}
    assert passwords == [""]
