"""Signing in with an access key, and the offer to set a password afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Browser, Page, role
from tests.console.servers import GROUP, OWNER, PASSWORD, ConsoleServer, restarted_console


@pytest.fixture
def new_server(tmp_path: Path, certificates: Certificates) -> Iterator[ConsoleServer]:
    """A server after its first start: no user has a password."""
    with restarted_console(tmp_path / "data", certificates) as console:
        yield console


def test_the_printed_key_leads_to_the_overview_in_two_actions_and_to_a_password(
    browser: Browser, new_server: ConsoleServer
) -> None:
    page = browser.new_page(new_server.url)
    page.allow_errors("401")
    page.goto("")
    page.wait_until(lambda: page.focused() == "textbox Access key", "the key is asked for first")
    page.send("Input.insertText", text=new_server.server.key)
    page.press("Enter")
    page.wait_for_text("Hello, admin", "h1")
    assert page.eval("document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage })").find("fairlead_") < 0
    page.click(role("button", "Set a password"))
    page.fill("New password", PASSWORD)
    page.fill("New password again", "something else")
    page.press("Enter")
    assert page.eval("document.querySelector('dialog [name=again]').validationMessage") == "The two passwords differ."
    page.fill("New password again", PASSWORD)
    page.press("Enter")
    page.wait_for_text("The password is set.", ".toasts")
    assert page.count(".offer") == 0
    page.goto("account")
    page.wait_for_text("Access key admin-first-key", "main table")
    page.clear_cookies()
    page.goto("")
    page.fill("User name", "admin")
    page.fill("Password", PASSWORD)
    page.press("Enter")
    page.wait_for_text("Hello, admin", "h1")
    assert page.count(".offer") == 0
    assert page.errors == []
    page.close_all()


def test_the_offer_can_be_declined(browser: Browser, new_server: ConsoleServer) -> None:
    page = browser.new_page(new_server.url)
    page.allow_errors("401")
    page.goto("")
    page.fill("Access key", new_server.server.key)
    page.press("Enter")
    page.click(role("button", "Not now"))
    assert page.count(".offer") == 0
    assert page.errors == []
    page.close_all()


def test_where_passwords_are_in_use_the_key_is_one_click_away(page: Page, server: ConsoleServer) -> None:
    page.allow_errors("401")
    page.goto("projects")
    page.wait_for(role("textbox", "User name"))
    page.click(role("button", "Use an access key"))
    assert page.focused() == "textbox Access key"
    page.type("fairlead_wrong")
    page.press("Enter")
    page.wait_for_text("The access key is wrong, has expired, or was revoked", "dialog .problem")
    assert page.value("Access key") == "" and page.focused() == "textbox Access key"
    page.click(role("button", "Use a password"))
    page.wait_for(role("textbox", "User name"))
    page.click(role("button", "Use an access key"))
    page.fill("Access key", server.create(f"{GROUP}/ownedaccesskeys", limited_key())["spec"]["key"])
    page.press("Enter")
    page.wait_for_text("Projects", "h1")
    assert page.count(".offer") == 0  # the key has a scope, and its user has a password


def limited_key() -> dict[str, object]:
    meta = {"name": "owner-limited"}
    spec = {"user": OWNER, "scope": {"projects": [{"project": "storefront"}]}}
    return {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": meta, "spec": spec}
