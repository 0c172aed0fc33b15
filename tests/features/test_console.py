"""features.console: pages, assets, caching, and the redirect of browsers."""

import gzip

import pytest

from fairlead.console.build import MAX_PAGE_DEPTH, ConsoleBuild, StaticFile
from fairlead.core.call import CONSOLE, Reply, RequestInfo
from fairlead.core.errors import MethodNotAllowed
from fairlead.features.console import ConsoleHandler, find_console, redirect_browser
from fairlead.server.api.routing import RouteConfig, route
from tests.harness.calls import call

CONFIG = RouteConfig("/kubernetes/management", (find_console,))
SCRIPT = b"export {};\n" * 100
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


def static_file(content: bytes, content_type: str = "text/javascript; charset=utf-8") -> StaticFile:
    return StaticFile(content_type, content, gzip.compress(content), content[:4].hex())


PAGES = tuple(static_file(f"page at {depth}".encode(), "text/html; charset=utf-8") for depth in range(17))
BUILD = ConsoleBuild(
    hash="0123abcd",
    assets={"main.js": static_file(SCRIPT), "core/a.js": static_file(b"a")},
    pages=PAGES,
    style_source="'sha256-a'",
    script_source="'sha256-b'",
)
SERVE = ConsoleHandler(BUILD)


async def send_request(path: str, method: str = "GET", raw: str = "", **headers: str) -> Reply:
    request = call(path, method=method, headers={name.replace("_", "-"): value for name, value in headers.items()})
    request.target = route(method, path, {}, CONFIG)
    request.raw_target = raw or path
    assert request.target.root == CONSOLE
    return await SERVE(request)


@pytest.mark.parametrize(
    ("path", "depth"),
    [("/console/", 0), ("/console/projects", 0), ("/console/projects/", 1), ("/console/projects/demo/apps", 2)],
)
async def test_a_page_at_any_depth_is_the_index(path: str, depth: int) -> None:
    reply = await send_request(path)
    assert (reply.status, reply.body, reply.content_type) == (200, PAGES[depth].body, "text/html; charset=utf-8")
    headers = dict(reply.headers)
    assert headers["cache-control"] == "no-cache" and reply.cacheable
    policy = headers["content-security-policy"].split("; ")
    assert {"script-src 'self' 'sha256-b'", "style-src 'self' 'sha256-a'"} < {*policy}
    assert "require-trusted-types-for 'script'" in policy


async def test_the_depth_is_that_of_the_path_as_sent_without_its_query() -> None:
    assert (await send_request("/console/a/b", raw="/console/a%2Fb?next=/x/y/z")).body == PAGES[0].body


async def test_the_depth_of_a_page_is_bounded() -> None:
    assert (await send_request("/console/" + "a/" * MAX_PAGE_DEPTH)).body == PAGES[MAX_PAGE_DEPTH].body
    reply = await send_request("/console/" + "a/" * (MAX_PAGE_DEPTH + 1))
    assert (reply.status, dict(reply.headers)["cache-control"]) == (404, "no-store")


async def test_assets_of_this_build_can_be_cached_forever() -> None:
    reply = await send_request("/console/assets/0123abcd/main.js")
    assert (reply.status, reply.body, reply.content_type) == (200, SCRIPT, "text/javascript; charset=utf-8")
    headers = dict(reply.headers)
    assert headers["cache-control"] == "public, max-age=31536000, immutable" and reply.cacheable
    assert headers["vary"] == "Accept-Encoding"
    assert (await send_request("/console/assets/0123abcd/core/a.js")).body == b"a"


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/0123abcd", "/0123abcd/", "/0123abcd/none.js", "/0123abcd/core", "/0123abcd/core/"),
        *("/ffffffff/main.js", "/main.js", "//main.js", "/0123abcd//main.js", "/0123ABCD/main.js"),
        *("/0123abcd/../0123abcd/main.js", "/0123abcd/index.html", "/0123abcd/main.js/", "/0123abcd/main.js\x00"),
    ],
)
async def test_a_missing_asset_or_one_of_another_build_is_never_a_page(path: str) -> None:
    reply = await send_request(f"/console/assets{path}")
    assert (reply.status, reply.content_type, reply.headers) == (404, "text/plain; charset=utf-8", [NO_STORE])
    assert reply.cacheable


NO_STORE = ("cache-control", "no-store")


async def test_a_compressed_file_is_sent_to_clients_that_accept_it() -> None:
    path = "/console/assets/0123abcd/main.js"
    reply = await send_request(path, accept_encoding="br, gzip")
    assert gzip.decompress(reply.body) == SCRIPT
    assert dict(reply.headers)["content-encoding"] == "gzip"
    assert dict(reply.headers)["etag"] != dict((await send_request(path)).headers)["etag"]
    for refused in ("br", "identity", "gzip;q=0"):
        reply = await send_request(path, accept_encoding=refused)
        assert reply.body == SCRIPT and "content-encoding" not in dict(reply.headers)


@pytest.mark.parametrize("path", ["/console/", "/console/assets/0123abcd/main.js"])
@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_a_client_that_has_the_content_gets_304(path: str, encoding: str) -> None:
    etag = dict((await send_request(path, accept_encoding=encoding)).headers)["etag"]
    reply = await send_request(path, accept_encoding=encoding, if_none_match=f'"old", W/{etag}')
    assert (reply.status, reply.body) == (304, b"")
    assert dict(reply.headers)["etag"] == etag and "content-encoding" not in dict(reply.headers)
    assert (await send_request(path, accept_encoding=encoding, if_none_match='"old"')).status == 200


async def test_the_console_without_a_slash_redirects_to_itself() -> None:
    reply = await send_request("/console")
    assert (reply.status, dict(reply.headers)["location"]) == (307, "console/")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_console_is_read_only(method: str) -> None:
    with pytest.raises(MethodNotAllowed):
        await send_request("/console/", method)


async def redirect(accept: str, target: RequestInfo | None = None, **headers: str) -> Reply | None:
    sent = {"accept": accept, **{name.replace("_", "-"): value for name, value in headers.items()}}
    pending = redirect_browser(call(target=target or RequestInfo("get", "/"), headers=sent))
    return None if pending is None else await pending


async def test_a_browser_is_redirected_from_the_root_to_the_console() -> None:
    for accept in (BROWSER, "text/html", "text/*", "application/json;q=0.5, text/html"):
        reply = await redirect(accept)
        assert reply is not None, accept
        headers = dict(reply.headers)
        assert (reply.status, headers["location"], headers["cache-control"]) == (307, "console/", "no-store")
        assert headers["vary"] == "Accept, Authorization"


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "application/json, text/html", "text/plain"])
async def test_other_clients_are_not_redirected(accept: str) -> None:
    assert await redirect(accept) is None


async def test_a_browser_with_a_credential_in_a_header_or_for_another_path_is_not_redirected() -> None:
    assert await redirect(BROWSER, authorization="Bearer x") is None
    assert await redirect(BROWSER, impersonate_user="ada") is None
    assert await redirect(BROWSER, RequestInfo("post", "/")) is None
    assert await redirect(BROWSER, RequestInfo("get", "/version")) is None
    assert await redirect(BROWSER, RequestInfo("get", "/", "management")) is None
