"""T-31: whatever a body is, the request is recorded once, and the record says why it does not have the body."""

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
from tests.harness.audit import answers, open_audit, place

CONFIGMAPS = place(CONFIGMAP)
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}}
REQUEST_OMITTED, RESPONSE_OMITTED = "service.sh/request-object-omitted", "service.sh/response-object-omitted"

Read = Callable[[], Awaitable[bytes]]


def message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([number << 3 | 2, len(value)]) + value for number, value in fields)


def protobuf() -> bytes:
    types = message((1, b"v1"), (2, b"ConfigMap"))
    raw = message((1, message((1, b"a"))), (2, message((1, b"b"), (2, b"c"))))
    return b"k8s\0" + message((1, types), (2, raw))


async def create(call: Call) -> Reply:
    """Reads a body as the verbs do."""
    await read_object(call, "ConfigMap")
    return Reply(201, orjson.dumps(BODY))


def large(size: int) -> bytes:
    return orjson.dumps({**BODY, "data": {"b": "x" * size}})


# Media type, body, and what the record says about it; "" if it has it.
BODIES: dict[str, tuple[str, bytes, str]] = {
    "JSON": (JSON, orjson.dumps(BODY), ""),
    "JSON without a type": ("", orjson.dumps(BODY), ""),
    "YAML": (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: c}\n", ""),
    "protobuf": (PROTOBUF, protobuf(), ""),
    "malformed JSON": (JSON, b'{"kind": "ConfigMap"', "malformed"),
    "malformed YAML": (YAML, b"a: [", "malformed"),
    "malformed protobuf": (PROTOBUF, b"k8s\0\xff", "malformed"),
    "no UTF-8": (JSON, b'{"a": "\xff"}', "malformed"),
    "too deep": (JSON, b"[" * 5_000 + b"]" * 5_000, "malformed"),
    "an unknown type": ("text/csv", b"a,b", "not read"),
    "large JSON": (JSON, large(MAX_CAPTURED_BYTES), f"larger than {MAX_CAPTURED_BYTES} bytes"),
    "large YAML": (YAML, b"kind: ConfigMap\n#" + b"x" * MAX_YAML_BYTES, f"YAML larger than {MAX_YAML_BYTES} bytes"),
}


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
@pytest.mark.parametrize("body", BODIES)
async def test_t_31_each_sort_of_body_is_recorded_once(body: str, level: int) -> None:
    media_type, data, remark = BODIES[body]
    async with open_audit(create, Policy((PolicyRule(level),))) as desk:
        reply = await desk("POST", CONFIGMAPS, data, headers={"content-type": media_type})
    (event,) = desk.completed()
    assert event["responseStatus"]["code"] == reply.status
    if level >= REQUEST and body != "an unknown type":
        assert event["annotations"].get(REQUEST_OMITTED, "") == remark
        assert event.get("requestObject") == (None if remark else BODY)


async def too_large() -> bytes:
    raise TooLarge("Request entity too large: limit is 3145728")


async def broken_off() -> bytes:
    raise BadRequest("the request body is incomplete")


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
@pytest.mark.parametrize(("read", "code"), [(too_large, 413), (broken_off, 400)])
async def test_t_31_a_body_that_is_not_read_to_its_end_is_recorded_once(read: Read, code: int, level: int) -> None:
    async with open_audit(create, Policy((PolicyRule(level),))) as desk:
        await desk("POST", CONFIGMAPS, BODY, read=read)
    (event,) = desk.completed()
    assert event["responseStatus"]["code"] == code
    assert event["annotations"].get(REQUEST_OMITTED, "") == ("not read" if level >= REQUEST else "")


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
async def test_t_31_a_packed_body_is_refused_and_recorded_once(level: int) -> None:
    async with open_audit(create, Policy((PolicyRule(level),))) as desk:
        await desk("POST", CONFIGMAPS, gzip.compress(orjson.dumps(BODY)), headers={"content-encoding": "gzip"})
    (event,) = desk.completed()
    assert event["responseStatus"]["code"] == 415
    assert event["annotations"].get(REQUEST_OMITTED, "") == ("not read" if level >= REQUEST else "")


async def test_a_body_of_unknown_length_that_nobody_read_is_noted() -> None:
    async with open_audit(create, Policy((PolicyRule(REQUEST),))) as desk:
        headers = {"content-length": "0", "transfer-encoding": "chunked", "content-encoding": "gzip"}
        await desk("POST", CONFIGMAPS, BODY, headers=headers)
    assert desk.completed()[0]["annotations"][REQUEST_OMITTED] == "not read"


async def test_where_there_is_no_body_nothing_is_noted() -> None:
    async with open_audit(answers(200, BODY), Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
        await desk("GET", f"{CONFIGMAPS}/a")
    (event,) = desk.completed()
    assert "requestObject" not in event and REQUEST_OMITTED not in event["annotations"]
    assert event["responseObject"] == BODY


@pytest.mark.parametrize(
    ("answer", "content_type", "remark"),
    [
        (orjson.dumps(BODY), JSON, ""),
        (orjson.dumps(BODY, option=orjson.OPT_INDENT_2), JSON, ""),
        (b"kind: ConfigMap\n", YAML, ""),
        (b"kind: [", YAML, "malformed"),
        (b"plain", "text/plain; charset=utf-8", "neither JSON nor YAML nor protobuf"),
        (large(MAX_CAPTURED_BYTES), JSON, f"larger than {MAX_CAPTURED_BYTES} bytes"),
        (b'{"kind":"Surprise"}', JSON, "kind does not match the path"),
        (b'"text"', JSON, "kind does not match the path"),
    ],
)
async def test_an_answer_that_is_not_recorded_leaves_the_reason(answer: bytes, content_type: str, remark: str) -> None:
    async with open_audit(answers(200, answer, content_type), Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
        await desk("GET", f"{CONFIGMAPS}/a")
    (event,) = desk.completed()
    assert event["annotations"].get(RESPONSE_OMITTED, "") == remark
    assert ("responseObject" in event) is not bool(remark)


async def test_lists_and_tables_are_recorded_without_their_managers() -> None:
    item = {**BODY, "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}}
    clean = {**BODY, "metadata": {"name": "a"}}

    async def recorded(answer: object) -> object:
        async with open_audit(answers(200, answer), Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
            await desk("GET", CONFIGMAPS)
        return desk.completed()[0]["responseObject"]

    listed = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    assert await recorded({**listed, "items": [item]}) == {**listed, "items": [clean]}
    table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "7"}}
    rows = [{"cells": ["a"], "object": item}, {"cells": ["b"], "object": None}]
    assert await recorded({**table, "columnDefinitions": [], "rows": rows}) == {**table, "rows": [{"object": clean}]}


async def test_a_fault_of_ours_while_looking_into_a_body_does_not_lose_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(value: object, kind: object) -> object:
        raise RecursionError

    monkeypatch.setattr(body_capture, "redact_object", broken)

    with structlog.testing.capture_logs() as lines:
        async with open_audit(answers(201, BODY), Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
            await desk("POST", CONFIGMAPS, BODY)
            await desk("GET", f"{CONFIGMAPS}/b")
    assert {line["audit_id"] for line in lines} == {"0000-audit"}
    first, second = desk.completed()
    assert first["objectRef"]["name"] == "a" and second["objectRef"]["name"] == "b"
    assert "could not be processed" in first["annotations"]["service.sh/unreadable"]
    assert not {"requestObject", "responseObject"} & first.keys()
