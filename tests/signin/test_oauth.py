"""server.auth.oauth: forms of bounded size, dispatch by grant type, and errors as OAuth defines them."""

from collections.abc import Mapping
from urllib.parse import urlencode

import orjson
import pytest

from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest, TooLarge, UnsupportedMediaType
from fairlead.core.refusals import REFUSED_BY_ANNOTATION
from fairlead.signin.oauth import (
    FORM,
    MAX_FORM_BYTES,
    MAX_FORM_FIELDS,
    REASON_ANNOTATION,
    Form,
    OAuthError,
    TokenEndpoint,
    json_reply,
    require_field,
)
from tests.harness.calls import call


async def echo(call: Call, form: Form) -> Reply:
    return json_reply({"fields": dict(form)})


async def reject(call: Call, form: Form) -> Reply:
    raise OAuthError("invalid_grant", "log in again", "expired")


ENDPOINT = TokenEndpoint({"echo": echo, "reject": reject})


def form_call(body: bytes, headers: Mapping[str, str] | None = None) -> Call:
    sent = {"content-type": FORM, "content-length": str(len(body)), **(headers or {})}
    return call("/auth/token", method="POST", headers=sent, body=body)


async def post(fields: object) -> tuple[int, dict[str, object]]:
    reply = await ENDPOINT(form_call(urlencode(fields).encode()))  # type: ignore[arg-type]
    return reply.status, orjson.loads(reply.body)


async def test_the_grant_type_selects_the_handler() -> None:
    assert await post({"grant_type": "echo", "a": "b c"}) == (200, {"fields": {"grant_type": "echo", "a": "b c"}})


async def test_a_response_must_not_be_cached() -> None:
    reply = await ENDPOINT(form_call(b"grant_type=echo"))
    assert ("cache-control", "no-store") in reply.headers


async def test_an_unknown_grant_type_is_answered_with_those_that_are_supported() -> None:
    status, body = await post({"grant_type": "password"})
    assert status == 400 and body["error"] == "unsupported_grant_type"
    assert body["error_description"] == "grant_type must be one of: echo, reject"


async def test_a_rejected_request_has_an_error_code_and_its_reason_is_audited() -> None:
    request = form_call(b"grant_type=reject")
    reply = await ENDPOINT(request)
    assert (reply.status, orjson.loads(reply.body)) == (
        400,
        {"error": "invalid_grant", "error_description": "log in again"},
    )
    assert request.annotations == {REASON_ANNOTATION: "expired", REFUSED_BY_ANNOTATION: "login/expired"}


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (OAuthError("invalid_grant", "log in again"), True),
        (OAuthError("invalid_request", "the subject token is rejected", "wrong_issuer"), True),
        (OAuthError("temporarily_unavailable", "too many keys", "too_many_keys", status=429), True),
        (OAuthError("temporarily_unavailable", "the issuer cannot be reached", "unreachable", status=503), False),
        (OAuthError("invalid_request", "grant_type is missing"), False),
        (OAuthError("authorization_pending", "the user has not decided yet; ask again"), False),
    ],
)
def test_only_a_credential_that_was_judged_is_refused(error: OAuthError, is_refusal: bool) -> None:
    assert error.is_refusal is is_refusal


@pytest.mark.parametrize(
    "body",
    [b"", b"grant_type=", b"grant_type=echo&a=1&a=2", b"a=1", b"\xff=\xff", b"grant_type=echo&a=%ff"],
)
async def test_a_malformed_form_is_an_invalid_request(body: bytes) -> None:
    reply = await ENDPOINT(form_call(body))
    assert reply.status == 400 and orjson.loads(reply.body)["error"] == "invalid_request"


async def test_the_number_of_fields_is_bounded() -> None:
    status, body = await post([("grant_type", "echo"), *((f"f{number}", "1") for number in range(MAX_FORM_FIELDS))])
    assert status == 400 and body["error"] == "invalid_request"


async def test_the_size_of_a_form_is_bounded() -> None:
    with pytest.raises(TooLarge):
        await ENDPOINT(form_call(b"a" * (MAX_FORM_BYTES + 1)))
    with pytest.raises(TooLarge):  # the client lies about the length
        await ENDPOINT(form_call(b"a" * (MAX_FORM_BYTES + 1), {"content-length": "1"}))


@pytest.mark.parametrize("length", ["", "-1", "x", "²"])
async def test_a_form_needs_its_length(length: str) -> None:
    with pytest.raises(BadRequest):
        await ENDPOINT(form_call(b"grant_type=echo", {"content-length": length}))


async def test_another_media_type_is_rejected() -> None:
    with pytest.raises(UnsupportedMediaType):
        await ENDPOINT(form_call(b'{"grant_type": "echo"}', {"content-type": "application/json"}))


def test_the_length_of_a_field_is_bounded() -> None:
    assert require_field({"code": "x" * 10}, "code", 10) == "x" * 10
    with pytest.raises(OAuthError, match="longer than 10"):
        require_field({"code": "x" * 11}, "code", 10)
