"""server.audit.body_capture: every request is recorded once, with its body or the reason for omitting it (T-31)."""

import gzip
from collections.abc import Awaitable, Callable

import orjson
import pytest
import structlog

from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest, TooLarge
from fairlead.kinds.core.config_data import CONFIGMAP
from fairlead.server.api.content import read_object
from fairlead.server.audit import body_capture
from fairlead.server.audit.body_capture import MAX_CAPTURED_BYTES, MAX_YAML_BYTES
from fairlead.server.audit.policy import METADATA, REQUEST, REQUEST_RESPONSE, Policy, PolicyRule
from tests.harness.audit import object_path, open_audit, reply_with

CONFIGMAPS = object_path(CONFIGMAP)
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}}
REQUEST_OMITTED, RESPONSE_OMITTED = "service.sh/request-object-omitted", "service.sh/response-object-omitted"

Read = Callable[[], Awaitable[bytes]]


def encode_message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([number << 3 | 2, len(value)]) + value for number, value in fields)


def encode_configmap() -> bytes:
    types = encode_message((1, b"v1"), (2, b"ConfigMap"))
    raw = encode_message((1, encode_message((1, b"a"))), (2, encode_message((1, b"b"), (2, b"c"))))
    return b"k8s\0" + encode_message((1, types), (2, raw))


async def create(call: Call) -> Reply:
    """Reads a body as the verbs do."""
    await read_object(call, "ConfigMap")
    return Reply(201, orjson.dumps(BODY))


def build_large_body(size: int) -> bytes:
    return orjson.dumps({**BODY, "data": {"b": "x" * size}})


# Media type, body, and the reason for omitting it; "" if it is recorded.
BODIES: dict[str, tuple[str, bytes, str]] = {
    "JSON": (JSON, orjson.dumps(BODY), ""),
    "JSON without a type": ("", orjson.dumps(BODY), ""),
    "YAML": (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: c}\n", ""),
    "protobuf": (PROTOBUF, encode_configmap(), ""),
    "malformed JSON": (JSON, b'{"kind": "ConfigMap"', "malformed"),
    "malformed YAML": (YAML, b"a: [", "malformed"),
    "malformed protobuf": (PROTOBUF, b"k8s\0\xff", "malformed"),
    "no UTF-8": (JSON, b'{"a": "\xff"}', "malformed"),
    "too deep": (JSON, b"[" * 5_000 + b"]" * 5_000, "malformed"),
    "an unknown type": ("text/csv", b"a,b", "not read"),
    "large JSON": (JSON, build_large_body(MAX_CAPTURED_BYTES), f"larger than {MAX_CAPTURED_BYTES} bytes"),
    "large YAML": (YAML, b"kind: ConfigMap\n#" + b"x" * MAX_YAML_BYTES, f"YAML larger than {MAX_YAML_BYTES} bytes"),
}


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
@pytest.mark.parametrize("body", BODIES)
async def test_t_31_each_type_of_body_is_recorded_once(body: str, level: int) -> None:
    media_type, data, reason = BODIES[body]
    async with open_audit(create, Policy((PolicyRule(level),))) as audit:
        reply = await audit("POST", CONFIGMAPS, data, headers={"content-type": media_type})
    (event,) = audit.completed_events()
    assert event["responseStatus"]["code"] == reply.status
    if level >= REQUEST and body != "an unknown type":
        assert event["annotations"].get(REQUEST_OMITTED, "") == reason
        assert event.get("requestObject") == (None if reason else BODY)


async def raise_too_large() -> bytes:
    raise TooLarge("Request entity too large: limit is 3145728")


