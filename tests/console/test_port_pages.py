"""Ports of workspaces in a real browser: how a user opens one, and what hostile pages of one workspace can reach."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from fairlead.core.crypto.certificates import Certificates
from fairlead.subresources.ports.hosts import mark_of
from tests.console.browser import Browser, Page, role
from tests.console.servers import ADMIN, GROUP, LOGIN_COOKIE, ConsoleServer, running_console
from tests.harness.eventually import wait_until
from tests.live.port_program import PortProgram, running_program
from tests.live.runner_process import running_runner
from tests.live.test_workspace_exec import start_workspace
from tests.live.workspace_setup import create_object

WORKSPACES = f"{GROUP}/namespaces/service-p-web/devpodworkspaceinstances"
PAGE = "<!doctype html><title>a program</title><p>hello from the workspace</p>"
ECHO = """(url) => new Promise((resolve) => {
  const socket = new WebSocket(url), messages = [];
  socket.onmessage = ({ data }) => {
    messages.push(data);
    if (messages.length === 2) resolve(messages); else socket.send("ping");
  };
  socket.onclose = socket.onerror = () => resolve("refused");
})"""
WORKER = """
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => event.respondWith(
  new Response("<title>of the former workspace</title>", { headers: { "content-type": "text/html" } })));
"""
REGISTER = """() => new Promise((resolve) => {
  navigator.serviceWorker.oncontrollerchange = () => resolve("registered");
  navigator.serviceWorker.register("/worker.js");
})"""
LOAD = """(tag, url) => new Promise((resolve) => {
  const element = document.createElement(tag);
  element.onload = () => resolve("loaded");
  element.onerror = () => resolve("refused");
  element.src = url;
  document.body.append(element);
})"""


@dataclass(frozen=True, slots=True)
class Places:
    """A server with two workspaces, each with a program: `dev` and `other`."""

    console: ConsoleServer
    mine: PortProgram
    other: PortProgram
    source: Path

    def origin(self, workspace: str, program: PortProgram) -> str:
        """That of the workspace that has this name now."""
        uid = self.console.send("GET", f"{WORKSPACES}/{workspace}")["metadata"]["uid"]
        return self.name_origin(f"{workspace}--web--{mark_of(uid)}", program)

    def name_origin(self, names: str, program: PortProgram) -> str:
        return f"https://{program.port}--{names}.workspaces.localhost:{urlsplit(self.console.url).port}"

    @property
    def mine_origin(self) -> str:
        return self.origin("dev", self.mine)

    @property
    def other_origin(self) -> str:
        return self.origin("other", self.other)


def start_other(admin: httpx.Client, source: Path) -> None:
    spec = {"runnerRef": {"runner": "local"}, "template": {"provider": {"name": "process"}}}
    create_object(admin, WORKSPACES, "DevPodWorkspaceInstance", "other", **spec)
    other = f"{WORKSPACES}/other"
    wait_until(lambda: admin.get(f"{other}/tasks").status_code == 200, 20, what="the runner has it")
    options = json.dumps({"source": f"local:{source}"})
    assert admin.post(f"{other}/up", json={"spec": {"options": options}}).status_code == 201
    status = "lastWorkspaceStatus"
    wait_until(lambda: admin.get(other).json().get("status", {}).get(status) == "Running", 20, what="it runs")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Places]:
    folder: Path = tmp_path_factory.mktemp("ports")
    source = folder / "source"
    source.mkdir()
    flags = ("--allow-folder", str(source))
    with (
        running_console(folder / "data", certificates) as console,
        console.server.client() as admin,
        running_runner(console.server, admin, folder / "runner", "tests.live.port_engine:create_engine", flags=flags),
        running_program({"/": PAGE, "/page": PAGE}) as mine,
        running_program({"/": PAGE, "/worker.js": WORKER}) as other,
    ):
        start_workspace(admin, f"local:{source}")
        start_other(admin, source)
        yield Places(console, mine, other, source)


@pytest.fixture
def page(browser: Browser, places: Places) -> Iterator[Page]:
    """A user who is signed in to the console. Hostile pages cause errors in the browser, so these are allowed."""
    page = browser.new_page(places.console.url)
    try:
        page.set_cookie(LOGIN_COOKIE, places.console.log_in(ADMIN))
        yield page
    finally:
        page.close_all()


def open_port(page: Page, origin: str, path: str = "/") -> None:
    """As by typing the address: the browser passes through the console and comes back."""
    page.goto(f"{origin}{path}")
    page.wait_until(lambda: page.eval("document.title") == "a program", f"{origin} is shown")
    assert page.eval("location.href") == f"{origin}{path}"


def test_the_name_of_a_workspace_leads_to_its_own_origin(page: Page, places: Places) -> None:
    page.goto(f"{places.name_origin('dev--web', places.mine)}/page?a=1")
    page.wait_until(lambda: page.eval("document.title") == "a program", "the page of the program")
    assert page.eval("location.href") == f"{places.mine_origin}/page?a=1"


def call(page: Page, function: str, *arguments: Any) -> Any:
    return page.eval(f"({function})({', '.join(map(json.dumps, arguments))})")


def headers_seen(page: Page) -> dict[str, str]:
    """The headers of a request of this page, as its program got them."""
    got = page.eval("fetch('/show').then((response) => response.json())")
    return {name.lower(): value for name, value in got["headers"]}


def test_a_port_is_opened_from_the_console_and_has_pages_websockets_and_storage(page: Page, places: Places) -> None:
    page.goto(f"open-port?project=web&workspace=dev&port={places.mine.port}&path=%2Fpage%3Fa%3D1")
    page.wait_until(lambda: page.eval("document.title") == "a program", "the page of the program")
    assert page.eval("location.href") == f"{places.mine_origin}/page?a=1"
    assert call(page, ECHO, places.mine_origin.replace("https", "wss")) == [
        f"http://localhost:{places.mine.port}",
        "ping",
    ]
    assert page.eval("localStorage.setItem('a', 'b'), localStorage.getItem('a')") == "b"
    assert page.eval("document.cookie") == ""
    page.reload()
    assert page.eval("localStorage.getItem('a')") == "b"


def test_the_login_cookie_of_the_server_never_reaches_a_workspace(page: Page, places: Places) -> None:
    open_port(page, places.mine_origin)
    assert "cookie" not in headers_seen(page)


def test_a_page_reaches_neither_the_console_nor_its_api(page: Page, places: Places) -> None:
    open_port(page, places.mine_origin)
    api = f"{places.console.url}{GROUP}/projects"
    read = "(url) => fetch(url, { credentials: 'include' }).then(() => 'read', () => 'refused')"
    assert call(page, read, api) == "refused"
    create = """(url) => fetch(url, { method: "POST", mode: "no-cors", credentials: "include",
      body: JSON.stringify({ metadata: { name: "stolen" } }) }).then(() => "sent", () => "refused")"""
    call(page, create, api)
    names = [each["metadata"]["name"] for each in places.console.send("GET", f"{GROUP}/projects")["items"]]
    assert "stolen" not in names
    socket = f"{places.console.url.replace('https', 'wss')}{WORKSPACES}/dev/exec?command=id"
    assert call(page, ECHO, socket) == "refused"
    assert call(page, LOAD, "script", f"{places.console.url}{GROUP}/projects") == "refused"


def test_a_page_reaches_no_other_workspace(page: Page, places: Places) -> None:
    open_port(page, places.other_origin)
    page.eval("localStorage.setItem('secret', 'of the other workspace')")
    open_port(page, places.mine_origin)
    places.other.requests.clear()
    target = f"{places.other_origin}/stolen"
    fetching = (
        "(url, options) => fetch(url, { credentials: 'include', ...options }).then(() => 'done', () => 'refused')"
    )
    assert call(page, fetching, target, {}) == "refused"
    call(page, fetching, target, {"mode": "no-cors"})
    call(page, fetching, target, {"mode": "no-cors", "method": "POST", "body": "x=1"})
    assert call(page, LOAD, "script", target) == "refused"
    assert call(page, LOAD, "img", target) == "refused"
    call(page, LOAD, "iframe", target)
    assert call(page, ECHO, target.replace("https", "wss")) == "refused"
    assert places.other.requests == []
    assert page.eval("localStorage.getItem('secret')") is None


def test_cookies_for_the_domain_reach_no_other_program_and_not_the_console(page: Page, places: Places) -> None:
    open_port(page, places.mine_origin)
    page.eval("document.cookie = 'tossed=1; domain=workspaces.localhost; path=/; secure'")
    page.eval("document.cookie = '__Host-fairlead_port=forged; path=/; secure'")
    page.eval("document.cookie = '__Host-fairlead-c.sid=forged; domain=workspaces.localhost; path=/; secure'")
    page.eval("document.cookie = 'wide=1; domain=localhost; path=/; secure'")
    assert "tossed" in page.eval("document.cookie")  # the browser itself does not prevent it
    open_port(page, places.other_origin)
    assert "cookie" not in headers_seen(page)
    page.goto("about")
    sent = page.send("Network.getCookies", urls=[f"{places.console.url}/console/"])["cookies"]
    assert [each["name"] for each in sent] == [LOGIN_COOKIE]


def test_a_program_keeps_its_cookies_and_scripts_see_those_that_are_not_hidden(page: Page, places: Places) -> None:
    open_port(page, places.mine_origin)
    page.eval("fetch('/set-cookies').then((response) => response.text())")
    assert page.eval("document.cookie") == "plain=one"
    assert headers_seen(page)["cookie"] == "plain=one; hidden=two"
    open_port(page, places.other_origin)
    assert page.eval("document.cookie") == ""


def test_a_page_cannot_widen_its_origin(page: Page, places: Places) -> None:
    open_port(page, places.mine_origin)
    widen = "() => { try { document.domain = 'workspaces.localhost'; } catch { return ''; } return document.domain; }"
    assert call(page, widen) in ("", urlsplit(places.mine_origin).hostname)
    assert page.eval("window.originAgentCluster") is True


def test_signing_out_of_the_console_ends_the_access_to_ports(page: Page, places: Places) -> None:
    open_port(page, places.mine_origin)
    with places.console.server.client() as admin:
        keys = admin.get(f"{GROUP}/ownedaccesskeys").json()["items"]
        for key in keys:
            if key["spec"].get("type") == "Login":
                admin.delete(f"{GROUP}/ownedaccesskeys/{key['metadata']['name']}")
    assert page.eval("fetch('/show').then((response) => response.status)") == 401


def test_a_later_workspace_of_the_same_name_finds_nothing_of_the_former_one(page: Page, places: Places) -> None:
    open_port(page, places.other_origin)
    page.eval("localStorage.setItem('left', 'behind'), fetch('/set-cookies').then((response) => response.text())")
    assert call(page, REGISTER) == "registered"
    page.goto(f"{places.other_origin}/")
    page.wait_until(lambda: "former" in page.eval("document.title"), "the service worker takes all requests")
    with places.console.server.client() as admin:
        assert admin.delete(f"{WORKSPACES}/other").is_success
        wait_until(lambda: admin.get(f"{WORKSPACES}/other").status_code == 404, 30, what="it is gone")
        start_other(admin, places.source)
    open_port(page, places.other_origin)
    assert page.eval("localStorage.getItem('left')") is None
    assert page.eval("document.cookie") == ""
    assert "cookie" not in headers_seen(page)


def test_the_console_offers_the_ports_and_says_why_one_cannot_be_opened(page: Page, places: Places) -> None:
    page.goto("open-port?project=web&workspace=nosuch&port=80")
    page.wait_for_text("not found")
    page.goto("open-port?project=web&workspace=dev&port=99999")
    page.wait_for_text("must be a number from 1 to 65535")
    assert page.count(role("button", "Try again")) <= 1


def test_a_link_to_a_port_of_a_sleeping_workspace_wakes_nothing_until_the_user_says_so(
    page: Page, places: Places
) -> None:
    """The page of the console runs as the user, whichever site has led there."""
    prefix, origin = "sleepmode.service.sh/", places.other_origin
    # A sleep for lack of activity would be cancelled: the runner has reported that the test before has opened the port.
    sleep = {"sleep-type": "scheduledSleep", "sleeping-since": str(int(time.time())), "last-activity": "1"}
    with places.console.server.client() as admin:

        def is_asleep() -> bool:
            annotations = admin.get(f"{WORKSPACES}/other").json()["metadata"].get("annotations") or {}
            return f"{prefix}sleep-type" in annotations

        body = {"metadata": {"annotations": {f"{prefix}{name}": value for name, value in sleep.items()}}}
        merge = {"Content-Type": "application/merge-patch+json"}
        assert admin.patch(f"{WORKSPACES}/other", json=body, headers=merge).is_success
        page.goto(f"{origin}/")
        page.wait_for_text("The workspace other is asleep")
        assert is_asleep()
        page.click(role("button", "Wake it up and open the port"))
        page.wait_until(lambda: page.eval("document.title") == "a program", f"{origin} is shown")
        assert not is_asleep()
