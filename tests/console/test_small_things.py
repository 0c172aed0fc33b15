"""Small things on many pages: titles, sign-out in another tab, the palette, missing and deleted objects."""

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, GROUP, ConsoleServer

STATUS = """import(new URL("core/status.js", document.querySelector("script[src]").src)).then(({ stateOf }) =>
  stateOf({ metadata: {}, status: { phase: "Pending", containerStatuses: [
    { state: { waiting: { reason: "ErrImageNeverPull", message: "not here" } } }] } }))"""


def create_app(server: ConsoleServer, name: str, **metadata: object) -> None:
    meta = {"name": name, **metadata}
    body = {"apiVersion": "management.service.sh/v1", "kind": "Team", "metadata": meta, "spec": {"displayName": "Old"}}
    server.create(f"{GROUP}/teams", body)


def test_the_title_follows_the_display_name(page: Page, sign_in: SignIn, server: ConsoleServer) -> None:
    create_app(server, "renamed")
    sign_in(page, ADMIN)
    page.goto("teams/renamed")
    page.wait_for_text("Old", "h1")
    server.send("PATCH", f"{GROUP}/teams/renamed", {"spec": {"displayName": "New"}}, patch=True)
    page.wait_for_text("New", "h1")


def test_a_sign_out_is_noticed_in_other_tabs_at_once(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("about")
    page.wait_for_text("About", "h1")
    other = page.open_tab()
    other.goto("about")
    other.wait_for_text("About", "h1")
    page.allow_errors("401")
    other.eval("document.querySelector('details.account').open = true")
    other.click(role("button", "Sign out"))
    other.wait_for("dialog.sign-in")
    page.wait_for("dialog.sign-in", timeout=5)
    other.close()


def test_keys_that_are_typed_while_the_palette_loads_are_kept(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("about")
    page.wait_for_text("About", "h1")
    press = "document.body.dispatchEvent(new KeyboardEvent('keydown', %s))"
    keys = ["{ key: 'k', ctrlKey: true, bubbles: true }", *(f"{{ key: '{each}', bubbles: true }}" for each in "proj")]
    page.eval("; ".join(press % each for each in keys))
    page.wait_for("dialog.palette")
    assert page.eval("document.querySelector('dialog.palette input').value") == "proj"


def test_an_object_that_does_not_exist_leads_back_and_can_be_created(page: Page, sign_in: SignIn) -> None:
    page.allow_errors("404")
    sign_in(page, ADMIN)
    page.goto("users/mry")
    page.wait_for_text("There is no user mry", "main")
    page.wait_for(role("link", "Create the user mry"))
    page.click(role("link", "All users"))
    page.wait_for_text("Users", "h1")


def test_an_object_that_is_being_deleted_has_no_active_buttons(
    page: Page, sign_in: SignIn, server: ConsoleServer
) -> None:
    create_app(server, "held", finalizers=["tests/hold"])
    server.send("DELETE", f"{GROUP}/teams/held")
    sign_in(page, ADMIN)
    page.goto("teams/held")
    page.wait_for_text("Deleting", "main")
    page.wait_idle()
    assert page.attribute(role("button", "Delete…"), "aria-disabled") == "true"
    assert page.attribute(role("button", "Edit YAML"), "title") == "It is being deleted"


def test_a_pod_whose_image_is_never_pulled_has_failed(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("about")
    page.wait_for_text("About", "h1")
    assert page.eval(STATUS) == {"state": "failed", "word": "ErrImageNeverPull", "message": "not here"}


def test_a_click_counts_for_the_button_that_was_pressed_also_if_the_page_moves(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("about")
    page.wait_for_text("About", "h1")
    page.wait_idle()
    page.eval(
        """(() => {
          const button = document.createElement("button");
          button.textContent = "Moves";
          button.onmousedown = () => { button.style.marginBlockStart = "300px"; };
          button.onclick = () => { button.textContent = `clicked ${++window.clicks}`; };
          window.clicks = 0;
          document.querySelector("main").prepend(button);
        })()"""
    )
    x, y = page.eval(
        "(({ x, y, width, height }) => [x + width / 2, y + height / 2])"
        "(document.querySelector('main button').getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    page.wait_for(role("button", "clicked 1"))


def test_a_click_on_a_button_waits_until_it_is_known_to_be_permitted(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto("about")
    page.wait_for_text("About", "h1")
    page.eval(
        """(() => {
          const send = window.fetch;
          const asked = new Promise((resolve) => { window.answer = resolve; });
          window.fetch = async (path, options) => {
            if (String(path).includes("selfsubjectaccessreviewbatches")) await asked;
            return send(path, options);
          };
        })()"""
    )
    page.eval(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'g', bubbles: true }));"
        "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'c', bubbles: true }))"
    )
    page.wait_until(lambda: page.path.endswith("/clusters"), "the list is opened")
    page.eval("history.pushState(null, '', 'teams/renamed'); dispatchEvent(new PopStateEvent('popstate'))")
    page.click(role("button", "Delete…"))
    assert page.count("dialog[open]") == 0
    page.eval("window.answer()")
    page.wait_for("dialog[open]")
