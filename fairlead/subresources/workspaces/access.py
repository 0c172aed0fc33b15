"""What a client needs to connect to a workspace: an SSH certificate with the host keys, and the list of ports."""

import re
from typing import Annotated

import msgspec
import structlog

from fairlead.authn.ssh_authority import SshAuthority
from fairlead.core.clock import timestamp
from fairlead.core.crypto.ssh_certificates import InvalidSshKey, encode_public_key, parse_public_key
from fairlead.core.errors import BadGateway, BadRequest
from fairlead.core.objects import Object, metadata
from fairlead.links.requests import OpenRequest
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.exchanges import ExchangeHandlers, build_response
from fairlead.subresources.workspaces.targets import RunnerRequests

USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
MAX_HOST_KEYS = 4
MAX_PORTS = 1024

log = structlog.get_logger(__name__)

_Text = Annotated[str, msgspec.Meta(max_length=256)]


class _Endpoint(msgspec.Struct, rename="camel"):
    """The SSH server of a workspace, as its runner describes it."""

    host_keys: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_HOST_KEYS)]
    user: str = ""


class _Port(msgspec.Struct):
    port: Annotated[int, msgspec.Meta(gt=0, lt=65536)]
    address: _Text = ""
    process: _Text = ""


class _Ports(msgspec.Struct):
    ports: Annotated[list[_Port], msgspec.Meta(max_length=MAX_PORTS)]


class AccessHandlers:
    def __init__(self, requests: RunnerRequests, exchanges: ExchangeHandlers, authority: SshAuthority) -> None:
        self._requests = requests
        self._exchanges = exchanges
        self._authority = authority

    async def issue_certificate(self, request: ActionRequest) -> Object:
        """Signs the key of the client. The host keys come from the runner: clients trust what this server says."""
        spec = request.body.get("spec") or {}
        try:
            public_key = parse_public_key(spec.get("publicKey") or "")
        except InvalidSshKey as error:
            raise BadRequest(f"spec.publicKey: {error}") from None
        if request.dry_run:
            raise BadRequest("dryRun is not supported: a certificate is signed or not; omit it")
        uid = str(metadata(await self._requests.get_workspace(request))["uid"])
        endpoint: _Endpoint = await self._exchanges.exchange(request, OpenRequest("ssh-endpoint"), _Endpoint)
        issued = await self._authority.issue(public_key, uid, request.user.name)
        log.info(
            "an SSH certificate was issued",
            user=request.user.name,
            namespace=request.namespace,
            workspace=request.name,
            serial=issued.serial,
            audit_id=request.call.audit_id,
        )
        status = {
            "certificate": issued.text,
            "expirationTimestamp": timestamp(issued.expires_at),
            "hostKeys": [_check_host_key(each) for each in endpoint.host_keys],
            "user": _check_user(endpoint.user),
        }
        return build_response(request, spec=spec, status=status)

    async def list_ports(self, request: ActionRequest) -> Object:
        found = await self._exchanges.exchange(request, OpenRequest("ports"), _Ports)
        return build_response(request, ports=msgspec.to_builtins(found.ports))


def _check_host_key(text: str) -> str:
    """Clients write it into files, so it must be one line and a key."""
    try:
        return encode_public_key(parse_public_key(text))
    except InvalidSshKey:
        raise BadGateway("the response of the runner is invalid: a host key is not a public key") from None


def _check_user(name: str) -> str:
    """Clients write it into files and command lines, and images may contain any name."""
    if name and not USER_NAME.fullmatch(name):
        raise BadGateway("the workspace has a user whose name SSH clients may misunderstand; choose another remoteUser")
    return name
