"""What happens to an open page when the server is gone, comes back, or ends the login."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Browser, Page, role
from tests.console.conftest import SignIn
from tests.console.servers import (
    ADMIN,
    GROUP,
    LOGIN_COOKIE,
    PASSWORD,
    ConsoleServer,
    restarted_console,
    running_console,
)
from tests.harness.eventually import wait_until
from tests.harness.relay import Relay, running_relay

CONFIG = f"{GROUP}/configs/service-manager-config"
LIVE, NOT_LIVE = ".connection:not(.stale)", ".connection.stale"
ROW = ".vtable-body .vtable-row"
SLOW = 40
"""Seconds that a page may take to notice: with other programs on the machine, also to connect."""


@pytest.fixture
def relay() -> Iterator[Relay]:
    with running_relay() as relay:
        yield relay


@pytest.fixture
def far_page(browser: Browser, relay: Relay) -> Iterator[Page]:
    """A page at the address of the relay. Its requests fail while there is no server."""
    page = browser.new_page(relay.url)
    try:
        yield page
        assert page.csp_violations == [] and page.console_errors == []
    finally:
        page.close_all()


def create_team(console: ConsoleServer, name: str) -> None:
    body = {"apiVersion": "management.service.sh/v1", "kind": "Team", "metadata": {"name": name}, "spec": {}}
    console.create(f"{GROUP}/teams", body)


@pytest.mark.long
def test_a_list_says_that_it_is_not_live_and_resumes_when_the_server_is_back(
    far_page: Page, relay: Relay, tmp_path: Path, certificates: Certificates
) -> None:
    with running_console(tmp_path / "data", certificates) as console:
        create_team(console, "before")
        relay.target = console.url
        far_page.set_cookie(LOGIN_COOKIE, console.log_in(ADMIN))
        far_page.goto("teams")
        far_page.wait_for_text("before", ROW)
        far_page.wait_for(LIVE)
        far_page.eval("window.isKept = true")
        relay.disconnect()
        console.server.kill()
    far_page.wait_for(NOT_LIVE, timeout=SLOW)
    far_page.wait_for_text("Not live", "header.top")
    assert "before" in far_page.text(ROW)
    with restarted_console(tmp_path / "data", certificates) as console:
        create_team(console, "meanwhile")
        far_page.clear_requests()
        relay.target = console.url
        far_page.wait_for(LIVE, timeout=SLOW)
        far_page.wait_for_text("meanwhile", ROW, timeout=SLOW)
        create_team(console, "after")
        far_page.wait_for_text("after", ROW, timeout=SLOW)
        assert far_page.eval("window.isKept") is True
        lists = [each.path for each in far_page.requests if "/teams?" in each.path and "watch=" not in each.path]
        assert len(lists) <= 1, lists


@pytest.mark.long
def test_a_draft_outlives_an_outage_and_can_be_saved_after_it(
    far_page: Page, relay: Relay, tmp_path: Path, certificates: Certificates
) -> None:
    with running_console(tmp_path / "data", certificates) as console:
        relay.target = console.url
        far_page.set_cookie(LOGIN_COOKIE, console.log_in(ADMIN))
        far_page.goto("projects/~new")
        far_page.fill("Name", "half-typed")
        relay.disconnect()
        far_page.click(role("button", "Create"))
        far_page.wait_for_text("cannot be reached", ".error", timeout=SLOW)
        relay.target = console.url
        far_page.click(role("button", "Create"))
        far_page.wait_for_text("half-typed", "h1", timeout=SLOW)
        assert console.send("GET", f"{GROUP}/projects/half-typed")["metadata"]["name"] == "half-typed"


@pytest.fixture
def short_logins(server: ConsoleServer) -> Iterator[None]:
    """Logins that end after some seconds."""
    server.send("PATCH", CONFIG, {"spec": {"raw": "auth: {loginAccessKeyTTLSeconds: 8}\n"}}, patch=True)
    yield
    server.send("PATCH", CONFIG, {"spec": {"raw": ""}}, patch=True)


@pytest.mark.long
def test_a_login_that_expires_is_renewed_over_the_page_and_the_draft_is_kept(
    page: Page, server: ConsoleServer, short_logins: None, sign_in: SignIn
) -> None:
    sign_in(page, ADMIN)
    page.goto("projects/storefront?view=form")
    page.fill("Display name", "Half typed")
    page.eval("window.isKept = true")
    page.wait_for("dialog.sign-in", timeout=SLOW)
    page.wait_for_text("Your login has ended", "dialog.sign-in")
    page.fill("Password", PASSWORD)
    page.press("Enter")
    page.wait_gone("dialog.sign-in")
    assert page.value("Display name") == "Half typed" and page.eval("window.isKept") is True
    page.click(role("button", "Save"))
    saved = f"{GROUP}/projects/storefront"
    wait_until(lambda: server.send("GET", saved)["spec"]["displayName"] == "Half typed", 20, what="it is saved")
