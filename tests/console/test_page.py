"""The console loads in a real browser: over HTTP/2, under its content security policy, from a cache that never asks."""

import pytest

from tests.console.browser import Browser, JavaScriptError, Page, role
from tests.console.conftest import SignIn
from tests.console.path_proxy import running_proxy
from tests.console.servers import USERS, ConsoleServer

LIST_PROTOCOLS = 'performance.getEntriesByType("resource").map((entry) => entry.nextHopProtocol)'


def test_the_page_loads_over_http2_without_errors_and_violations(page: Page) -> None:
    page.goto("")
    page.wait_for("dialog input")
    assert page.eval('performance.getEntriesByType("navigation")[0].nextHopProtocol') == "h2"
    assert set(page.eval(LIST_PROTOCOLS)) == {"h2"}
    assert page.csp_violations == [] and page.console_errors == []


def test_a_page_below_another_loads_the_same_files(page: Page) -> None:
    page.goto("a/b/c?x=/y")
    page.wait_for("dialog input")
    page.wait_idle(1.0)
    assert {request.status for request in page.requests if request.path.startswith("/console/assets/")} == {200}


def test_a_page_whose_scripts_cannot_be_loaded_says_so(page: Page) -> None:
    page.send("Network.setBlockedURLs", urls=["*/shell/shell.js"])
    page.goto("")
    page.wait_for_text("The console has not been loaded")  # innerText has no hidden text
    page.send("Network.setBlockedURLs", urls=[])
    page.click(role("link", "Reload"))
    page.wait_for("dialog input")
    assert page.count(".late") == 0


def test_a_second_visit_takes_all_files_from_the_cache(page: Page) -> None:
    page.goto("")
    page.wait_for("dialog input")
    page.wait_idle(1.0)
    page.clear_requests()
    page.goto("?again")
    page.wait_for("dialog input")
    page.wait_idle()
    assets = [request for request in page.requests if request.path.startswith("/console/assets/")]
    assert assets and all(request.is_cached for request in assets), assets


def test_code_and_styles_that_are_no_files_of_the_console_are_blocked(page: Page) -> None:
    page.goto("")
    for script in ("document.body.innerHTML = '<b>'", "eval('1')", "document.createElement('script').src = 'x.js'"):
        with pytest.raises(JavaScriptError):
            page.eval(f"(() => {{ {script}; }})()")
    page.eval(
        """(() => {
          document.body.append(Object.assign(document.createElement("style"), { textContent: "b {}" }));
          document.body.setAttribute("style", "color: red");
        })()"""
    )
    page.wait_until(lambda: len(page.csp_violations) >= 5, "all are reported")
    assert page.eval("[document.querySelector('body style').sheet, document.body.style.color]") == [None, ""]
    page.allow_errors("script-src", "style-src", "Content Security Policy", "trusted-types", "'Trusted")


def test_a_websocket_to_the_same_server_is_allowed_and_others_are_not(page: Page) -> None:
    page.goto("")
    page.allow_errors("WebSocket", "connect-src")
    script = "new Promise((resolve) => { new WebSocket(%s).onerror = () => resolve('refused'); })"
    assert page.eval(script % "`wss://${location.host}/version`") == "refused"  # by the server: it is no WebSocket
    assert page.csp_violations == []
    page.eval("try { new WebSocket('wss://192.0.2.1/'); } catch {}")
    page.wait_until(lambda: page.csp_violations, "the other one is reported")


def test_the_page_loads_behind_a_proxy_that_adds_a_path(browser: Browser, server: ConsoleServer) -> None:
    with running_proxy(server.server, "/x/y") as address:
        page = browser.new_page(address)
        try:
            for start in ("/x/y/", "/x/y/console", "/x/y/console/a/b/c"):
                page.goto(start)
                page.wait_for("dialog input")
                assert page.path.startswith("/x/y/console/")
                answered = [each for each in page.requests if each.status]  # the next page cancels the others
                assert {each.status for each in answered if "/assets/" in each.path} <= {200, 304}
            assert [each for each in page.requests if each.path.startswith("/console/assets/")]
            assert page.csp_violations == []
        finally:
            page.close_all()


def test_every_user_can_sign_in(page: Page, server: ConsoleServer, sign_in: SignIn) -> None:
    page.goto("")
    for user in USERS:
        sign_in(page, user)
        script = """fetch("/kubernetes/management/apis/management.service.sh/v1/selves", {method: "POST",
          headers: {"content-type": "application/json"}, body: "{}"}).then((r) => r.json())"""
        assert page.eval(script)["status"]["user"]["name"] == user
