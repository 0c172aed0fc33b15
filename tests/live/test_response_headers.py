"""What every answer says to browsers, and the cookie that they sign in with, as a client gets them over TLS."""

from collections.abc import Iterator

import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running

GROUP = f"{MANAGEMENT}/apis/management.service.sh/v1"
PASSWORD = "correct horse battery staple"
COOKIE = "__Host-service_access_key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("headers") / "data") as server:
        yield server


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
def test_no_browser_guesses_what_an_answer_is(server: Server, http2: bool) -> None:
    with server.client(http2=http2) as client, server.client(None, http2=http2) as stranger:
        client.post(CONFIGMAPS, json=configmap("large", data="x" * 100_000))
        answers = [
            client.get(CONFIGMAPS),
            client.get(f"{CONFIGMAPS}/large"),
            client.get(f"{CONFIGMAPS}/none"),
            client.head(f"{CONFIGMAPS}/large"),
            client.get(f"{MANAGEMENT}/openapi/v2"),
            client.get(f"{CONFIGMAPS}?watch=1&timeoutSeconds=1"),
            client.post(CONFIGMAPS, content=b"{"),
            stranger.get("/healthz"),
            stranger.get(CONFIGMAPS),
            client.get("/nothing/here"),
        ]
    for answer in answers:
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer.url


def test_the_cookie_of_a_login_is_for_this_host_alone_and_works(server: Server) -> None:
    with server.client() as admin:
        user = {"apiVersion": "management.service.sh/v1", "kind": "User", "metadata": {"name": "ada"}, "spec": {}}
        admin.post(f"{GROUP}/users", json=user).raise_for_status()
        profile = {"apiVersion": "management.service.sh/v1", "kind": "UserProfile", "password": PASSWORD}
        admin.post(f"{GROUP}/users/ada/profile", json=profile).raise_for_status()
    own_page = {"Origin": server.url}
    with server.client(None) as browser:
        signed_in = browser.post(
            "/auth/password/login?cookie=true", json={"username": "ada", "password": PASSWORD}, headers=own_page
        )
        assert signed_in.status_code == 200, signed_in.text
        given, removed = signed_in.headers.get_list("set-cookie")
        assert given.startswith(f"{COOKIE}=") and removed.startswith("service_access_key=;") and "Max-Age=0" in removed
        attributes = {each.partition("=")[0].lower(): each for each in given.split("; ")[1:]}
        assert {"secure", "httponly"} <= attributes.keys() and "domain" not in attributes
        assert attributes["path"] == "Path=/" and attributes["samesite"] == "SameSite=Strict"
        whoami = f"{GROUP}/selves"
        asked = {"apiVersion": "management.service.sh/v1", "kind": "Self"}
        assert browser.post(whoami, json=asked).status_code == 403  # it does not come from a page of ours
        answer = browser.post(whoami, json=asked, headers=own_page)
        assert answer.status_code == 201 and answer.json()["status"]["user"]["name"] == "ada"
        key = given.partition(";")[0].partition("=")[2]
        browser.cookies.clear()
        former = browser.post(whoami, json=asked, headers={**own_page, "Cookie": f"service_access_key={key}"})
        assert former.status_code == 401  # what a neighbour could have set
