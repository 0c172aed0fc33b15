"""Requests to a runner with one JSON response: `tasks`, `cancel`, `state`, `snapshots`, `deletesnapshot`,
`troubleshoot`, and POST of `up`, `stop` and `restore`.

The runner sends the response on stdout and exits with 0. Otherwise the error is what it has sent on stderr.

What a client needs to connect to a workspace: an SSH certificate with the host keys, and the list of ports.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import structlog

from fairlead.authn.ssh_authority import SshAuthority
from fairlead.core import json
from fairlead.core.body_errors import MAX_VALUES, Malformed
from fairlead.core.clock import Clock, timestamp
from fairlead.core.concurrency import ANSWER_POOL, LARGE_JSON_BYTES
from fairlead.core.crypto.ssh_certificates import InvalidSshKey, encode_public_key, parse_public_key
from fairlead.core.errors import ApiError, BadGateway, BadRequest, Timeout
from fairlead.core.objects import Object, metadata
from fairlead.core.workspaces import DISCARD, RETAIN
from fairlead.links.contract import Stream
from fairlead.links.frames import STDERR, STDIN, STDOUT, clean_text
from fairlead.links.requests import OpenRequest, Refused
from fairlead.links.streams import Data, Exit, StreamReset
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.hub import RunnerHub
from fairlead.subresources.workspaces.targets import (
    RunnerRequests,
    api_error,
    parse_options,
    parse_task_id,
    runner_of,
)

MAX_RESPONSE_BYTES = 4 * 1024 * 1024
MAX_ERROR_BYTES = 4 * 1024
RESPONSE_SECONDS = 25.0


class Task(msgspec.Struct, rename="camel", omit_defaults=True):
    """A task as a runner reports it."""

    id: str
    type: str
    status: str
    result: str = ""
    logs: str = ""
    created_at: str = ""


class _Tasks(msgspec.Struct):
    tasks: list[Task]


class _StartedTask(msgspec.Struct, rename="camel"):
    task_id: str


class _State(msgspec.Struct):
    state: str


class ExchangeHandlers:
    def __init__(self, requests: RunnerRequests, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock

    async def start_task(self, request: ActionRequest) -> Object:
        """POST of `up` and `stop`: starts the task, or joins the one under way."""
        spec = request.body.get("spec") or {}
        wanted = OpenRequest(
            request.call.target.subresource,
            options=parse_options(spec.get("options") or ""),
            debug=bool(spec.get("debug")),
            detach=True,
        )
        if request.dry_run:
            raise BadRequest("dryRun is not supported: a task is started or not; omit it")
        started = await self.exchange(request, wanted, _StartedTask)
        return build_response(request, spec=spec, status={"taskId": started.task_id})

    async def list_tasks(self, request: ActionRequest) -> Object:
        wanted = OpenRequest("tasks", task_id=parse_task_id(request.call.parameter("taskID")))
        found = await self.exchange(request, wanted, _Tasks)
        return build_response(request, tasks=msgspec.to_builtins(found.tasks))

    async def list_snapshots(self, request: ActionRequest) -> Object:
        found = await self.exchange(request, OpenRequest("snapshots"), _Snapshots)
        return build_response(request, snapshots=msgspec.to_builtins(found.snapshots))

    async def restore_snapshot(self, request: ActionRequest) -> Object:
        """It wakes nothing up: a restore is for what runs now."""
        spec = request.body.get("spec") or {}
        if request.dry_run:
            raise BadRequest("dryRun is not supported: a task is started or not; omit it")
        wanted = OpenRequest("restore", options=spec, detach=True)
        started = await self.exchange(request, wanted, _StartedTask)
        return build_response(request, spec=spec, status={"taskId": started.task_id})

    async def delete_snapshot(self, request: ActionRequest) -> Object:
        spec = request.body.get("spec") or {}
        if request.dry_run:
            raise BadRequest("dryRun is not supported; omit it")
        await self.exchange(request, OpenRequest("delete-snapshot", options=spec), None)
        return build_response(request, spec=spec)

    async def cancel_task(self, request: ActionRequest) -> Object:
        task_id = parse_task_id(request.body.get("taskId") or "")
        if not task_id:
            raise BadRequest("taskId: name the task to cancel; see the subresource tasks")
        if request.dry_run:
            raise BadRequest("dryRun is not supported; omit it")
        await self.exchange(request, OpenRequest("cancel", task_id=task_id), None)
        return build_response(request, taskId=task_id)

    async def get_or_set_state(self, request: ActionRequest) -> Object:
        if request.verb == "get":
            state = (await self.exchange(request, OpenRequest("state"), _State)).state
        else:
            state = request.body.get("state") or ""
            if request.dry_run:
                raise BadRequest("dryRun is not supported; omit it")
            await self.exchange(request, OpenRequest("set-state"), None, state.encode())
        return build_response(request, state=state)

    async def troubleshoot(self, request: ActionRequest) -> Object:
        """What is known here is shown also if the runner does not respond: then this is what is wrong."""
        workspace = await self._requests.get_workspace(request)
        errors, report, runner = [], {}, ""
        try:
            runner = runner_of(workspace)
            report = await self.exchange(request, OpenRequest("troubleshoot"), dict[str, Any])
        except ApiError as error:
            errors.append({"message": error.message})
        return build_response(
            request,
            workspace=workspace,
            runner={"name": runner, "checkedAt": timestamp(self._clock.now())},
            report=report,
            errors=errors,
        )

    async def exchange(
        self,
        request: ActionRequest,
        wanted: OpenRequest,
        expected: Any,
        content: bytes = b"",
    ) -> Any:
        """The response, converted to the type `expected`; None if that is None. Raises ApiError."""
        return await exchange(lambda: self._requests.open(request, wanted), expected, content)


async def exchange(open_stream: Callable[[], Awaitable[Stream]], expected: Any, content: bytes = b"") -> Any:
    """The response on a new stream, converted to the type `expected`; None if that is None. Raises ApiError."""
    try:
        async with asyncio.timeout(RESPONSE_SECONDS):
            stream = await open_stream()
            try:
                output = await _converse(stream, content)
            except StreamReset as reset:
                raise BadGateway(f"the runner has ended the stream: {reset.reason}") from None
            finally:
                await stream.reset("the response is complete, or not wanted any more")
    except TimeoutError:
        raise Timeout(f"the runner did not respond within {RESPONSE_SECONDS:g} seconds") from None
    if expected is None:
        return None
    if len(output) <= LARGE_JSON_BYTES:
        return _decode(output, expected)
    return await ANSWER_POOL.run(len(output), _decode, output, expected)


async def ask_runner(hub: RunnerHub, wanted: OpenRequest) -> dict[str, Any]:
    """What a runner responds to the server itself; empty if it responds nothing. Raises ApiError."""

    async def open_stream() -> Stream:
        try:
            return await hub.open(wanted)
        except Refused as refusal:
            raise api_error(refusal) from None

    found: dict[str, Any] = await exchange(open_stream, None if wanted.action in (RETAIN, DISCARD) else dict[str, Any])
    return found or {}


def _decode(content: bytes, expected: Any) -> Any:
    """Not decoded by msgspec, which recurses without a limit and accepts numbers that no response can have."""
    try:
        return msgspec.convert(json.decode_foreign(content, MAX_VALUES), expected)
    except json.TooManyValues:
        raise BadGateway(f"the response of the runner has more than {MAX_VALUES} values") from None
    except (Malformed, msgspec.ValidationError) as error:
        raise BadGateway(f"the response of the runner is invalid: {error}") from None


async def _converse(stream: Stream, content: bytes) -> bytes:
    """Sends `content` as stdin, and returns stdout. Raises ApiError if the runner exits with another code than 0."""
    if content:
        await stream.send(STDIN, content)
    await stream.send_eof(STDIN)
    output: dict[int, bytearray] = {STDOUT: bytearray(), STDERR: bytearray()}
    limits = {STDOUT: MAX_RESPONSE_BYTES, STDERR: MAX_ERROR_BYTES}
    while (message := await stream.receive()) is not None:
        if isinstance(message, Exit):
            if message.code:
                text = clean_text(output[STDERR].decode(errors="replace")).strip()
                raise BadRequest(text or f"the runner has failed with exit code {message.code}")
            return bytes(output[STDOUT])
        if isinstance(message, Data) and message.channel in output:
            target = output[message.channel]
            target += message.content
            if message.channel == STDERR:
                del target[:-MAX_ERROR_BYTES]  # the end has the reason
            elif len(target) > limits[STDOUT]:
                raise BadGateway(f"the response of the runner has more than {MAX_RESPONSE_BYTES} bytes")
    raise BadGateway("the runner has ended the stream without an exit code")


def build_response(request: ActionRequest, **fields: object) -> Object:
    return request.build_response(**fields)


USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
MAX_HOST_KEYS = 4
MAX_PORTS = 1024
MAX_SNAPSHOTS = 100

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


class _Snapshot(msgspec.Struct, rename="camel"):
    id: Annotated[str, msgspec.Meta(max_length=64)]
    created_at: Annotated[str, msgspec.Meta(max_length=64)]
    bytes: Annotated[int, msgspec.Meta(ge=0)]


class _Snapshots(msgspec.Struct):
    snapshots: Annotated[list[_Snapshot], msgspec.Meta(max_length=MAX_SNAPSHOTS)]


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
