"""The API errors: exceptions that are raised anywhere and rendered in one place.

`server/api/errors.py` turns them into a Kubernetes `Status`; nothing else does. A `Problem` describes one invalid
field. `Invalid` carries all of them, so that users can fix a manifest in one pass.

    ApiError
    ├── BadRequest 400            the body or the query is malformed
    ├── Unauthorized 401          no valid credential
    ├── Forbidden 403             authenticated, but not allowed
    ├── NotFound 404
    ├── MethodNotAllowed 405
    ├── NotAcceptable 406         no representation matches the Accept header
    ├── AlreadyExists 409         create with a name that is in use
    ├── Conflict 409              the object was modified since the client read it
    ├── Expired 410               the resourceVersion or continue token is too old
    ├── TooLarge 413              body or patch above its size limit
    ├── UnsupportedMediaType 415
    ├── Invalid 422               validation failed: all problems are listed
    ├── TooManyRequests 429       with Retry-After
    ├── HeadersTooLarge 431       the request line and the headers are above their size limit
    ├── Internal 500              a bug in the server
    ├── NotImplementedStatus 501  the agent serves only a part of the API
    ├── BadGateway 502            a remote cluster sent a response that cannot be forwarded
    ├── Unavailable 503           the store or a remote cluster cannot respond now
    └── Timeout 504               the time limit of the request was exceeded
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

MAX_PROBLEMS = 100
MAX_QUOTED_CHARS = 1_024
"""Limits on the problems of one error, and on the characters quoted of one value. Validators stop after one problem
more than the limit, which is enough to report that there are more."""
MAX_MESSAGE_CHARS = 256 * 1024
"""Characters of a whole message, so that an error is never as large as the request it quotes."""
_MORE_PROBLEMS = "and more problems; fix these first"


AUTHENTICATION = "authentication"
AUTHORIZATION = "authorization"
SCOPE = "scope"
ADMISSION = "admission"
QUOTA = "quota"
GATEWAY = "gateway"
CLUSTER = "cluster"
ENDPOINT = "endpoint"
"""What refuses a request with 401 or 403, for the audit log; `core/call.py` notes it. A rule of admission adds its
name: `admission/enforce-allow-lists`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One invalid field, with Kubernetes' reasons and messages. Use the factories below."""

    field: str
    reason: str
    message: str

    @staticmethod
    def required(path: str, detail: str = "") -> Problem:
        return Problem(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")

    @staticmethod
    def invalid(path: str, value: Any, detail: str) -> Problem:
        return Problem(path, "FieldValueInvalid", f"Invalid value: {quote_value(value)}: {detail}")

    @staticmethod
    def wrong_type(path: str, value: Any, detail: str) -> Problem:
        return Problem(path, "FieldValueTypeInvalid", f"Invalid value: {quote_value(value)}: {detail}")

    @staticmethod
    def unsupported(path: str, value: Any, allowed: Sequence[str]) -> Problem:
        choices = ", ".join(json.dumps(each) for each in allowed)
        return Problem(
            path, "FieldValueNotSupported", f"Unsupported value: {quote_value(value)}: supported values: {choices}"
        )

    @staticmethod
    def duplicate(path: str, value: Any) -> Problem:
        return Problem(path, "FieldValueDuplicate", f"Duplicate value: {quote_value(value)}")

    @staticmethod
    def forbidden(path: str, detail: str) -> Problem:
        return Problem(path, "FieldValueForbidden", f"Forbidden: {detail}")

    @staticmethod
    def too_long(path: str, limit: int, unit: str = "bytes") -> Problem:
        return Problem(path, "FieldValueTooLong", f"Too long: may not be more than {limit} {unit}")

    @staticmethod
    def too_many(path: str, actual: int, limit: int, unit: str = "items") -> Problem:
        return Problem(path, "FieldValueTooMany", f"Too many: {actual}: must have at most {limit} {unit}")

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def _truncate_problem(problem: Problem) -> Problem:
    """The same problem with its field and message truncated: a map key can be as long as the body."""
    if len(problem.field) <= MAX_QUOTED_CHARS and len(problem.message) <= 4 * MAX_QUOTED_CHARS:
        return problem
    return Problem(
        truncate(problem.field, MAX_QUOTED_CHARS), problem.reason, truncate(problem.message, 4 * MAX_QUOTED_CHARS)
    )


def truncate(text: str, length: int = MAX_QUOTED_CHARS) -> str:
    """Shorten a text for use in a message."""
    return text if len(text) <= length else f"{text[:length]}..."


def quote_value(value: Any) -> str:
    """A value as JSON for quoting in an error message, shortened if it is long."""
    text = json.dumps(_truncate_value(value, [MAX_QUOTED_CHARS + 1]), ensure_ascii=False, separators=(",", ":"))
    return truncate(text, MAX_QUOTED_CHARS)


def _truncate_value(value: Any, room: list[int]) -> Any:
    """Reduce a value to what fits into a message, before encoding it. `room` holds the characters left and is
    decremented.

    Every value costs at least one character. So if anything was dropped, the encoded rest exceeds the limit and is
    marked as shortened.
    """
    room[0] -= 1
    if isinstance(value, str):
        prefix = value[: max(room[0], 1)]
        room[0] -= len(prefix)
        return prefix
    if isinstance(value, dict):
        return {
            _truncate_value(key, room): _truncate_value(each, room)
            for key, each in takewhile(lambda _: room[0] > 0, value.items())
        }
    if isinstance(value, list | tuple):
        return [_truncate_value(each, room) for each in takewhile(lambda _: room[0] > 0, value)]
    return value


@dataclass(frozen=True, slots=True)
class Details:
    """The `details` of a `Status`."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    problems: Sequence[Problem] = field(default=())
    retry_after: int = 0


class ApiError(Exception):
    """A response with status code 400 or above. Subclasses define the code and Kubernetes' StatusReason."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, details: Details | None = None) -> None:
        super().__init__(message)
        self.message = truncate(message, MAX_MESSAGE_CHARS)
        self.details = details or Details()
        self.refused_by = ""
        """What refused the request, for errors with the code 401 or 403: one of the words above."""


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"

    def __init__(self, message: str = "Unauthorized") -> None:
        super().__init__(message)
        self.refused_by = AUTHENTICATION


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"

    def __init__(self, message: str, details: Details | None = None, refused_by: str = "") -> None:
        super().__init__(message, details)
        self.refused_by = refused_by

    @staticmethod
    def of(
        plural: str, group: str, name: str, detail: str, problems: Sequence[Problem] = (), refused_by: str = ""
    ) -> Forbidden:
        message = f'{qualified_resource(plural, group)} "{name}" is forbidden: {detail}'
        return Forbidden(message, Details(name, group, plural, problems=problems), refused_by)


class NotFound(ApiError):
    code, reason = 404, "NotFound"

    @staticmethod
    def of(plural: str, group: str, name: str) -> NotFound:
        return NotFound(f'{qualified_resource(plural, group)} "{name}" not found', Details(name, group, plural))


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"

    @staticmethod
    def of(plural: str, group: str, name: str) -> AlreadyExists:
        return AlreadyExists(
            f'{qualified_resource(plural, group)} "{name}" already exists', Details(name, group, plural)
        )


class Conflict(ApiError):
    code, reason = 409, "Conflict"

    @staticmethod
    def of(plural: str, group: str, name: str, detail: str) -> Conflict:
        message = f'Operation cannot be fulfilled on {qualified_resource(plural, group)} "{name}": {detail}'
        return Conflict(message, Details(name, group, plural))


class Expired(ApiError):
    code, reason = 410, "Expired"


class TooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"

    @staticmethod
    def of(kind: str, group: str, name: str, problems: Iterable[Problem]) -> Invalid:
        found = tuple(dict.fromkeys(islice(problems, 10 * MAX_PROBLEMS)))
        listed = tuple(_truncate_problem(problem) for problem in found[:MAX_PROBLEMS])
        texts = [str(problem) for problem in listed]
        if len(found) > MAX_PROBLEMS:
            texts.append(_MORE_PROBLEMS)
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        message = f'{qualified_resource(kind, group)} "{name}" is invalid: {text}'
        return Invalid(message, Details(name, group, kind, problems=listed))


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class HeadersTooLarge(ApiError):
    code, reason = 431, "RequestHeaderFieldsTooLarge"


class Internal(ApiError):
    code, reason = 500, "InternalError"


class NotImplementedStatus(ApiError):
    code, reason = 501, "NotImplemented"


class BadGateway(ApiError):
    code, reason = 502, "BadGateway"


class Unavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


def qualified_resource(resource: str, group: str) -> str:
    """Kubernetes' qualified resource: `apps.management.service.sh`, or just `namespaces` in the core group."""
    return f"{resource}.{group}" if group else resource
