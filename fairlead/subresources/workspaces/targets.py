"""Finds the runner of a workspace, builds the request to it, and opens the stream. Also the errors of all of it."""

import asyncio
from typing import Any

import orjson

from fairlead.core.errors import (
    ApiError,
    BadGateway,
    BadRequest,
    Conflict,
    Details,
    Forbidden,
    Invalid,
    NotFound,
    NotImplementedStatus,
    Timeout,
    TooLarge,
    TooManyRequests,
    Unavailable,
)
from fairlead.core.objects import Object, get_path, metadata
from fairlead.links.contract import Stream
from fairlead.links.requests import OpenRequest, Refused
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.hub import RunnerHub

WORKSPACES = "devpodworkspaceinstances"
MAX_OPTIONS_BYTES = 8 * 1024
MAX_TASK_ID_CHARS = 128
RETRY_AFTER_SECONDS = 5
_ERRORS: dict[int, type[ApiError]] = {
    each.code: each
    for each in (
        BadRequest,
        Forbidden,
        NotFound,
        Conflict,
        TooLarge,
        Invalid,
        TooManyRequests,
        NotImplementedStatus,
        Unavailable,
        Timeout,
    )
}


def api_error(refusal: Refused) -> ApiError:
    """The refusal of a runner as the error that the client gets."""
    error = _ERRORS.get(refusal.code, BadGateway)
    retry = RETRY_AFTER_SECONDS if error in (TooManyRequests, Unavailable) else 0
    return error(refusal.message or "the runner has refused the request", Details(retry_after=retry))


def parse_options(text: str) -> dict[str, Any]:
    """The options of a client, which are a JSON object as text. Raises BadRequest."""
    if len(text.encode()) > MAX_OPTIONS_BYTES:
        raise BadRequest(f"options: may have at most {MAX_OPTIONS_BYTES} bytes")
    try:
        options = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        raise BadRequest('options: must be a JSON object, such as {"recreate": true}') from None
    if not isinstance(options, dict):
        raise BadRequest('options: must be a JSON object, such as {"recreate": true}')
    return options


def parse_task_id(text: str) -> str:
    if len(text) > MAX_TASK_ID_CHARS or not text.isprintable():
        raise BadRequest(f"taskID: must have at most {MAX_TASK_ID_CHARS} printable characters")
    return text


class RunnerRequests:
    """Opens the streams for requests to subresources of workspaces."""

    def __init__(self, hub: RunnerHub, registry: Registry, api_group: str) -> None:
        self.hub = hub
        self._workspaces = registry.resource(api_group, WORKSPACES)

    async def get_workspace(self, request: ActionRequest) -> Object:
        """Raises NotFound."""
        return decode(await self._workspaces.get(request.namespace, request.name))

    async def open(self, request: ActionRequest, wanted: OpenRequest) -> Stream:
        """A stream to the runner of the workspace, with `wanted` completed. Raises ApiError."""
        workspace = await self.get_workspace(request)
        completed = OpenRequest(
            action=wanted.action,
            runner=runner_of(workspace),
            uid=metadata(workspace)["uid"],
            namespace=request.namespace,
            name=request.name,
            user=request.user.name,
            options=wanted.options,
            task_id=wanted.task_id,
            detach=wanted.detach,
            debug=wanted.debug,
            resource_version=metadata(workspace)["resourceVersion"],
            ssh_authorities=wanted.ssh_authorities,
        )
        try:
            return await self.hub.open(completed)
        except Refused as refusal:
            raise api_error(refusal) from None


def runner_of(workspace: Object) -> str:
    """Raises Unavailable if the workspace has no runner yet, with the reason."""
    runner = get_path(workspace, "spec.runnerRef.runner")
    if runner:
        return str(runner)
    scheduled = find_condition(workspace.get("status"), "Scheduled") or {}
    reason = scheduled.get("message") or "it is not scheduled yet"
    name = metadata(workspace)["name"]
    raise Unavailable(f'workspace "{name}" has no runner: {reason}', Details(retry_after=RETRY_AFTER_SECONDS))


async def reset_on_failure(stream: Stream, error: BaseException) -> None:
    """Ends a stream whose response cannot be sent."""
    reason = "cancelled" if isinstance(error, asyncio.CancelledError) else "the request has failed"
    await stream.reset(reason)