async def raise_incomplete() -> bytes:
    raise BadRequest("the request body is incomplete")


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
@pytest.mark.parametrize(("read", "code"), [(raise_too_large, 413), (raise_incomplete, 400)])
async def test_t_31_an_incomplete_body_is_recorded_once(read: Read, code: int, level: int) -> None:
    async with open_audit(create, Policy((PolicyRule(level),))) as audit:
        await audit("POST", CONFIGMAPS, BODY, read=read)
    (event,) = audit.completed_events()
    assert event["responseStatus"]["code"] == code
    assert event["annotations"].get(REQUEST_OMITTED, "") == ("not read" if level >= REQUEST else "")


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
async def test_t_31_a_compressed_body_is_rejected_and_recorded_once(level: int) -> None:
    async with open_audit(create, Policy((PolicyRule(level),))) as audit:
        await audit("POST", CONFIGMAPS, gzip.compress(orjson.dumps(BODY)), headers={"content-encoding": "gzip"})
    (event,) = audit.completed_events()
    assert event["responseStatus"]["code"] == 415
    assert event["annotations"].get(REQUEST_OMITTED, "") == ("not read" if level >= REQUEST else "")


async def test_an_unread_body_of_unknown_length_is_noted() -> None:
    async with open_audit(create, Policy((PolicyRule(REQUEST),))) as audit:
        headers = {"content-length": "0", "transfer-encoding": "chunked", "content-encoding": "gzip"}
        await audit("POST", CONFIGMAPS, BODY, headers=headers)
    assert audit.completed_events()[0]["annotations"][REQUEST_OMITTED] == "not read"


async def test_nothing_is_noted_without_a_body() -> None:
    async with open_audit(reply_with(200, BODY), Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
        await audit("GET", f"{CONFIGMAPS}/a")
    (event,) = audit.completed_events()
    assert "requestObject" not in event and REQUEST_OMITTED not in event["annotations"]
    assert event["responseObject"] == BODY


@pytest.mark.parametrize(
    ("content", "content_type", "reason"),
    [
        (orjson.dumps(BODY), JSON, ""),
        (orjson.dumps(BODY, option=orjson.OPT_INDENT_2), JSON, ""),
        (b"kind: ConfigMap\n", YAML, ""),
        (b"kind: [", YAML, "malformed"),
        (b"plain", "text/plain; charset=utf-8", "neither JSON nor YAML nor protobuf"),
        (build_large_body(MAX_CAPTURED_BYTES), JSON, f"larger than {MAX_CAPTURED_BYTES} bytes"),
        (b'{"kind":"Surprise"}', JSON, "kind does not match the path"),
        (b'"text"', JSON, "kind does not match the path"),
    ],
)
async def test_a_response_that_is_not_recorded_has_a_reason(content: bytes, content_type: str, reason: str) -> None:
    async with open_audit(reply_with(200, content, content_type), Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
        await audit("GET", f"{CONFIGMAPS}/a")
    (event,) = audit.completed_events()
    assert event["annotations"].get(RESPONSE_OMITTED, "") == reason
    assert ("responseObject" in event) is not bool(reason)


async def test_lists_and_tables_are_recorded_without_managed_fields() -> None:
    item = {**BODY, "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}}
    expected = {**BODY, "metadata": {"name": "a"}}

    async def record_response(content: object) -> object:
        async with open_audit(reply_with(200, content), Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
            await audit("GET", CONFIGMAPS)
        return audit.completed_events()[0]["responseObject"]

    list_fields = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    assert await record_response({**list_fields, "items": [item]}) == {**list_fields, "items": [expected]}
    table_fields = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"}}
    rows = [{"cells": ["a"], "object": item}, {"cells": ["b"], "object": None}]
    assert await record_response({**table_fields, "columnDefinitions": [], "rows": rows}) == {
        **table_fields,
        "rows": [{"object": expected}],
    }


async def test_an_internal_error_while_processing_a_body_does_not_lose_the_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raise_recursion_error(value: object, kind: object) -> object:
        raise RecursionError

    monkeypatch.setattr(body_capture, "redact_object", raise_recursion_error)

    with structlog.testing.capture_logs() as lines:
        async with open_audit(reply_with(201, BODY), Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
            await audit("POST", CONFIGMAPS, BODY)
            await audit("GET", f"{CONFIGMAPS}/b")
    assert {line["audit_id"] for line in lines} == {"0000-audit"}
    first, second = audit.completed_events()
    assert first["objectRef"]["name"] == "a" and second["objectRef"]["name"] == "b"
    assert "could not be processed" in first["annotations"]["service.sh/unreadable"]
    assert not {"requestObject", "responseObject"} & first.keys()
