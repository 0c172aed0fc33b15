"""Anything that went wrong, as Kubernetes' `Status` object. Errors are raised anywhere and rendered only here."""

from collections.abc import Awaitable
from typing import Any

import orjson
import structlog

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError, BadGateway, BadRequest, Details, Internal, Timeout, Unavailable
from fairlead.core.objects import Object
from fairlead.registry.list import TooOld
from fairlead.server.api.content import error_media_type, rendered, wants_pretty
from fairlead.server.http.pipeline import Proceed

AGGREGATED_DISCOVERY = "g=apidiscovery.k8s.io"
"""In the Accept header of clients that ask for all of discovery at once. They read no Status there, only plain text,
and show it to their users: kubectl since 1.26 and whatever else is made with client-go."""
DISCOVERY_PATHS = ("/api", "/apis")
CODES_WITHOUT_MESSAGE = frozenset({Unavailable.code, Timeout.code})
TEXT = "text/plain; charset=utf-8"

log = structlog.get_logger(__name__)


def failures(call: Call, proceed: Proceed) -> Awaitable[Reply]:
    """The stage that turns whatever a later one raises into an answer. A stream's errors are the stream's own."""
    if call.fault:
        return _reply(call, BadRequest(call.fault))
    try:
        answer = proceed(call)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a fault of ours must still be an answer
        return _reply(call, _as_api_error(call, error))
    return answer if isinstance(answer, Reply) else _later(call, answer)


async def _later(call: Call, answer: Awaitable[Reply]) -> Reply:
    try:
        return await answer
    except Exception as error:  # noqa: BLE001 - the same for what goes wrong later
        return _reply(call, _as_api_error(call, error))


def _as_api_error(call: Call, error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TimeoutError):
        return Timeout("the request took longer than the server allows; try again")
    log.error(
        "a request failed unexpectedly", method=call.method, path=call.path, audit_id=call.audit_id, exc_info=error
    )
    return Internal(f"an internal error has occurred; the server's log has more under audit id {call.audit_id}")


def _reply(call: Call, error: ApiError) -> Reply:
    accept = call.headers.get("accept", "")
    headers = [("retry-after", str(error.details.retry_after))] if error.details.retry_after else []
    if AGGREGATED_DISCOVERY in accept and _asks_for_discovery(call):
        return Reply(_shown_code(error), f"{error.message}\n".encode(), TEXT, headers)
    media_type = error_media_type(accept)
    body = rendered(orjson.dumps(status_of(error)), media_type, wants_pretty(call))
    return Reply(error.code, body, media_type, headers)


def _asks_for_discovery(call: Call) -> bool:
    """By the path as it was sent, because some errors come before it is routed. An object may have such a name, too."""
    return call.method == "GET" and call.path.endswith(DISCOVERY_PATHS) and not call.target.resource


def _shown_code(error: ApiError) -> int:
    """The code of an error in discovery. For two of the server's errors clients have a sentence of their own and never
    show ours; where they are not to come again by themselves, that would leave their users without a reason."""
    return BadGateway.code if error.code in CODES_WITHOUT_MESSAGE and not error.details.retry_after else error.code


def status_of(error: ApiError) -> Object:
    """The `Status` that describes an error."""
    metadata = {"continue": error.token} if isinstance(error, TooOld) else {}
    status: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata,
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
    }
    details = details_of(error.details)
    if details:
        status["details"] = details
    status["code"] = error.code
    return status


def details_of(details: Details) -> Object:
    found: dict[str, Any] = {
        "name": details.name,
        "group": details.group,
        "kind": details.kind,
        "uid": details.uid,
        "causes": [
            {"reason": problem.reason, "message": problem.message, "field": problem.field}
            for problem in details.problems
        ],
        "retryAfterSeconds": details.retry_after,
    }
    return {name: value for name, value in found.items() if value}
