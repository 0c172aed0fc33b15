"""Ports of a workspace by their host names: a real server, a real runner, and a real program behind a port."""

import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from fairlead.subresources.ports.hosts import mark_of
from tests.harness.eventually import wait_until
from tests.harness.server_process import Server, running_server
from tests.live.port_program import PortProgram, running_program
from tests.live.port_visits import DOMAIN, NAVIGATION, PortVisit
from tests.live.runner_process import running_runner
from tests.live.test_workspace_exec import MERGE, start_workspace
from tests.live.websocket_client import UpgradeRejected, WebSocket
from tests.live.workspace_setup import WORKSPACE, M, create_object

PORT_ENGINE = "tests.live.port_engine:create_engine"
SHARES = "service.sh/port-shares"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ports")
    source = folder / "source"
    source.mkdir()
    with (
        running_server(folder / "data") as server,
        server.client() as admin,
        running_runner(server, admin, folder / "runner", PORT_ENGINE, flags=("--allow-folder", str(source))),
    ):
        start_workspace(admin, f"local:{source}")
        yield server


@pytest.fixture(scope="module")
def program() -> Iterator[PortProgram]:
    with running_program() as program:
        yield program


@pytest.fixture
def visit(server: Server, program: PortProgram) -> PortVisit:
    """A browser that has opened the port as the administrator."""
    visit = PortVisit(server, program.port)
    response = visit.open(server.key)
    assert (response.status_code, response.headers["location"]) == (303, "/")
    return visit


def headers_of(response: httpx.Response) -> dict[str, str]:
    """The headers that the program got."""
    assert response.status_code == 200, response.text
    return {name.lower(): value for name, value in response.json()["headers"]}


def new_key(server: Server, user: str) -> str:
    with server.client() as admin:
        create_object(admin, f"{M}/users", "User", user, username=user)
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": f"{user}-key"}}
        created = admin.post(f"{M}/ownedaccesskeys", json={**body, "spec": {"user": user}})
        assert created.status_code == 201, created.text
        key: str = created.json()["spec"]["key"]
        return key


def test_a_request_looks_to_the_program_like_one_of_its_own_machine(visit: PortVisit) -> None:
    sent = {
        "Origin": visit.origin,
        "Referer": f"{visit.origin}/page",
        "X-Forwarded-For": "10.0.0.1",
        "X-Forwarded-Host": "evil.example.com",
        "Forwarded": "for=10.0.0.1",
        "Authorization": "Basic YTpi",
    }
    got = headers_of(visit.send("/show?a=1", headers=sent))
    local = f"localhost:{visit.port}"
    assert (got["host"], got["origin"], got["referer"]) == (local, f"http://{local}", f"http://{local}/page")
    assert got["authorization"] == "Basic YTpi"
    assert not [name for name in got if name.startswith("x-forwarded") or name in ("forwarded", "cookie")]


def test_no_credential_of_the_server_reaches_the_program(visit: PortVisit, server: Server) -> None:
    login = {"__Host-service_access_key": server.key, "plain": "from-a-script"}
    visit.cookies |= login
    got = headers_of(visit.send("/show", headers={"Authorization": f"Bearer {server.key}"}))
    assert "cookie" not in got
    assert "authorization" not in got


def test_a_program_gets_its_own_cookies_back_and_no_others(visit: PortVisit) -> None:
    session = visit.cookies["__Host-fairlead_port"]
    response = visit.send("/set-cookies")
    headers = response.headers.get_list("set-cookie")
    assert not [header for header in headers if "domain" in header.lower()]
    assert visit.cookies["__Host-fairlead_port"] == session  # the program cannot set it
    assert "clear-site-data" not in response.headers
    visit.cookies["plain"] = "tossed by another workspace"
    visit.cookies["other"] = "tossed by another workspace"
    assert headers_of(visit.send("/show"))["cookie"] == "plain=one; hidden=two"


def test_a_response_has_the_headers_of_the_program_alone(visit: PortVisit) -> None:
    response = visit.send("/show")
    assert response.headers["content-type"] == "application/json"
    assert "x-content-type-options" not in response.headers
    assert "audit-id" not in response.headers
    assert response.headers["origin-agent-cluster"] == "?1"
    assert visit.send("/show", "HEAD").headers["content-length"] != "0"


