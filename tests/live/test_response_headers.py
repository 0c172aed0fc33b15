"""Response headers for browsers, and the login cookie, over TLS."""

from collections.abc import Iterator

import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running_server

GROUP = f"{MANAGEMENT}/apis/management.service.sh/v1"
PASSWORD = "correct horse battery staple"
COOKIE = "__Host-service_access_key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("headers") / "data") as server:
        yield server


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
def test_every_response_has_x_content_type_options_nosniff(server: Server, http2: bool) -> None:
    with server.client(http2=http2) as client, server.client(None, http2=http2) as anonymous:
        client.post(CONFIGMAPS, json=configmap("large", data="x" * 100_000))
        responses = [
            client.get(CONFIGMAPS),
            client.get(f"{CONFIGMAPS}/large"),
            client.get(f"{CONFIGMAPS}/none"),
            client.head(f"{CONFIGMAPS}/large"),
            client.get(f"{MANAGEMENT}/openapi/v2"),
            client.get(f"{CONFIGMAPS}?watch=1&timeoutSeconds=1"),
            client.post(CONFIGMAPS, content=b"{"),
            anonymous.get("/healthz"),
            anonymous.get(CONFIGMAPS),
            client.get("/nothing/here"),
        ]
    for response in responses:
        assert response.headers.get_list("x-content-type-options") == ["nosniff"], response.url


def test_the_login_cookie_is_restricted_to_this_host_and_works(server: Server) -> None:
    with server.client() as admin:
        user = {"apiVersion": "management.service.sh/v1", "kind": "User", "metadata": {"name": "ada"}, "spec": {}}
        admin.post(f"{GROUP}/users", json=user).raise_for_status()
        profile = {"apiVersion": "management.service.sh/v1", "kind": "UserProfile", "password": PASSWORD}
        admin.post(f"{GROUP}/users/ada/profile", json=profile).raise_for_status()
    own_page = {"Origin": server.url}
    with server.client(None) as browser:
        login = browser.post(
            "/auth/password/login?cookie=true", json={"username": "ada", "password": PASSWORD}, headers=own_page
        )
        assert login.status_code == 200, login.text
        (cookie,) = login.headers.get_list("set-cookie")
        assert cookie.startswith(f"{COOKIE}=")
        attributes = {each.partition("=")[0].lower(): each for each in cookie.split("; ")[1:]}
        assert {"secure", "httponly"} <= attributes.keys() and "domain" not in attributes
        assert attributes["path"] == "Path=/" and attributes["samesite"] == "SameSite=Strict"
        whoami = f"{GROUP}/selves"
        self_request = {"apiVersion": "management.service.sh/v1", "kind": "Self"}
        assert browser.post(whoami, json=self_request).status_code == 403  # no Origin of this server
        response = browser.post(whoami, json=self_request, headers=own_page)
        assert response.status_code == 201 and response.json()["status"]["user"]["name"] == "ada"
        key = cookie.partition(";")[0].partition("=")[2]
        browser.cookies.clear()
        planted = browser.post(whoami, json=self_request, headers={**own_page, "Cookie": f"service_access_key={key}"})
        assert planted.status_code == 401  # without the prefix, a neighbouring domain could have set the cookie
