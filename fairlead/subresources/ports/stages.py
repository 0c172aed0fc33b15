"""The stages of requests to the host names of ports: which port, which user, from which page, and whether they may.

Other workspaces are of the same site for a browser, so that it sends the port cookie with requests of their pages, too,
whatever `SameSite` says. So a request counts only if it comes from a page of this very host, or if a user opens it in a
tab of its own: browsers say so in `Sec-Fetch-*`, and in `Origin` for WebSockets.
"""

import secrets
from collections.abc import Awaitable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import msgspec

from fairlead.core.call import Call, Reply, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.errors import ApiError, Expired, NotFound
from fairlead.core.objects import Object
from fairlead.domain.sleep_mode import sleep_type_of
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.server.discovery.health import TEXT
from fairlead.subresources.ports.access import OPEN_PATH, OWN_PATHS, PortPermissions
from fairlead.subresources.ports.cookies import (
    NONCE_COOKIE,
    SESSION_COOKIE,
    find_cookie,
    parse_cookies,
    set_cookie,
)
from fairlead.subresources.ports.grants import NONCE, SESSION_SECONDS, Grant, GrantSigner, GrantSigners, digest_nonce
from fairlead.subresources.ports.hosts import PortAddress, PortHosts, mark_of

PORTS_ROOT = "ports"
"""`RequestInfo.root` of these requests."""
CONSOLE_PAGE = "/console/open-port"
NONCE_SECONDS = 600
_PAGE_HEADERS = [
    ("cache-control", "no-store"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
]


@dataclass(frozen=True, slots=True)
class PortRequest:
    """What the stages have found out about a request. `grant` is None without a valid cookie."""

    address: PortAddress
    origin: str
    grant: Grant | None


class PortStages:
    """`console_url` is the address of the console; empty if there is none."""

    def __init__(
        self,
        hosts: PortHosts,
        signers: GrantSigners,
        permissions: PortPermissions,
        clock: Clock,
        namespace_prefix: str,
        console_url: str,
    ) -> None:
        self._hosts = hosts
        self._signers = signers
        self._permissions = permissions
        self._clock = clock
        self._prefix = namespace_prefix
        self._console_url = console_url
        self._requests: WeakKeyDictionary[Call, PortRequest] = WeakKeyDictionary()

    def route(self, call: Call) -> None:
        address = self._hosts.parse(call.headers.get("host"))
        if address is None:
            call.defer_error(NotFound("there is no port of a workspace with this host name: PORT--WORKSPACE--PROJECT"))
            return
        call.target = self._target_of(address, call.path)
        self._requests[call] = PortRequest(address, self._hosts.origin(address), None)

    def _target_of(self, address: PortAddress, path: str) -> RequestInfo:
        return RequestInfo(
            verb="get",
            path=path,
            root=PORTS_ROOT,
            group=self._permissions.access.api_group,
            version=WORKSPACE.version,
            resource=WORKSPACE.plural,
            subresource="port",
            namespace=f"{self._prefix}{address.project}",
            name=address.workspace,
        )

    def authenticate(self, call: Call) -> None:
        """Only the port cookie counts: other credentials in the request are those of the program."""
        request = self._requests.get(call)
        if request is None:
            return
        text = find_cookie(parse_cookies(call.headers.get_all("cookie")), SESSION_COOKIE)
        grant = self._open(self._signers.sessions, text, call)
        user = self._permissions.find_user(grant) if grant is not None else None
        if user is not None:
            call.user = user
            self._requests[call] = PortRequest(request.address, request.origin, grant)

    def _open(self, signer: GrantSigner, text: str, call: Call) -> Grant | None:
        """A grant for the port of this call, at the host name of this very workspace."""
        grant = signer.open(text, self._clock.now().timestamp()) if text else None
        if grant is None:
            return None
        target = call.target
        address = self._requests[call].address
        wanted = (target.namespace, target.name, address.port, address.mark)
        return grant if (grant.namespace, grant.workspace, grant.port, mark_of(grant.uid)) == wanted else None

    def authorize(self, call: Call) -> Awaitable[Reply | None] | None:
        if call.deferred_error is not None:
            error = call.pop_deferred_error()
            return build_page(error.code, error.message)
        request = self.request_of(call)
        if call.path == OPEN_PATH:
            return self._redeem_ticket(call, request)
        if call.path.startswith(OWN_PATHS):
            return build_page(404, "There is no such page.")
        if request.grant is None or call.user is None:
            return self._send_to_console(call, request)
        if problem := find_foreign_page(call, request.origin):
            return build_page(403, problem)
        try:
            workspace = self._permissions.check(call.user, request.grant)
        except NotFound:
            return self._send_to_console(call, request)  # as a user without access: it must not tell names apart
        except ApiError as error:
            return build_page(error.code, error.message)
        if sleep_type_of(workspace):
            return self._send_to_console(call, request)
        call.guard = self
        return None

    def request_of(self, call: Call) -> PortRequest:
        return self._requests[call]

    def get_workspace(self, grant: Grant) -> Object:
        return self._permissions.get_workspace(grant.namespace, grant.workspace, grant.uid)

    # --- the guard of open streams -----------------------------------------------------------------------------------

    def require(self, call: Call, target: RequestInfo) -> None:
        raise Expired("a request to a port of a workspace has no other permissions")

    def recheck(self, call: Call) -> None:
        grant = self.request_of(call).grant
        user = self._permissions.find_user(grant) if grant is not None else None
        if user is None or grant is None or self._clock.now().timestamp() >= grant.expires:
            raise Expired("the login has ended; open the port again")
        self._permissions.check(user, grant)

    # --- how a browser gets its cookie -------------------------------------------------------------------------------

    def _send_to_console(self, call: Call, request: PortRequest) -> Reply:
        """The same for all host names, whether there is such a workspace or not."""
        if not is_navigation(call):
            return build_page(401, "The login at this port has ended, or the workspace is asleep. Reload the page.")
        if not self._console_url:
            return build_page(
                401, "This server has no console, which opens ports. Use `fairlead workspace port-forward`."
            )
        address = request.address
        wanted: dict[str, str | int] = {
            "project": address.project,
            "workspace": address.workspace,
            "port": address.port,
            "path": call.raw_target,
        }
        headers: list[tuple[str, str]] = []
        if address.mark:  # otherwise, the console says which host name the workspace has
            nonce = find_cookie(parse_cookies(call.headers.get_all("cookie")), NONCE_COOKIE)
            if not NONCE.fullmatch(nonce):
                nonce = secrets.token_urlsafe(32)
            wanted["challenge"] = digest_nonce(nonce)
            headers.append(("set-cookie", set_cookie(NONCE_COOKIE, nonce, NONCE_SECONDS)))
        return _redirect(f"{self._console_url}{CONSOLE_PAGE}?{urlencode(wanted)}", headers)

    def _redeem_ticket(self, call: Call, request: PortRequest) -> Reply:
        nonce = find_cookie(parse_cookies(call.headers.get_all("cookie")), NONCE_COOKIE)
        grant = self._open(self._signers.tickets, call.parameter("ticket"), call)
        if grant is None or not NONCE.fullmatch(nonce) or digest_nonce(nonce) != grant.challenge:
            return build_page(400, f"This address has been used, or is too old. Open {request.origin} again.")
        user = self._permissions.find_user(grant)
        if user is None:
            return build_page(401, f"The login has ended. Open {request.origin} again.")
        try:
            self._permissions.check(user, grant)
        except ApiError as error:
            return build_page(error.code, error.message)
        expires = int(self._clock.now().timestamp()) + SESSION_SECONDS
        session = self._signers.sessions.sign(msgspec.structs.replace(grant, expires=expires, challenge=""))
        headers = [
            ("set-cookie", set_cookie(SESSION_COOKIE, session, SESSION_SECONDS)),
            ("set-cookie", set_cookie(NONCE_COOKIE, "", 0)),
        ]
        path = call.parameter("path")
        is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
        return _redirect(path if is_local and " " not in path else "/", headers)


def is_navigation(call: Call) -> bool:
    """Whether a user opens the address in a tab. Browsers that do not say it are taken at their word about HTML."""
    if call.method != "GET" or call.is_websocket:
        return False
    headers = call.headers
    if headers.get("sec-fetch-mode"):
        return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return "text/html" in headers.get("accept")


def find_foreign_page(call: Call, origin: str) -> str:
    """Why a request with the port cookie does not come from a page of this host; empty if it does."""
    headers = call.headers
    if call.is_websocket:
        is_own = headers.get_all("origin") == [origin]
        return "" if is_own else "A WebSocket to this port must be opened by one of its own pages."
    site = headers.get_all("sec-fetch-site")
    if site in (["same-origin"], ["none"]):
        return ""
    if site and is_navigation(call) and headers.get("sec-fetch-mode"):
        return ""
    if not site:
        return "The browser does not say which page sends this request (Sec-Fetch-Site). Use a current one."
    return "A page of another origin must not send requests to this port, or show it in a frame."


def build_page(status: int, text: str) -> Reply:
    """A response of the server itself, as plain text."""
    title = HTTPStatus(status).phrase
    return Reply(status, f"{title}\n\n{text}\n".encode(), TEXT, list(_PAGE_HEADERS), cacheable=True)


def _redirect(location: str, headers: list[tuple[str, str]]) -> Reply:
    return Reply(303, b"", "", [("location", location), *headers, *_PAGE_HEADERS], cacheable=True)