def test_requests_that_are_queued_keep_their_user(visit: PortVisit) -> None:
    """Other credentials that a request has are those of the program, also when the server is busy."""
    headers = {"Authorization": "Bearer of-the-program"}

    def send_some(_: int) -> set[int]:
        return {visit.send("/show", headers=headers).status_code for _ in range(20)}

    def list_some(_: int) -> None:
        with visit.server.client() as admin:
            for _ in range(60):
                assert admin.get(f"{M}/users").status_code == 200

    with ThreadPoolExecutor(20) as pool:
        lists = [pool.submit(list_some, each) for each in range(8)]
        found = set[int]().union(*pool.map(send_some, range(12)))
        for each in lists:
            each.result()
    assert 200 in found and 401 not in found


def test_a_redirect_to_localhost_leads_to_the_host_of_the_port(visit: PortVisit) -> None:
    assert visit.send("/redirect").headers["location"] == f"{visit.origin}/after?x=1"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_body_arrives_whole(visit: PortVisit, is_chunked: bool) -> None:
    content = bytes(range(256)) * 4096 * 8

    def stream() -> Iterator[bytes]:
        for at in range(0, len(content), 100_000):
            yield content[at : at + 100_000]

    response = visit.send("/upload", "POST", content=stream() if is_chunked else content)
    assert response.json() == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_a_large_response_arrives_whole(visit: PortVisit) -> None:
    started = time.monotonic()
    assert len(visit.send("/large").content) == 64 * 1024 * 1024
    print(f"64 MiB in {time.monotonic() - started:.1f} s")


def test_without_the_cookie_a_page_is_sent_to_the_console_and_nothing_else_is(server: Server) -> None:
    known = PortVisit(server, 8080)
    unknown = PortVisit(server, 8080, workspace="nosuch", project="nosuch")
    by_name = PortVisit(server, 8080, mark="")
    for visit in (known, unknown, by_name):
        response = visit.send("/a?b=1", page=NAVIGATION)
        assert response.status_code == 303
        assert response.headers["location"].startswith(f"{server.url}/console/open-port?project={visit.project}&")
        assert visit.send("/a").status_code == 401
        assert visit.send("/a", "POST", page=NAVIGATION).status_code == 401


@pytest.mark.parametrize("path", ["/version", "/console/", "/kubernetes/management/apis", "/healthz", "/auth/methods"])
@pytest.mark.parametrize(
    "host",
    [
        f"8080--dev--web.{DOMAIN}",
        f"8080--dev--web--abcdefgh.{DOMAIN}",
        f"x.{DOMAIN}",
        DOMAIN,
        f"8080--DEV--web.{DOMAIN}.",
    ],
)
def test_no_path_of_the_server_exists_at_these_hosts(server: Server, host: str, path: str) -> None:
    with server.client() as admin:
        response = admin.get(path, headers={"Host": host})
    assert response.status_code in (401, 404), response.text


def test_a_ticket_works_once_and_only_in_the_browser_that_requested_it(server: Server, program: PortProgram) -> None:
    visit = PortVisit(server, program.port)
    url = visit.request_ticket(server.key, visit.ask_for_challenge()).json()["status"]["url"]
    path = url.removeprefix(visit.origin)
    other = PortVisit(server, program.port)
    other.ask_for_challenge()
    assert other.send(path, page=NAVIGATION).status_code == 400
    assert PortVisit(server, program.port).send(path, page=NAVIGATION).status_code == 400
    wrong_port = PortVisit(server, program.port + 1, cookies=dict(visit.cookies))
    assert wrong_port.send(path, page=NAVIGATION).status_code == 400
    assert visit.send(path, page=NAVIGATION).status_code == 303
    assert visit.send("/show").status_code == 200
    assert visit.send(path, page=NAVIGATION).status_code == 400


def test_no_program_is_at_the_host_that_has_only_the_name_of_a_workspace(visit: PortVisit) -> None:
    """It leads to the one with the mark: an origin for each workspace, not for all that ever had that name."""
    by_name = PortVisit(visit.server, visit.port, cookies=dict(visit.cookies), mark="")
    assert by_name.send("/show").status_code == 401
    response = by_name.send("/a?b=1", page=NAVIGATION)
    assert "challenge" not in response.headers["location"]
    assert "set-cookie" not in response.headers
    opened = by_name.request_ticket(visit.server.key, "", "/a?b=1")
    assert opened.json()["status"]["url"] == f"{visit.origin}/a?b=1"


def test_a_cookie_is_for_one_workspace_whatever_its_name(visit: PortVisit) -> None:
    former = PortVisit(visit.server, visit.port, cookies=dict(visit.cookies), mark=mark_of("a former one"))
    assert former.send("/show").status_code == 401
    ticket = former.request_ticket(visit.server.key, former.ask_for_challenge()).json()["status"]["url"]
    assert ticket.startswith(f"{visit.origin}/")
    path = ticket.removeprefix(visit.origin)
    assert former.send(path, page=NAVIGATION).status_code == 400
    assert former.send("/show").status_code == 401


