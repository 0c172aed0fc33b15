"""The harness itself: what it claims to find in a page, it finds there; and it notices every error."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.console import browser
from tests.console.browser import JavaScriptError, Page, role
from tests.console.devtools import STILL_NETWORK

FORM = """(() => {
  document.body.replaceChildren();
  const add = (tag, properties, parent = document.body) => {
    const node = Object.assign(document.createElement(tag), properties);
    parent.append(node);
    return node;
  };
  const label = add("label", { textContent: "Name " });
  add("input", { id: "name", value: "before" }, label);
  const kind = add("select", { ariaLabel: "Kind" });
  for (const text of ["One", "Two"]) add("option", { textContent: text, value: text.toLowerCase() }, kind);
  add("input", { type: "checkbox", ariaLabel: "Force" });
  const button = add("button", { textContent: "Save", onclick: () => { output.textContent += "saved"; } });
  add("button", { textContent: "Save", hidden: true });
  const output = add("output", {});
  document.addEventListener("keydown", (event) => {
    output.textContent += ` ${event.ctrlKey ? "Ctrl-" : ""}${event.key}`;
  });
})()"""


@pytest.fixture
def form(page: Page) -> Page:
    page.goto("")
    page.wait_idle()
    page.eval(FORM)
    return page


def test_fields_are_filled_by_their_label(form: Page) -> None:
    form.fill("Name", "after")
    form.fill("Kind", "Two")
    form.check("Force")
    assert (form.value("Name"), form.value("Kind")) == ("after", "two")
    assert form.eval("document.querySelector('[type=checkbox]').checked")
    form.fill("Name", "")
    assert form.value("Name") == ""


def test_elements_are_found_by_role_and_accessible_name(form: Page) -> None:
    assert form.names("button") == ["Save"]
    assert form.count(role("button", "Save")) == 1 and form.count("button") == 2
    assert form.count(role("button", "sav", exact=False)) == 1 and form.count(role("button", "sav")) == 0
    form.click(role("button", "Save"))
    assert form.text("output") == "saved"
    assert form.focused() == "button Save"


def test_keys_arrive_with_their_modifiers(form: Page) -> None:
    form.press("Control+k", "?", "Escape", "ArrowDown")
    form.wait_for_text("Ctrl-k ? Escape ArrowDown")
    form.click("#name")
    form.press("End")
    form.type(" x1")
    assert form.value("Name") == "before x1"
    form.press("Tab")
    assert form.focused() == "combobox Kind"


def test_a_covered_element_cannot_be_clicked(form: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "SETTLING_SECONDS", 0.5)
    form.eval(
        """Object.assign(document.body.appendChild(document.createElement("div")).style,
           { position: "fixed", inset: 0 }) && 0"""
    )
    with pytest.raises(AssertionError, match="covered by"):
        form.click(role("button", "Save"))


MOVE_ONCE = """document.querySelector("button").addEventListener("%s", (event) => {
  event.target.style.marginBlockStart = "300px";
}, { once: true })"""
PUT_IN_FRONT = """(() => {
  const button = document.querySelector("button");
  const other = document.createElement("button");
  Object.assign(other.style, { position: "fixed", inset: 0 });
  other.onclick = () => { document.querySelector("output").textContent += "other"; };
  button.addEventListener("mousemove", () => {
    document.body.append(other);
    setTimeout(() => other.remove(), 1000);
  }, { once: true });
})()"""


def test_a_click_is_repeated_until_its_element_got_it(form: Page) -> None:
    form.eval(PUT_IN_FRONT)  # between finding the place and pressing
    form.click(role("button", "Save"))
    assert form.text("output") == "saved"


def test_a_click_counts_for_the_control_that_was_pressed(form: Page) -> None:
    """As a page that still loads may move below a hand."""
    form.eval(MOVE_ONCE % "mousedown")
    form.click(role("button", "Save"))
    assert form.text("output") == "saved"


def test_the_browser_does_not_see_the_network_interfaces() -> None:
    """Else it breaks off all requests when another test starts a container."""
    script = "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"
    command = [sys.executable, str(STILL_NETWORK), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Address family not supported" in done.stderr


def test_what_does_not_appear_fails_with_what_the_page_shows(form: Page) -> None:
    with pytest.raises(AssertionError, match=r"(?s)there is #none.*Save"):
        form.wait_for("#none", timeout=0.2)


def test_errors_in_the_page_are_noticed(page: Page) -> None:
    page.goto("")
    page.eval("console.error('first'); setTimeout(() => { throw new Error('second'); }); Promise.reject('third'); 0")
    page.wait_until(lambda: len(page.console_errors) == 3, "all errors are noticed")
    page.eval("import('./assets/none.js').catch(() => 0)")
    page.wait_until(lambda: len(page.console_errors) >= 4, "a missing module is noticed")
    assert len(page.errors) == len(page.console_errors)
    page.allow_errors("first", "second", "third", "none.js")
    with pytest.raises(JavaScriptError, match="boom"):
        page.eval("(() => { throw new Error('boom'); })()")


def test_requests_are_counted_with_status_and_protocol(page: Page) -> None:
    page.goto("")
    page.wait_idle()
    page.clear_requests()
    page.eval("fetch('/version').then((r) => r.text())")
    page.wait_until(lambda: page.requests and page.requests[-1].is_finished, "the request is finished")
    [request] = page.requests
    assert (request.method, request.path, request.status, request.protocol) == ("GET", "/version", 200, "h2")


def test_a_page_can_be_offline_and_online_again(page: Page) -> None:
    page.goto("")
    script = "fetch('/version').then((r) => r.status, () => 'failed')"
    # The process that fetches gets to know of it a moment later.
    page.offline()
    page.wait_until(lambda: page.eval(script) == "failed", "requests fail")
    assert page.eval("navigator.onLine") is False
    page.offline(False)
    page.wait_until(lambda: page.eval(script) == 200, "requests succeed")
    assert page.eval("navigator.onLine") is True


def test_nothing_leaves_this_machine(page: Page) -> None:
    page.goto("/version")  # a document without a policy
    for address in ("https://example.com/", "http://192.0.2.1/"):
        assert page.eval(f"fetch({address!r}, {{mode: 'no-cors'}}).then(() => 'reached', () => 'failed')") == "failed"
    page.allow_errors("example.com", "192.0.2.1")


def test_size_theme_and_visibility_are_those_that_a_test_sets(page: Page, tmp_path: Path) -> None:
    page.goto("")
    page.set_size(360, 640)
    page.set_theme("dark")
    page.set_media(prefers_reduced_motion="reduce")
    page.set_hidden()
    state = "[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches, document.visibilityState]"
    assert page.eval(state) == [360, True, "hidden"]
    assert page.eval("matchMedia('(prefers-reduced-motion: reduce)').matches")
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_a_new_tab_shares_the_storage_and_another_page_does_not(page: Page) -> None:
    page.goto("")
    page.eval("localStorage.setItem('x', '1')")
    tab = page.open_tab()
    tab.goto("")
    assert tab.eval("localStorage.getItem('x')") == "1"
    tab.close()
    page.reload()
    assert page.eval("localStorage.getItem('x')") == "1"


def test_storage_is_empty_at_the_start_of_each_test(page: Page) -> None:
    page.goto("")
    assert page.eval("localStorage.getItem('x')") is None


def test_dialogs_are_accepted_and_their_messages_kept(page: Page) -> None:
    page.goto("")
    assert page.eval("confirm('really?')") is True
    assert page.dialogs == ["really?"]
