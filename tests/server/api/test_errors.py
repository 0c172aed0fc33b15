"""server.api.errors: errors as Status responses with code and reason, and internal errors without details."""

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

# The reasons of Kubernetes for each code; it has none for 502.
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
    431: {"RequestHeaderFieldsTooLarge"},
    500: {"InternalError"},
    501: {"NotImplemented"},
    502: {"BadGateway"},
    503: {"ServiceUnavailable"},
    504: {"Timeout"},
}


def import_all_modules() -> None:
    """Imports all modules, because `__subclasses__` only knows imported classes."""
    for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def iterate_subclasses(parent: type[ApiError]) -> Iterator[type[ApiError]]:
    for child in parent.__subclasses__():
        yield child
        yield from iterate_subclasses(child)


import_all_modules()
ERROR_CLASSES = sorted(
    set(iterate_subclasses(ApiError)), key=lambda error_class: (error_class.code, error_class.__name__)
)


async def render_status(error: Exception, **call_options: Any) -> tuple[Reply, dict[str, Any]]:
    reply = render_error(call("/some/path", **call_options), error)
    status: dict[str, Any] = orjson.loads(reply.body)
    return reply, status


@pytest.mark.parametrize("error_class", ERROR_CLASSES, ids=lambda error_class: error_class.__name__)
async def test_every_error_is_rendered_with_its_code_and_reason(error_class: type[ApiError]) -> None:
    reply, status = await render_status(error_class("an error"))
    assert reply.status == status["code"] == error_class.code
    assert status["reason"] == error_class.reason
    assert error_class.reason in REASONS[error_class.code]
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["message"]


def test_every_documented_code_has_an_error_class() -> None:
    assert {(error_class.code, error_class.reason) for error_class in ERROR_CLASSES} == {
        (code, reason) for code, reasons in REASONS.items() for reason in reasons
    }


def test_the_class_tree_in_the_docstring_is_complete() -> None:
    docstring = errors.__doc__ or ""
    for error_class in ApiError.__subclasses__():
        assert f"── {error_class.__name__} {error_class.code}" in docstring


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@pytest.mark.parametrize("error_class", ERROR_CLASSES, ids=lambda error_class: error_class.__name__)
async def test_errors_for_aggregated_discovery_are_plain_text(error_class: type[ApiError]) -> None:
    """Clients do not parse a Status there, and replace the message for some codes."""
    error = error_class("an error")
    reply = render_error(call("/kubernetes/cluster/c/apis", headers={"accept": AGGREGATED}), error)
    assert (reply.content_type, reply.body.decode()) == ("text/plain; charset=utf-8", f"{error.message}\n")
    assert reply.status == (502 if error_class.code in (503, 504) else error_class.code)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/apis"), ("GET", "/apis/apps/v1"), ("GET", "/")])
async def test_errors_for_other_paths_are_a_status_whatever_the_accept_header(method: str, path: str) -> None:
    request = call(path, method=method, headers={"accept": AGGREGATED})
    reply = render_error(request, Unavailable("an error"))
    assert (reply.status, reply.content_type) == (503, "application/json")


async def test_an_object_named_api_is_not_discovery() -> None:
    request = call("/kubernetes/management/api/v1/namespaces/default/configmaps/api", headers={"accept": AGGREGATED})
    request.target = RequestInfo("get", "/api/v1/namespaces/default/configmaps/api", resource="configmaps", name="api")
    reply = render_error(request, Unavailable("an error"))
    assert (reply.status, reply.content_type) == (503, "application/json")


async def test_a_retryable_error_for_discovery_keeps_its_code() -> None:
    reply = render_error(
        call("/kubernetes/cluster/c/apis", headers={"accept": AGGREGATED}),
        Unavailable("busy", Details(retry_after=1)),
    )
    assert (reply.status, reply.headers) == (503, [("retry-after", "1")])


async def test_details_and_causes_are_rendered() -> None:
    problems = [Problem.required("spec.size"), Problem.duplicate("spec.names[1]", "x")]
    _, status = await render_status(Invalid.of("Widget", "example.com", "one", problems))
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


def test_empty_details_are_omitted() -> None:
    assert "details" not in status_of(errors.NotFound("not found"))
    assert status_of(errors.NotFound("not found", Details(uid="u")))["details"] == {"uid": "u"}


def test_the_code_is_the_last_field() -> None:
    assert list(status_of(errors.NotFound.of("widgets", "", "one")))[-1] == "code"


@pytest.mark.parametrize("error_class", [Unavailable, TooManyRequests, Timeout])
async def test_retry_after_is_in_the_header_and_in_the_body(error_class: type[ApiError]) -> None:
    reply, status = await render_status(error_class("later", Details(retry_after=7)))
    assert ("retry-after", "7") in reply.headers
    assert status["details"] == {"retryAfterSeconds": 7}


async def test_errors_that_are_not_retryable_have_no_retry_after() -> None:
    reply, _ = await render_status(errors.NotFound("not found"))
    assert reply.headers == []


async def test_unauthorized_has_no_further_information() -> None:
    reply, status = await render_status(Unauthorized())
    assert (reply.status, reply.headers, status["message"]) == (401, [], "Unauthorized")


async def test_an_expired_continue_token_has_a_replacement() -> None:
    _, status = await render_status(ContinueExpired("next-token"))
    assert (status["code"], status["metadata"]) == (410, {"continue": "next-token"})


async def test_a_timeout_is_504() -> None:
    reply, status = await render_status(TimeoutError())
    assert (reply.status, status["reason"]) == (504, "Timeout")
    assert "try again" in status["message"]


SECRET = "fairlead_a-key-that-must-not-leak"


class UnexpectedError(Exception):
    """An exception that no handler knows."""


@pytest.mark.parametrize(
    "error", [UnexpectedError(SECRET), ValueError(SECRET), KeyError(SECRET), RecursionError(SECRET)]
)
async def test_an_internal_error_is_500_with_the_audit_id_and_nothing_else(error: Exception) -> None:
    with structlog.testing.capture_logs() as lines:
        reply, status = await render_status(error)
    assert (reply.status, status["code"], status["reason"]) == (500, 500, "InternalError")
    assert "0000-audit" in status["message"]
    assert SECRET.encode() not in reply.body
    assert type(error).__name__.encode() not in reply.body
    (line,) = lines
    assert (line["log_level"], line["audit_id"], line["path"]) == ("error", "0000-audit", "/some/path")


async def test_an_internal_error_is_logged_without_the_headers_and_the_body() -> None:
    with structlog.testing.capture_logs() as lines:
        await render_status(UnexpectedError(), headers={"authorization": f"Bearer {SECRET}"}, body=SECRET.encode())
    assert SECRET not in repr(lines)


async def test_errors_are_yaml_for_clients_that_accept_yaml() -> None:
    reply = render_error(call(headers={"accept": "application/yaml"}), errors.NotFound("not found"))
    assert reply.content_type == "application/yaml"
    assert yaml.safe_load(reply.body)["code"] == 404


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Table;v=v1;g=meta.k8s.io", "\x00", ""])
async def test_errors_are_json_for_other_clients(accept: str) -> None:
    reply, status = await render_status(errors.NotFound("not found"), headers={"accept": accept})
    assert (reply.content_type, status["code"]) == ("application/json", 404)


async def test_errors_are_indented_for_curl() -> None:
    reply, _ = await render_status(errors.NotFound("not found"), headers={"user-agent": "curl/8.0"})
    assert reply.body.startswith(b'{\n  "kind": "Status"')