def test_a_cookie_is_for_one_port_and_cannot_be_changed(visit: PortVisit) -> None:
    other = PortVisit(visit.server, visit.port + 1, cookies=dict(visit.cookies))
    assert other.send("/show").status_code == 401
    signed = visit.cookies["__Host-fairlead_port"]
    for changed in (signed[:-2], f"A{signed[1:]}", "", ".", "a.b", "é"):
        visit.cookies["__Host-fairlead_port"] = changed.encode("ascii", "ignore").decode()
        assert visit.send("/show").status_code == 401


@pytest.mark.parametrize("path", ["//evil.example.com/", "/\\evil.example.com", "https://evil.example.com", "/a b", ""])
def test_a_ticket_leads_to_no_other_host(visit: PortVisit, path: str) -> None:
    fresh = PortVisit(visit.server, visit.port)
    challenge = fresh.ask_for_challenge()
    assert fresh.request_ticket(visit.server.key, challenge, path or "x").status_code == 400
    url = fresh.request_ticket(visit.server.key, challenge).json()["status"]["url"]
    target = httpx.URL(url).copy_set_param("path", path)
    assert fresh.send(target.raw_path.decode(), page=NAVIGATION).headers["location"] == "/"


FOREIGN = [
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {},
]


@pytest.mark.parametrize("page", FOREIGN)
def test_pages_of_other_origins_send_nothing_to_a_port(
    visit: PortVisit, program: PortProgram, page: dict[str, str]
) -> None:
    for method in ("GET", "POST"):
        assert visit.send("/foreign", method, page=page).status_code == 403
    assert "/foreign" not in program.requests


def test_a_link_on_another_page_opens_a_port_but_a_form_does_not(visit: PortVisit) -> None:
    link = {**NAVIGATION, "Sec-Fetch-Site": "cross-site"}
    assert visit.send("/show", page=link).status_code == 200
    assert visit.send("/show", "POST", page=link).status_code == 403


def test_a_websocket_is_for_pages_of_the_port_alone(visit: PortVisit) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in visit.cookies.items())

    def connect(origin: str) -> WebSocket:
        headers = [("Cookie", cookie), ("Origin", origin)]
        return WebSocket(visit.server, "/socket", "x", "", headers=headers, host=visit.host)

    with connect(visit.origin) as socket:
        socket.set_timeout(20)
        assert socket.receive() == f"http://localhost:{visit.port}".encode()
        socket.send(b"x" * 60_000)
        assert socket.receive() == b"x" * 60_000
    for origin in (f"https://9--other--web.{DOMAIN}", visit.server.url, "null"):
        with pytest.raises(UpgradeRejected):
            connect(origin)


def test_a_port_that_nothing_listens_on_says_so(server: Server) -> None:
    visit = PortVisit(server, 1)
    visit.open(server.key)
    response = visit.send("/", page=NAVIGATION)
    assert response.status_code == 502
    assert "Nothing answers on port 1 of the workspace dev" in response.text


