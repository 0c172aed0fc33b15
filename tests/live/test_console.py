"""The web console over TLS: types, caching, compression, redirects, methods and security headers."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from fairlead.console.build import load_build
from fairlead.features.console import build_content_security_policy
from tests.harness.eventually import wait_until
from tests.harness.log_lines import read_lines
from tests.harness.server_process import MANAGEMENT, Server, running_server

BUILD = load_build()
ASSETS = f"/console/assets/{BUILD.hash}"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
LOGS = ("audit.log", "audit.unauthenticated.log")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Server]:
    with running_server(data) as server:
        yield server


@pytest.fixture(params=[False, True], ids=["HTTP/1.1", "HTTP/2"])
def browser(server: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client without a credential."""
    with server.client(None, http2=request.param) as client:
        yield client


@pytest.mark.parametrize("path", ["/console/", "/console/projects", "/console/projects/demo/apps?filter=x"])
def test_every_address_in_a_page_leads_to_an_asset(browser: httpx.Client, path: str) -> None:
    page = browser.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    addresses = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert f"{ASSETS}/main.js" in [urljoin(path, address) for address in addresses]
    for address in addresses:
        assert not address.startswith(("/", "http"))
        assert browser.get(urljoin(path, address)).status_code == 200, address


def test_a_page_is_revalidated_and_has_security_headers(browser: httpx.Client) -> None:
    page = browser.get("/console/")
    assert page.headers.get_list("cache-control") == ["no-cache"]
    policy = page.headers["content-security-policy"]
    assert policy == build_content_security_policy(BUILD)
    assert "'unsafe" not in policy and "*" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "camera=()" in page.headers["permissions-policy"]
    again = browser.get("/console/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == page.headers["etag"]


def test_every_asset_has_its_type_and_content_and_stays_in_caches(browser: httpx.Client) -> None:
    for path, file in BUILD.assets.items():
        response = browser.get(f"{ASSETS}/{path}")
        assert (response.status_code, response.content) == (200, file.body), path
        assert response.headers["content-type"] == file.content_type
        assert response.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]


def test_compression_is_by_request(server: Server) -> None:
    with server.client(None) as client:
        encoded = client.get("/console/", headers={"Accept-Encoding": "gzip"})
        plain = client.get("/console/", headers={"Accept-Encoding": "identity"})
    assert encoded.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert encoded.content == plain.content == BUILD.pages[0].body
    assert encoded.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert BUILD.pages[0].compressed is not None
    assert gzip.decompress(BUILD.pages[0].compressed) == plain.content


def test_head_has_the_headers_and_no_body(browser: httpx.Client) -> None:
    for path in ("/console/", f"{ASSETS}/main.js"):
        got, head = browser.get(path), browser.head(path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-type", "cache-control", "etag", "vary"):
            assert head.headers[name] == got.headers[name], name


@pytest.mark.parametrize("path", [f"{ASSETS}/none.js", "/console/assets/0000000000000000/main.js", "/console/assets/"])
def test_a_missing_asset_is_404_and_stored_nowhere(browser: httpx.Client, path: str) -> None:
    response = browser.get(path, headers=BROWSER)
    assert (response.status_code, response.headers["cache-control"]) == (404, "no-store")
    assert b"<" not in response.content


@pytest.mark.parametrize(
    "path",
    [
        f"{ASSETS}/../../../../settings/__init__.py",
        f"{ASSETS}/%2e%2e/%2e%2e/build.py",
        f"{ASSETS}/..%2f..%2fbuild.py",
        f"{ASSETS}//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_folder(server: Server, path: str) -> None:
    with server.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        response = b"".join(iter(lambda: connection.recv(65536), b""))
    assert response.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")), response


def test_only_browsers_are_redirected(server: Server, browser: httpx.Client) -> None:
    for path in ("/", "/console"):
        response = browser.get(path, headers=BROWSER)
        assert (response.status_code, response.headers["location"], response.content) == (307, "console/", b"")
    assert browser.get("/console").status_code == 307
    assert browser.get("/").status_code == 401
    assert browser.get("/", headers={"Accept": "application/json"}).json()["reason"] == "Unauthorized"
    assert browser.post("/", headers=BROWSER).status_code == 401
    assert browser.get(f"{MANAGEMENT}/", headers=BROWSER).status_code == 401
    with server.client() as client:
        assert MANAGEMENT in client.get("/", headers=BROWSER).json()["paths"]
        assert client.get("/", headers=BROWSER | {"Authorization": "Bearer wrong"}).status_code == 401


def test_other_methods_need_a_credential_and_are_not_allowed(server: Server, browser: httpx.Client) -> None:
    with server.client() as client:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert browser.request(method, "/console/").status_code == 401
            assert client.request(method, "/console/").status_code == 405


def test_an_invalid_credential_does_not_matter(browser: httpx.Client) -> None:
    headers = {"Authorization": "Bearer wrong", "Impersonate-User": "root"}
    assert browser.get("/console/", headers=headers).status_code == 200
    assert browser.get(f"{ASSETS}/main.js", headers=headers).status_code == 200


def read_audited_paths(data: Path) -> list[str]:
    lines = [line for name in LOGS if (data / name).exists() for line in read_lines(data / name)]
    return [json.loads(line)["requestURI"] for line in lines]


def test_pages_are_audited_and_assets_are_not_unless_they_need_a_credential(server: Server, data: Path) -> None:
    page, guess = "/console/audited-page", f"{MANAGEMENT}{ASSETS}/main.js"
    with server.client("wrong") as client:
        assert client.get(f"{ASSETS}/main.js?audited").status_code == 200
        assert client.get(guess).status_code == 401
        assert client.post(f"{ASSETS}/main.js?posted").status_code == 401
        assert client.get(page).status_code == 200

    def are_audited() -> bool:
        paths = read_audited_paths(data)
        return {page, guess} <= set(paths) and any("posted" in path for path in paths)

    wait_until(are_audited, what="the page, the guess and the post are audited")
    paths = read_audited_paths(data)
    assert not [path for path in paths if path.startswith(ASSETS) and "posted" not in path]


def test_pages_and_assets_have_one_label_each_in_the_metrics(server: Server) -> None:
    with server.client(None) as browser, server.client() as client:
        for number in range(20):
            browser.get(f"/console/page-{number}")
        browser.get(f"{ASSETS}/main.js")
        lines = client.get("/metrics").text.splitlines()
    counted = {line for line in lines if line.startswith("apiserver_request_total{") and "/console" in line}
    labels = {label for line in counted for label in re.findall(r'subresource="([^"]*)"', line)}
    assert labels == {"/console/", "/console/assets/"}
    assert not [line for line in lines if "page-1" in line]


def test_the_console_can_be_disabled(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", console="off") as server, server.client(None) as browser:
        for path in ("/", "/console", "/console/", f"{ASSETS}/main.js"):
            assert browser.get(path, headers=BROWSER).status_code == 401
        with server.client() as client:
            assert client.get("/console/").status_code == 404
            assert client.get(f"{ASSETS}/main.js").status_code == 404
