"""Anything that went wrong, as Kubernetes' `Status` object. Errors are raised anywhere and rendered only here."""

from typing import Any

import orjson
import structlog

from fairlead.core.call import Call, Reply
from fairlead.core.errors import ApiError, Details, Internal, Timeout
from fairlead.core.objects import Object
from fairlead.registry.listing import TooOld
from fairlead.server.negotiate import error_media_type, rendered, wants_pretty
from fairlead.server.pipeline import Proceed

log = structlog.get_logger(__name__)


async def failures(call: Call, proceed: Proceed) -> Reply:
    """The outermost stage: whatever a later stage raises becomes an answer. A stream's errors are the stream's own."""
    try:
        return await proceed(call)
    except ApiError as error:
        return _reply(call, error)
    except TimeoutError:
        return _reply(call, Timeout("the request took longer than the server allows; try again"))
    except Exception:  # the last line of defence: a fault of ours must still be an answer, and leave a trace
        log.exception("a request failed unexpectedly", method=call.method, path=call.path, audit_id=call.audit_id)
        message = f"an internal error has occurred; the server's log has more under audit id {call.audit_id}"
        return _reply(call, Internal(message))


def _reply(call: Call, error: ApiError) -> Reply:
    media_type = error_media_type(call.headers.get("accept", ""))
    body = rendered(orjson.dumps(status_of(error)), media_type, wants_pretty(call))
    headers = [("retry-after", str(error.details.retry_after))] if error.details.retry_after else []
    return Reply(error.code, body, media_type, headers)


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