def test_streams_end_with_the_login(server: Server, program: PortProgram) -> None:
    key = new_key(server, "leaver")
    share(server, [{"port": program.port, "user": "leaver", "until": int(time.time()) + 600}])
    visit = PortVisit(server, program.port)
    visit.open(key)
    cookie = "; ".join(f"{name}={value}" for name, value in visit.cookies.items())
    headers = {"Host": visit.host, "Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
    with server.client(None) as client, client.stream("GET", "/events", headers=headers) as response:
        lines = response.iter_lines()
        assert next(lines) == "data: 0"
        with server.client() as admin:
            assert admin.delete(f"{M}/ownedaccesskeys/leaver-key").status_code == 200
        with pytest.raises(httpx.HTTPError):
            for _ in lines:
                pass
    assert visit.send("/show").status_code == 401
    wait_until(lambda: program.open_streams == 0, 20, what="the program sees the end of the stream")


def share(server: Server, shares: Any, expected: int = 200, key: str = "") -> httpx.Response:
    text = shares if isinstance(shares, str) else json.dumps(shares)
    with server.client(key) as client:
        change = {"metadata": {"annotations": {SHARES: text or None}}}
        response = client.patch(WORKSPACE, json=change, headers=MERGE)
    assert response.status_code == expected, response.text
    return response


def test_a_port_is_private_until_it_is_shared_and_then_only_for_a_time(server: Server, program: PortProgram) -> None:
    key = new_key(server, "guest")
    visit = PortVisit(server, program.port)
    challenge = visit.ask_for_challenge()
    assert visit.request_ticket(key, challenge).status_code == 403
    share(server, [{"port": program.port, "user": "guest", "until": int(time.time()) + 4}])
    visit.open(key)
    assert visit.send("/show").status_code == 200
    other = PortVisit(server, program.port + 1)
    assert other.request_ticket(key, other.ask_for_challenge()).status_code == 403
    with server.client(key) as guest:
        assert guest.get(WORKSPACE).status_code == 403
        assert guest.get(f"{WORKSPACE}/ports").status_code == 403
    wait_until(lambda: visit.send("/show").status_code == 403, 20, what="the share is over")


def test_a_port_shared_with_the_project_is_for_its_members(server: Server, program: PortProgram) -> None:
    member = new_key(server, "member")
    other_user = new_key(server, "other-user")
    with server.client() as admin:
        members = {"spec": {"members": [{"kind": "User", "name": "member", "clusterRole": "user"}]}}
        assert admin.patch(f"{M}/projects/web", json=members, headers=MERGE).status_code == 200
    share(server, [{"port": program.port, "project": True, "until": int(time.time()) + 600}])
    visit = PortVisit(server, program.port)
    challenge = visit.ask_for_challenge()
    assert visit.request_ticket(other_user, challenge).status_code == 403
    assert visit.request_ticket(member, challenge).status_code == 201
    share(server, "")
    assert visit.request_ticket(member, challenge).status_code == 403


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ("{}", "must be a list"),
        ('[{"port": 0, "user": "ada", "until": 1}]', "must be a number from 1 to 65535"),
        ('[{"port": 80, "until": 1}]', "with a user or with the project"),
        ('[{"port": 80, "user": "ada", "project": true, "until": 1}]', "with a user or with the project"),
        ('[{"port": 80, "user": "ada", "until": 99999999999}]', "ends too late"),
        (json.dumps([{"port": 80, "user": "ada", "until": 1}] * 33), "at most 32 shares"),
        (json.dumps([{"port": 80, "user": "a" * 17000, "until": 1}]), "at most 16384 bytes"),
    ],
)
def test_invalid_shares_are_refused(server: Server, shares: str, message: str) -> None:
    assert message in share(server, shares, expected=422).json()["message"]


def test_who_may_update_a_workspace_but_not_use_it_shares_nothing(server: Server) -> None:
    key = new_key(server, "editor")
    with server.client() as admin:
        access = {"spec": {"access": [{"users": ["editor"], "verbs": ["get", "update", "patch"]}]}}
        assert admin.patch(WORKSPACE, json=access, headers=MERGE).status_code == 200
    refused = share(server, [{"port": 80, "user": "editor", "until": int(time.time()) + 60}], expected=403, key=key)
    assert "sharing its ports needs that permission" in refused.json()["message"]


def test_who_may_not_use_the_workspace_any_more_keeps_no_port_of_it(server: Server, program: PortProgram) -> None:
    key = new_key(server, "former")
    verbs = ["get", "update", "patch", "use"]
    with server.client() as admin:
        for access in ([{"users": ["former"], "verbs": verbs}], []):
            assert admin.patch(WORKSPACE, json={"spec": {"access": access}}, headers=MERGE).status_code == 200
            if access:
                share(server, [{"port": program.port, "user": "former", "until": int(time.time()) + 600}], key=key)
    visit = PortVisit(server, program.port)
    assert visit.request_ticket(key, visit.ask_for_challenge()).status_code == 403
    share(server, [{"port": program.port, "user": "former", "until": int(time.time()) + 599}])
    assert visit.request_ticket(key, visit.ask_for_challenge()).status_code == 201


def test_the_audit_log_says_who_opened_which_port(visit: PortVisit, server: Server) -> None:
    with server.client() as admin:
        found = admin.get(f"{M}/auditevents", params={"limit": 500})
        assert found.status_code == 200, found.text
    assert "portaccess" in found.text
    assert '"service.sh/port"' in found.text


def test_without_a_domain_ports_have_no_host_names(tmp_path: Any) -> None:
    with running_server(tmp_path / "data", workspace_domain="off") as server, server.client() as admin:
        create_object(admin, f"{M}/projects", "Project", "web")
        create_object(admin, WORKSPACE.removesuffix("/dev"), "DevPodWorkspaceInstance", "dev")
        response = PortVisit(server, 8080).request_ticket(server.key, "")
        assert response.status_code == 400
        assert "has no workspace_domain; use `fairlead workspace port-forward dev 8080" in response.json()["message"]
        assert admin.get("/version", headers={"Host": f"8080--dev--web.{DOMAIN}"}).status_code == 200
