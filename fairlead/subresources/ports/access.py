"""Who may open a port in a browser, and the subresource `portaccess`, which says where it is.

The console asks for a ticket for a browser that has no cookie for the port yet (`grants.py`). Without `challenge`, the
answer is just the address of the port, which leads to the console and back.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlencode

import structlog

from fairlead.authz.port_access import PortAccess
from fairlead.core.clock import Clock, timestamp
from fairlead.core.errors import BadRequest, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object, metadata
from fairlead.core.user import User
from fairlead.domain.sleep_mode import sleep_type_of
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.ports.grants import NONCE, TICKET_SECONDS, Grant, GrantSigner
from fairlead.subresources.ports.hosts import PortAddress, PortHosts, mark_of
from fairlead.subresources.workspaces.exchanges import build_response

OWN_PATHS = "/.fairlead/"
OPEN_PATH = f"{OWN_PATHS}open"
MAX_PATH_CHARS = 2048
_PATH = re.compile(r"/(?![/\\])[!-~]*")
"""A path on the same host. Browsers read `//` and `/\\` at the beginning as another host."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PortPermissions:
    """Checks grants against what is stored now. `user_of_key` returns the user of a key that is active."""

    registry: Registry
    access: PortAccess
    user_of_key: Callable[[str], User | None]

    def get_workspace(self, namespace: str, name: str, uid: str = "") -> Object:
        """Raises NotFound, also if the workspace is a later one of the same name."""
        entry = self.registry.resource(self.access.api_group, WORKSPACE.plural).get_cached(namespace, name)
        workspace = decode(entry) if entry is not None else {}
        if not workspace or (uid and metadata(workspace)["uid"] != uid):
            raise NotFound.of(WORKSPACE.plural, self.access.api_group, name)
        return workspace

    def find_user(self, grant: Grant) -> User | None:
        """The user of a grant; None if the login has ended."""
        user = self.user_of_key(grant.key)
        if user is None or (user.name, user.uid) != (grant.user, grant.user_uid):
            return None
        return user

    def check(self, user: User, grant: Grant) -> Object:
        """The workspace. Raises Forbidden, or NotFound if it is not the one that was opened."""
        self.check_port(user, grant.namespace, grant.workspace, grant.port)
        return self.get_workspace(grant.namespace, grant.workspace, grant.uid)

    def check_port(self, user: User, namespace: str, name: str, port: int) -> None:
        if not self.access.may_open(user, namespace, name, port).allowed:
            why = f'User "{user.name}" may not use the workspace, and its port {port} is not shared with them'
            raise Forbidden.of(WORKSPACE.plural, self.access.api_group, name, why)


class PortAccessHandler:
    """POST of `portaccess`."""

    def __init__(
        self, hosts: PortHosts, tickets: GrantSigner, permissions: PortPermissions, clock: Clock, namespace_prefix: str
    ) -> None:
        self._hosts = hosts
        self._tickets = tickets
        self._permissions = permissions
        self._clock = clock
        self._prefix = namespace_prefix

    async def __call__(self, request: ActionRequest) -> Object:
        spec = request.body.get("spec") or {}
        port = spec.get("port") or 0
        path = spec.get("path") or "/"
        challenge = spec.get("challenge") or ""
        if request.dry_run:
            raise BadRequest("dryRun is not supported: a ticket is issued or not; omit it")
        if len(path) > MAX_PATH_CHARS or not _PATH.fullmatch(path):
            raise BadRequest(f"spec.path: must begin with one slash, in at most {MAX_PATH_CHARS} ASCII characters")
        if challenge and not NONCE.fullmatch(challenge):
            raise BadRequest("spec.challenge: must be the value that the host of the port has sent")
        address = PortAddress(port, request.name, request.namespace.removeprefix(self._prefix))
        self._hosts.origin(address)  # raises BadRequest if it has none
        request.call.annotations = {**request.call.annotations, "service.sh/port": str(port)}
        self._permissions.check_port(request.user, request.namespace, request.name, port)
        workspace = self._permissions.get_workspace(request.namespace, request.name)
        uid = str(metadata(workspace)["uid"])
        origin = self._hosts.origin(replace(address, mark=mark_of(uid)))
        status = {"url": f"{origin}{path}"}
        if challenge:
            if sleep_type_of(workspace):
                raise Conflict(f'workspace "{request.name}" is asleep; wake it with `fairlead workspace up`')
            expires = int(self._clock.now().timestamp()) + TICKET_SECONDS
            grant = self._build_grant(request, uid, port, expires, challenge)
            query = urlencode({"ticket": self._tickets.sign(grant), "path": path})
            status["url"] = f"{origin}{OPEN_PATH}?{query}"
            status["expirationTimestamp"] = timestamp(self._clock.now() + timedelta(seconds=TICKET_SECONDS))
            log.info(
                "a port was opened in a browser",
                user=request.user.name,
                namespace=request.namespace,
                workspace=request.name,
                port=port,
                audit_id=request.call.audit_id,
            )
        return build_response(request, spec=spec, status=status)

    def _build_grant(self, request: ActionRequest, uid: str, port: int, expires: int, challenge: str) -> Grant:
        user = request.user
        if user.impersonator is not None or not user.key:
            raise Forbidden("a port is opened with a login or an access key of the user, not as another user")
        return Grant(
            namespace=request.namespace,
            workspace=request.name,
            uid=uid,
            port=port,
            key=user.key,
            user=user.name,
            user_uid=user.uid,
            expires=expires,
            challenge=challenge,
        )
