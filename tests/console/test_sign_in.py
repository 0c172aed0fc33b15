"""Signing in with a provider, failed sign-ons, and the pages that allow the command line to act as the user.

The answers of the server below /auth/ are fixed here, so that no provider is needed.
"""

import json
from typing import Any

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, OWNER

CORP = {"id": "corp", "displayName": "Corp <b>", "loginEndpoint": "/auth/corp/login", "logoutEndpoint": ""}
METHODS = {"methods": {"sso": [CORP], "password": {"enabled": True}}}
ANSWER = """(() => {
  const answers = %s, send = window.fetch;
  window.sent = [];
  window.fetch = (address, options = {}) => {
    const { pathname } = new URL(address, location.href);
    const found = answers[`${options.method ?? "GET"} ${pathname}`];
    if (!found) return send(address, options);
    window.sent.push([pathname, options.body ?? new URL(address, location.href).search]);
    return Promise.resolve(new Response(JSON.stringify(found[1]), { status: found[0] }));
  };
})()"""
REQUEST = {
    "client": {"id": "fairlead-cli", "name": "Fairlead CLI"},
    "machine": "laptop <b>",
    "user": OWNER,
    "ttlSeconds": 1_728_000,
    "keyTTLSeconds": 600,
}


def answer(page: Page, answers: dict[str, tuple[int, Any]]) -> None:
    """Fixes responses by method and path, from the next load of the page on."""
    page.send("Page.addScriptToEvaluateOnNewDocument", source=ANSWER % json.dumps(answers))


def test_a_provider_is_offered_and_comes_back_to_the_same_page(page: Page) -> None:
    answer(page, {"GET /auth/methods": (200, METHODS)})
    page.goto("projects?q=a")
    page.wait_for(role("link", "Sign in with Corp <b>"))
    wanted = "/auth/corp/login?return=%2Fconsole%2Fprojects%3Fq%3Da"
    assert page.attribute(role("link", "Sign in with Corp <b>"), "href") == wanted
    page.wait_for(role("textbox", "User name"))


def test_without_passwords_only_providers_are_offered(page: Page) -> None:
    answer(page, {"GET /auth/methods": (200, {"methods": {"sso": [CORP], "password": {"enabled": False}}})})
    page.goto("")
    page.wait_for(role("link", "Sign in with Corp <b>"))
    assert page.count("dialog input") == 0


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("group_not_allowed", "You are in none of the groups that may use this server."),
        ("constructor", "Try again, or choose another way to sign in."),
        ("<img src=x onerror=alert(1)>", "Try again, or choose another way to sign in."),
    ],
)
def test_a_failed_sign_on_says_why_in_a_fixed_text(page: Page, reason: str, text: str) -> None:
    answer(page, {"GET /auth/methods": (200, METHODS)})
    page.goto(f"?signInError={reason}&connector=corp")
    page.wait_for_text(f"The sign-on with Corp <b> failed. {text}", "dialog .problem")
    assert page.attribute(role("link", "Sign in with Corp <b>"), "href") == "/auth/corp/login?return=%2Fconsole%2F"


def test_a_draft_stays_while_the_user_signs_in_elsewhere(page: Page, sign_in: SignIn) -> None:
    answer(page, {"GET /auth/methods": (200, METHODS)})
    sign_in(page, ADMIN)
    page.goto("projects/~new")
    page.wait_for(role("textbox", "Name"))
    page.fill("Name", "half-typed")
    page.clear_cookies()
    page.click(role("button", "Check"))
    page.wait_for_text("the provider opens in a new tab", "dialog.sign-in")
    sign_in(page, ADMIN)
    page.eval("window.dispatchEvent(new Event('focus'))")
    page.wait_gone("dialog.sign-in")
    assert page.value("Name") == "half-typed"


def test_the_command_line_is_described_before_it_is_allowed(page: Page, sign_in: SignIn) -> None:
    redirect = "http://127.0.0.1:9/back?code=x&state=y"
    answers = {"GET /auth/authorize": (200, {**REQUEST, "redirectHost": "127.0.0.1:9"})}
    answer(page, {**answers, "POST /auth/authorize": (200, {"redirect": redirect})})
    sign_in(page, OWNER)
    page.goto("authorize?response_type=code&client_id=fairlead-cli&state=0123456789abcdef&machine=laptop")
    page.wait_for_text("Fairlead CLI on laptop <b> asks to act as you.", "main")
    for part in (OWNER, "127.0.0.1:9", "20d, unless you end it before", "everything that you can do", "after 10m"):
        page.wait_for_text(part, "main")
    sent = page.eval("window.sent")
    assert sent[0][1] == "?response_type=code&client_id=fairlead-cli&state=0123456789abcdef&machine=laptop"
    page.allow_errors("ERR_UNSAFE_PORT", "127.0.0.1:9")
    page.click(role("button", "Allow"))
    page.wait_until(lambda: len(page.eval("window.sent ?? []")) != 1, "the decision is sent")


def test_an_address_outside_of_this_machine_is_not_followed(page: Page, sign_in: SignIn) -> None:
    answers = {
        "GET /auth/authorize": (200, REQUEST),
        "POST /auth/authorize": (200, {"redirect": "https://example.com/"}),
    }
    answer(page, answers)
    sign_in(page, OWNER)
    page.goto("authorize?state=x")
    page.click(role("button", "Deny"))
    page.wait_for_text("Nothing was sent", "main")
    assert json.loads(page.eval("window.sent")[1][1]) == {"approve": False, "request": {"state": "x"}}


def test_a_request_with_a_wrong_parameter_is_shown_and_offers_nothing(page: Page, sign_in: SignIn) -> None:
    answer(
        page, {"GET /auth/authorize": (400, {"kind": "Status", "message": "redirect_uri is not a loopback address"})}
    )
    sign_in(page, OWNER)
    page.goto("authorize?redirect_uri=https://example.com/")
    page.wait_for_text("Redirect_uri is not a loopback address", "main")
    assert page.count(role("button", "Allow")) == 0


def test_a_code_is_typed_by_hand_and_the_machine_is_shown_first(page: Page, sign_in: SignIn) -> None:
    request = {**REQUEST, "address": "192.0.2.7", "requestedAt": "2026-01-01T00:00:00Z", "expiresInSeconds": 540}
    answers = {"POST /auth/device/request": (200, request), "POST /auth/device/decision": (200, {"approved": True})}
    answer(page, answers)
    sign_in(page, OWNER)
    page.goto("device?code=BCDF-GHJK&userCode=BCDF-GHJK")
    page.wait_until(lambda: page.focused() == "textbox Code", "the code has the focus")
    assert page.value("Code") == ""
    page.type("bcdf-ghjk")
    page.press("Enter")
    page.wait_for_text("Have you started this login yourself", "main")
    page.wait_for_text("192.0.2.7", "main")
    page.click(role("button", "Allow"))
    page.wait_for_text("Allowed. Go back to the terminal.", "main")
    assert [json.loads(body) for _, body in page.eval("window.sent")] == [
        {"userCode": "bcdf-ghjk"},
        {"userCode": "bcdf-ghjk", "approve": True},
    ]


def test_an_unknown_code_says_so(page: Page, sign_in: SignIn) -> None:
    answer(page, {"POST /auth/device/request": (404, {"kind": "Status", "message": "no such code", "code": 404})})
    sign_in(page, OWNER)
    page.goto("device")
    page.fill("Code", "BCDF-GHJK")
    page.press("Enter")
    page.wait_for_text("There is no such code, or it has expired.", "main")
