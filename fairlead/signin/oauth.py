"""The token endpoint, `POST /auth/token`: reads the form, and calls the handler of its `grant_type`.

It follows OAuth 2.0: the request is a form, and errors are JSON, `{"error": ..., "error_description": ...}`. The
endpoint is public, as the form has the credential. What a client sends is bounded, and neither quoted nor logged.

To add a grant type, pass its handler to `TokenEndpoint`. It raises `OAuthError` to reject a request.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import parse_qsl

import orjson

from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest, TooLarge, Unavailable, UnsupportedMediaType
from fairlead.core.objects import Object
from fairlead.core.refusals import LOGIN, note_refused_login
from fairlead.server.api.content import media_type_of, read_raw

TOKEN_ENDPOINT = ("post", "/auth/token")
"""Verb and path, as authorizers see them."""
FORM = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 32 * 1024
MAX_FORM_FIELDS = 32
REASON_ANNOTATION = "service.sh/login-failure"
"""The annotation of audit events with the reason why a request was rejected, from a fixed list."""

_NOT_REFUSED = frozenset(
    {"invalid_request", "unsupported_grant_type", "authorization_pending", "slow_down", "temporarily_unavailable"}
)
"""Reasons of errors that refuse nothing: the request has the wrong form, or the client has to ask again."""

Form = Mapping[str, str]
GrantHandler = Callable[[Call, Form], Awaitable[Reply]]
"""Serves one grant type."""


class OAuthError(Exception):
    """A rejected request: an error code of OAuth, and what to do about it. `reason` is for the audit log."""

    def __init__(self, error: str, description: str, reason: str = "", status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.reason = reason or error
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """Whether the credential was judged, and not accepted."""
        return self.reason not in _NOT_REFUSED and self.status != Unavailable.code


class TokenEndpoint:
    """Dispatches by `grant_type`."""

    def __init__(self, grants: Mapping[str, GrantHandler]) -> None:
        self._grants = grants

    async def __call__(self, call: Call) -> Reply:
        return await answer_oauth(call, self._serve)

    async def _serve(self, call: Call, form: Form) -> Reply:
        name = require_field(form, "grant_type")
        grant = self._grants.get(name)
        if grant is None:
            supported = ", ".join(sorted(self._grants)) or "none"
            raise OAuthError("unsupported_grant_type", f"grant_type must be one of: {supported}")
        return await grant(call, form)


async def answer_oauth(call: Call, serve: GrantHandler) -> Reply:
    """Reads the form of a request and serves it. Errors get the format of OAuth, and their reason is audited."""
    try:
        return await serve(call, await read_form(call))
    except OAuthError as error:
        call.annotations[REASON_ANNOTATION] = error.reason
        if error.is_refusal:
            note_refused_login(call, LOGIN, error.reason)
        return json_reply({"error": error.error, "error_description": error.description}, error.status)


def json_reply(value: Object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """A JSON response that is never cached."""
    return Reply(status, orjson.dumps(value), headers=[("cache-control", "no-store"), *headers], cacheable=True)


async def read_small_body(call: Call, media_type: str, max_bytes: int) -> bytes:
    """The body. Requires Content-Length, so that unauthenticated clients cannot make the server buffer more."""
    if media_type_of(call) != media_type:
        raise UnsupportedMediaType(f"the body must be {media_type}; set Content-Type")
    length = call.headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()):
        raise BadRequest("Content-Length is required; send the length of the body")
    too_large = TooLarge(f"Request entity too large: limit is {max_bytes}")
    if len(length) > 10 or int(length) > max_bytes:
        raise too_large
    body = await read_raw(call)
    if len(body) > max_bytes:
        raise too_large
    return body


async def read_form(call: Call) -> Form:
    """The fields of the body."""
    return parse_form(await read_small_body(call, FORM, MAX_FORM_BYTES))


def parse_form(body: bytes) -> Form:
    """Empty fields are omitted, as OAuth requires. A repeated field is an error."""
    try:
        pairs = parse_qsl(body.decode("ascii"), max_num_fields=MAX_FORM_FIELDS, errors="strict")
    except ValueError:  # its message could quote a credential
        raise OAuthError("invalid_request", f"the body is not a form with at most {MAX_FORM_FIELDS} fields") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise OAuthError("invalid_request", "a field occurs twice; send each field once")
    return fields


def require_field(form: Form, name: str, max_length: int = 4096) -> str:
    """A field that must be there. `max_length` is in characters."""
    value = form.get(name, "")
    if not value:
        raise OAuthError("invalid_request", f"{name} is missing")
    if len(value) > max_length:
        raise OAuthError("invalid_request", f"{name} is longer than {max_length} characters")
    return value
