"""The web console, only with the setting `console`: its page at every path below `/console/`, and its assets.

They are public, and the same for all users: the page asks the API for data, with the user's login. `redirect_browser`
is a stage of its own, because the path `/` is not public for other clients.
"""

from collections.abc import Awaitable

from fairlead.console.build import (
    ASSETS_PATH,
    CONSOLE_PATH,
    MAX_PAGE_DEPTH,
    PAGES_PATH,
    ConsoleBuild,
    StaticFile,
    load_build,
)
from fairlead.core.call import CONSOLE, Call, Reply
from fairlead.core.errors import MethodNotAllowed
from fairlead.features.contract import Feature, Services
from fairlead.server.api.content import JSON, negotiate_media_type
from fairlead.server.api.routing import MountedPath
from fairlead.server.auth.impersonation import HEADER_PREFIX
from fairlead.server.discovery.document import IMMUTABLE_CACHE_CONTROL, matches_etag
from fairlead.server.discovery.health import TEXT
from fairlead.server.http.response import accepts_gzip

HTML = "text/html"
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "microphone", "geolocation", "payment", "usb", "serial", "display-capture")
)
PAGE_HEADERS = (
    ("cache-control", "no-cache"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", PERMISSIONS_POLICY),
)
ASSET_HEADERS = (
    ("cache-control", IMMUTABLE_CACHE_CONTROL),
    ("cross-origin-resource-policy", "same-origin"),
)
_NO_STORE = ("cache-control", "no-store")


def build_content_security_policy(build: ConsoleBuild) -> str:
    """Files of this server, and the one style and script that are in the page, by their digests."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {build.script_source}",
            f"style-src 'self' {build.style_source}",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


class ConsoleHandler:
    """The handler of one build."""

    def __init__(self, build: ConsoleBuild) -> None:
        self._build = build
        self._page_headers = (*PAGE_HEADERS, ("content-security-policy", build_content_security_policy(build)))

    def __call__(self, call: Call) -> Awaitable[Reply]:
        path = call.target.path
        if call.target.verb != "get":
            raise MethodNotAllowed(f"{call.method} is not supported on {path}; it is read-only")
        if path == CONSOLE_PATH:
            return _redirect("console/")
        if f"{path}/".startswith(ASSETS_PATH):
            return self._serve_asset(call, path.removeprefix(ASSETS_PATH))
        # The browser resolves relative addresses by the path that it has sent, where a slash in a name is escaped.
        depth = call.raw_target.partition("?")[0].count("/") - 2
        if not 0 <= depth <= MAX_PAGE_DEPTH:
            return _not_found()
        return _build_reply(call, self._build.pages[depth], self._page_headers)

    def _serve_asset(self, call: Call, path: str) -> Reply:
        """A file of this build. One of another build may have other content, even if there is one of the same name: a
        replica with another version has it, and the console asks its user to reload the page."""
        build_hash, _, name = path.partition("/")
        file = self._build.assets.get(name) if build_hash == self._build.hash else None
        return _not_found() if file is None else _build_reply(call, file, ASSET_HEADERS)


def redirect_browser(call: Call) -> Awaitable[Reply] | None:
    """The stage that redirects browsers from `/` to the console. Other clients get the list of paths there."""
    target, headers = call.target, call.headers
    if target.root or (target.verb, target.path) != ("get", "/"):
        return None
    if headers.get("authorization") or headers.has_prefix(HEADER_PREFIX):
        return None
    if negotiate_media_type(headers.get("accept", ""), (JSON, HTML)) != HTML:
        return None
    return _redirect("console/", ("vary", "Accept, Authorization"))


def _redirect(location: str, *headers: tuple[str, str]) -> Reply:
    """The location is relative, because a proxy may serve the console below another path."""
    return Reply(307, b"", "", [("location", location), _NO_STORE, *headers], cacheable=True)


def _not_found() -> Reply:
    return Reply(404, b"404 page not found\n", TEXT, [_NO_STORE], cacheable=True)


def _build_reply(call: Call, file: StaticFile, headers: tuple[tuple[str, str], ...]) -> Reply:
    body, etag, encoding = file.body, f'"{file.digest}"', []
    if file.compressed is not None and accepts_gzip(call.headers.get("accept-encoding", "")):
        body, etag, encoding = file.compressed, f'"{file.digest}-gzip"', [("content-encoding", "gzip")]
    sent = [*headers, ("vary", "Accept-Encoding"), ("etag", etag)]
    if matches_etag(call.headers.get("if-none-match", ""), etag):
        return Reply(304, b"", file.content_type, sent, cacheable=True)
    return Reply(200, body, file.content_type, [*sent, *encoding], cacheable=True)


def build_console_feature(services: Services) -> Feature:
    return Feature(
        name="console",
        find_mounts=(find_console,),
        mounts={CONSOLE: ConsoleHandler(load_build())},
        public_stages={"/": redirect_browser},
    )


def find_console(path: str) -> MountedPath | None:
    return MountedPath(CONSOLE, path) if path == CONSOLE_PATH or path.startswith(PAGES_PATH) else None
