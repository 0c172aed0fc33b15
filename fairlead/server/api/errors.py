"""Renders errors as Kubernetes `Status` objects. Errors are raised anywhere, and rendered only here."""

from typing import Any

import orjson
import structlog

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError, BadGateway, Details, Internal, Problem, Timeout, Unavailable
from fairlead.core.objects import Object
from fairlead.core.refusals import note_refusal
from fairlead.registry.list import ContinueExpired
from fairlead.server.api.content import error_media_type, render, wants_pretty

AGGREGATED_DISCOVERY = "g=apidiscovery.k8s.io"
"""In the Accept header of clients that request aggregated discovery: kubectl since 1.26, and others based on client-go.
For such requests they do not decode a Status, but show a plain text body to the user."""
DISCOVERY_PATHS = ("/api", "/apis")
CODES_HIDING_MESSAGE = frozenset({Unavailable.code, Timeout.code})
TEXT = "text/plain; charset=utf-8"

log = structlog.get_logger(__name__)


def render_error(call: Call, failure: Exception) -> Reply:
    """The response to a request that failed. Streams handle their own errors."""
    error = _to_api_error(call, failure)
    accept = call.headers.get("accept", "")
    note_refusal(call, error)
    headers = [("retry-after", str(error.details.retry_after))] if error.details.retry_after else []
    if AGGREGATED_DISCOVERY in accept and _is_discovery_request(call):
        return Reply(_discovery_code(error), f"{error.message}\n".encode(), TEXT, headers)
    media_type = error_media_type(accept)
    body = render(orjson.dumps(status_of(error)), media_type, wants_pretty(call))
    return Reply(error.code, body, media_type, headers)


def _to_api_error(call: Call, error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TimeoutError):
        return Timeout("the request exceeded the server's request timeout; try again")
    log.error(
        "a request failed unexpectedly", method=call.method, path=call.path, audit_id=call.audit_id, exc_info=error
    )
    return Internal(f"an internal error has occurred; see the server log, audit ID {call.audit_id}")


def _is_discovery_request(call: Call) -> bool:
    """Uses the raw path, because some errors precede routing. Objects may be named `api` or `apis` as well."""
    return call.method == "GET" and call.path.endswith(DISCOVERY_PATHS) and not call.target.resource


def _discovery_code(error: ApiError) -> int:
    """The status code of an error in discovery. For 503 and 504, clients show a message of their own instead of ours.
    Unless the client retries by itself, use 502, so that the user gets to see the reason."""
    return BadGateway.code if error.code in CODES_HIDING_MESSAGE and not error.details.retry_after else error.code


def status_of(error: ApiError) -> Object:
    """The `Status` that describes an error."""
    metadata = {"continue": error.continue_token} if isinstance(error, ContinueExpired) else {}
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
    fields: dict[str, Any] = {
        "name": details.name,
        "group": details.group,
        "kind": details.kind,
        "uid": details.uid,
        "causes": [_cause_of(problem) for problem in details.problems],
        "retryAfterSeconds": details.retry_after,
    }
    return {name: value for name, value in fields.items() if value}


def _cause_of(problem: Problem) -> Object:
    cause = {"reason": problem.reason, "message": problem.message}
    return {**cause, "field": problem.field} if problem.field else cause
