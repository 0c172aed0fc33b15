"""Errors as answers: each with its code and its reason, and none of ours with more than an audit id."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import structlog
import yaml

import fairlead
from fairlead.core import errors
from fairlead.core.call import Reply, RequestInfo
from fairlead.core.errors import (
    ApiError,
    Details,
    Invalid,
    Problem,
    Timeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from fairlead.registry.list import ContinueExpired
from fairlead.server.api.errors import render_error, status_of
from tests.harness.calls import call

# Kubernetes' own words for each code that we use; it has none for 502.
REASONS = {
    400: {"BadRequest"},
    401: {"Unauthorized"},
    403: {"Forbidden"},
    404: {"NotFound"},
    405: {"MethodNotAllowed"},
    406: {"NotAcceptable"},
    409: {"AlreadyExists", "Conflict"},
    410: {"Expired"},
    413: {"RequestEntityTooLarge"},
    415: {"UnsupportedMediaType"},
    422: {"Invalid"},
    429: {"TooManyRequests"},
    500: {"InternalError"},
    501: {"NotImplemented"},
    502: {"BadGateway"},
    503: {"ServiceUnavailable"},
    504: {"Timeout"},
}


def everything_imported() -> None:
    """A class is only known to its parent once its module is."""
    for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def below(parent: type[ApiError]) -> Iterator[type[ApiError]]:
    for child in parent.__subclasses__():
        yield child
        yield from below(child)


everything_imported()
KINDS_OF_ERROR = sorted(set(below(ApiError)), key=lambda each: (each.code, each.__name__))


async def answer(error: Exception, **given: Any) -> tuple[Reply, dict[str, Any]]:
    reply = render_error(call("/some/path", **given), error)
    status: dict[str, Any] = orjson.loads(reply.body)
    return reply, status


@pytest.mark.parametrize("kind", KINDS_OF_ERROR, ids=lambda kind: kind.__name__)
async def test_every_error_is_answered_with_its_code_and_reason(kind: type[ApiError]) -> None:
    reply, status = await answer(kind("what is wrong"))
    assert reply.status == status["code"] == kind.code
    assert status["reason"] == kind.reason
    assert kind.reason in REASONS[kind.code]
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["message"]


def test_every_code_that_is_promised_has_an_error() -> None:
    assert {(kind.code, kind.reason) for kind in KINDS_OF_ERROR} == {
        (code, reason) for code, reasons in REASONS.items() for reason in reasons
    }


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for kind in ApiError.__subclasses__():
        assert f"── {kind.__name__} {kind.code}" in drawn


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@pytest.mark.parametrize("kind", KINDS_OF_ERROR, ids=lambda kind: kind.__name__)
async def test_clients_that_ask_for_discovery_at_once_are_told_in_plain_text(kind: type[ApiError]) -> None:
    """They read no Status there, and for some codes they have a sentence of their own and drop ours."""
    error = kind("what is wrong")
    reply = render_error(call("/kubernetes/cluster/c/apis", headers={"accept": AGGREGATED}), error)
    assert (reply.content_type, reply.body.decode()) == ("text/plain; charset=utf-8", f"{error.message}\n")
    assert reply.status == (502 if kind.code in (503, 504) else kind.code)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/apis"), ("GET", "/apis/apps/v1"), ("GET", "/")])
async def test_everywhere_else_there_is_a_status_whatever_is_accepted(method: str, path: str) -> None:
    asked = call(path, method=method, headers={"accept": AGGREGATED})
    reply = render_error(asked, Unavailable("what is wrong"))
    assert (reply.status, reply.content_type) == (503, "application/json")


async def test_an_object_that_is_called_like_discovery_is_none() -> None:
    asked = call("/kubernetes/management/api/v1/namespaces/default/configmaps/api", headers={"accept": AGGREGATED})
    asked.target = RequestInfo("get", "/api/v1/namespaces/default/configmaps/api", resource="configmaps", name="api")
    reply = render_error(asked, Unavailable("what is wrong"))
    assert (reply.status, reply.content_type) == (503, "application/json")


async def test_who_is_to_come_again_by_himself_gets_the_code_for_it() -> None:
    reply = render_error(
        call("/kubernetes/cluster/c/apis", headers={"accept": AGGREGATED}),
        Unavailable("busy", Details(retry_after=1)),
    )
    assert (reply.status, reply.headers) == (503, [("retry-after", "1")])


async def test_details_and_causes_are_told() -> None:
    problems = [Problem.required("spec.size"), Problem.duplicate("spec.names[1]", "x")]
    _, status = await answer(Invalid.of("Widget", "example.com", "one", problems))
    assert status["message"] == (
        'Widget.example.com "one" is invalid: [spec.size: Required value, spec.names[1]: Duplicate value: "x"]'
    )
    assert status["details"] == {
        "name": "one",
        "group": "example.com",
        "kind": "Widget",
        "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.size"},
            {"reason": "FieldValueDuplicate", "message": 'Duplicate value: "x"', "field": "spec.names[1]"},
        ],
    }


def test_details_that_say_nothing_are_left_out() -> None:
    assert "details" not in status_of(errors.NotFound("gone"))
    assert status_of(errors.NotFound("gone", Details(uid="u")))["details"] == {"uid": "u"}


def test_the_code_stands_last_as_clients_are_used_to() -> None:
    assert list(status_of(errors.NotFound.of("widgets", "", "one")))[-1] == "code"


@pytest.mark.parametrize("kind", [Unavailable, TooManyRequests, Timeout])
async def test_when_to_try_again_is_told_in_the_header_and_in_the_body(kind: type[ApiError]) -> None:
    reply, status = await answer(kind("later", Details(retry_after=7)))
    assert ("retry-after", "7") in reply.headers
    assert status["details"] == {"retryAfterSeconds": 7}


async def test_nothing_is_said_of_trying_again_where_that_would_not_help() -> None:
    reply, _ = await answer(errors.NotFound("gone"))
    assert reply.headers == []


async def test_who_is_not_signed_in_is_told_nothing_else() -> None:
    reply, status = await answer(Unauthorized())
    assert (reply.status, reply.headers, status["message"]) == (401, [], "Unauthorized")


async def test_an_expired_continue_token_comes_with_another() -> None:
    _, status = await answer(ContinueExpired("next-token"))
    assert (status["code"], status["metadata"]) == (410, {"continue": "next-token"})


async def test_too_slow_is_504() -> None:
    reply, status = await answer(TimeoutError())
    assert (reply.status, status["reason"]) == (504, "Timeout")
    assert "try again" in status["message"]


SECRET = "fairlead_a-key-that-must-not-leak"


class Surprising(Exception):
    """Nobody has ever heard of it."""


@pytest.mark.parametrize("error", [Surprising(SECRET), ValueError(SECRET), KeyError(SECRET), RecursionError(SECRET)])
async def test_a_fault_of_ours_is_500_with_the_audit_id_and_nothing_else(error: Exception) -> None:
    with structlog.testing.capture_logs() as lines:
        reply, status = await answer(error)
    assert (reply.status, status["code"], status["reason"]) == (500, 500, "InternalError")
    assert "0000-audit" in status["message"]
    assert SECRET.encode() not in reply.body
    assert type(error).__name__.encode() not in reply.body
    (line,) = lines
    assert (line["log_level"], line["audit_id"], line["path"]) == ("error", "0000-audit", "/some/path")


async def test_a_fault_of_ours_is_logged_without_the_callers_headers_and_body() -> None:
    with structlog.testing.capture_logs() as lines:
        await answer(Surprising(), headers={"authorization": f"Bearer {SECRET}"}, body=SECRET.encode())
    assert SECRET not in repr(lines)


async def test_errors_are_yaml_for_those_who_want_yaml() -> None:
    reply = render_error(call(headers={"accept": "application/yaml"}), errors.NotFound("gone"))
    assert reply.content_type == "application/yaml"
    assert yaml.safe_load(reply.body)["code"] == 404


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Table;v=v1;g=meta.k8s.io", "\x00", ""])
async def test_errors_are_json_for_everybody_else(accept: str) -> None:
    reply, status = await answer(errors.NotFound("gone"), headers={"accept": accept})
    assert (reply.content_type, status["code"]) == ("application/json", 404)


async def test_errors_are_pretty_for_people() -> None:
    reply, _ = await answer(errors.NotFound("gone"), headers={"user-agent": "curl/8.0"})
    assert reply.body.startswith(b'{\n  "kind": "Status"')
