"""server.audit.stage: the content of audit events, and that every request is recorded."""

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
import structlog

from fairlead.core.call import Call, Decision, Reply
from fairlead.core.errors import AlreadyExists, ApiError, Forbidden, NotFound
from fairlead.core.user import User
from fairlead.kinds.core.config_data import CONFIGMAP
from fairlead.kinds.projects.project import PROJECT
from fairlead.server.audit.events import AuditedRequest, build_event, encode_line
from fairlead.server.audit.policy import (
    COMPLETE,
    DEFAULT_POLICY,
    METADATA,
    NONE,
    PANIC,
    REQUEST,
    STARTED,
    Policy,
    PolicyRule,
)
from tests.harness.audit import ALICE, EVERYTHING, MOUNT, OK, AuditFixture, object_path, open_audit, reply_with
from tests.harness.calls import always_raise, call

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
CONFIGMAPS = object_path(CONFIGMAP)
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}}


def build_configmap(**metadata: str) -> dict[str, object]:
    return {**BODY, "metadata": {"name": "a", **metadata}}


async def test_an_event_has_the_user_the_verb_the_object_the_time_and_the_address() -> None:
    async with open_audit(OK) as audit:
        await audit("GET", f"{CONFIGMAPS}/a", query="pretty=1")
    (event,) = audit.events
    for name in ("requestReceivedTimestamp", "stageTimestamp"):
        assert TIMESTAMP.fullmatch(event.pop(name))
    annotations = event.pop("annotations")
    assert re.fullmatch(r"0\.\d{6}s", annotations.pop("service.sh/latency"))
    assert annotations == {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "because"}
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "0000-audit",
        "stage": "ResponseComplete",
        "requestURI": f"{CONFIGMAPS}/a?pretty=1",
        "verb": "get",
        "user": {
            "username": "alice",
            "uid": "uid-of-alice",
            "groups": ["developers", "system:authenticated"],
            "extra": {"service.sh/access-key": ["laptop"]},
        },
        "sourceIPs": ["192.0.2.7"],
        "userAgent": "tests/1.0",
        "objectRef": {"resource": "configmaps", "namespace": "demo", "name": "a", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 200},
    }


def test_timestamps_always_have_microseconds() -> None:
    whole_second = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    event = orjson.loads(
        encode_line(build_event(AuditedRequest(call("/version"), whole_second), COMPLETE, (), whole_second, 1.25))
    )
    assert event["stageTimestamp"] == event["requestReceivedTimestamp"] == "2026-01-02T03:04:05.000000Z"
    assert event["annotations"] == {"service.sh/latency": "1.250000s"}


async def test_the_object_reference_has_the_group_and_the_subresource() -> None:
    async with open_audit(OK) as audit:
        await audit("GET", object_path(PROJECT, "p", "status"))
    assert audit.events[0]["objectRef"] == {
        "resource": "projects",
        "name": "p",
        "apiGroup": "management.service.sh",
        "apiVersion": "v1",
        "subresource": "status",
    }


async def test_a_request_that_is_not_for_a_resource_has_no_object_reference() -> None:
    async with open_audit(OK) as audit:
        await audit("GET", "/version")
    assert "objectRef" not in audit.events[0]
    assert (audit.events[0]["verb"], audit.events[0]["requestURI"]) == ("get", "/version")


async def test_an_impersonated_request_names_both_users() -> None:
    extra = (("reason", ("a", "b")),)
    bob = User("bob", ("ops",), "uid-of-bob", extra=extra, impersonator=replace(ALICE, groups=()))
    async with open_audit(OK, user=bob) as audit:
        await audit("GET", CONFIGMAPS)
    (event,) = audit.events
    assert event["user"]["username"] == "alice"
    assert event["impersonatedUser"] == {
        "username": "bob",
        "uid": "uid-of-bob",
        "groups": ["ops"],
        "extra": {"reason": ["a", "b"]},
    }


async def test_the_size_of_an_event_is_limited() -> None:
    extra = tuple((f"field-{number}", ("v" * 5_000,) * 100) for number in range(100))
    large_user = User("n" * 5_000, tuple(f"group-{number}" for number in range(5_000)), extra=extra, impersonator=ALICE)
    async with open_audit(OK, user=large_user) as audit:
        await audit("GET", CONFIGMAPS, headers={"user-agent": "a" * 60_000}, query=f"labelSelector={'s' * 60_000}")
    (event,) = audit.events
    groups = event["impersonatedUser"]["groups"]
    assert len(groups) == 101 and groups[-1] == "... and 4900 more"
    assert len(event["impersonatedUser"]["extra"]) == 16 and len(event["impersonatedUser"]["username"]) == 1_024
    assert len(event["requestURI"]) <= 4_096 and len(event["userAgent"]) < 1_100


async def test_the_policy_applies_to_the_impersonator() -> None:
    policy = Policy((PolicyRule(NONE, users=frozenset({"bob"})), PolicyRule(METADATA)))
    async with open_audit(OK, policy, user=User("bob", impersonator=ALICE)) as audit:
        await audit("GET", CONFIGMAPS)
    assert len(audit.completed_events()) == 1


async def test_unauthenticated_requests_are_recorded() -> None:
    async with open_audit(OK, user=None) as audit:
        assert (await audit("GET", CONFIGMAPS)).status == 401
    (event,) = audit.events
    assert event["user"] == {}
    assert event["responseStatus"]["code"] == 401
    assert event["responseStatus"]["reason"] == "Unauthorized"
    assert "authorization.k8s.io/decision" not in event["annotations"]


async def test_an_invalid_path_is_recorded_as_it_was_sent() -> None:
    async with open_audit(OK) as audit:
        assert (await audit("GET", f"{CONFIGMAPS}/a%b")).status == 400
    (event,) = audit.events
    assert (event["requestURI"], event["verb"], event["user"]) == (f"{CONFIGMAPS}/a%25b", "get", {})


async def test_an_unknown_method_is_recorded_as_unknown() -> None:
    async with open_audit(OK) as audit:
        await audit("SECRET-OF-MINE", "/version")
    assert audit.events[0]["verb"] == "unknown"


async def test_the_port_of_an_ipv6_address_is_removed() -> None:
    async def set_ipv6_client(call: Call) -> Reply:
        call.client = "[2001:db8::1]:4711"
        return Reply(200)

    async with open_audit(set_ipv6_client) as audit:
        await audit("GET", CONFIGMAPS)
    assert audit.events[0]["sourceIPs"] == ["2001:db8::1"]


# --- decisions and errors


async def test_a_denied_request_is_recorded_with_the_reason() -> None:
    async def deny(call: Call) -> Reply:
        call.decision = Decision(False, "no role allows it")
        raise Forbidden("you may not")

    async with open_audit(deny) as audit:
        await audit("GET", CONFIGMAPS)
    (event,) = audit.events
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert event["annotations"]["authorization.k8s.io/reason"] == "no role allows it"
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": "you may not",
        "reason": "Forbidden",
        "code": 403,
    }


async def test_a_filtered_list_counts_as_allowed() -> None:
    class HideAll:
        def allows(self, entry: object) -> bool:
            return False

        def generation(self) -> object:
            return None

    async def filter_list(call: Call) -> Reply:
        call.decision, call.object_filter = Decision(False, "may not list all"), HideAll()
        return Reply(200, b"{}")

    async with open_audit(filter_list) as audit:
        await audit("GET", CONFIGMAPS)
    assert audit.events[0]["annotations"]["authorization.k8s.io/decision"] == "allow"


@pytest.mark.parametrize("headers", [{}, {"accept": "application/yaml"}, {"user-agent": "curl/8"}])
async def test_an_error_is_recorded_whatever_the_media_type_of_the_response(headers: dict[str, str]) -> None:
    async with open_audit(always_raise(NotFound.of("configmaps", "", "a"))) as audit:
        await audit("GET", f"{CONFIGMAPS}/a", headers=headers)
    status = audit.events[0]["responseStatus"]
    assert (status["code"], status["reason"], status["message"]) == (404, "NotFound", 'configmaps "a" not found')
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_long_message_is_truncated() -> None:
    async with open_audit(always_raise(NotFound("no " * 10_000))) as audit:
        await audit("GET", CONFIGMAPS)
    assert len(audit.events[0]["responseStatus"]["message"]) < 1_100


async def test_a_response_that_is_not_a_status_is_recorded_with_its_code() -> None:
    async with open_audit(reply_with(404, b"404 page not found\n", "text/plain; charset=utf-8")) as audit:
        await audit("GET", "/nowhere")
    assert audit.events[0]["responseStatus"] == {"metadata": {}, "code": 404}


# --- names of created objects


async def test_a_created_object_has_the_name_from_the_response() -> None:
    body = build_configmap(uid="u-1", resourceVersion="7")
    async with open_audit(reply_with(201, body)) as audit:
        await audit("POST", CONFIGMAPS, BODY)
    reference = audit.events[0]["objectRef"]
    assert (reference["name"], reference["uid"], reference["resourceVersion"]) == ("a", "u-1", "7")


async def test_an_object_that_was_not_created_has_the_name_from_the_error() -> None:
    async with open_audit(always_raise(AlreadyExists.of("configmaps", "", "a"))) as audit:
        await audit("POST", CONFIGMAPS, BODY)
    assert audit.events[0]["objectRef"]["name"] == "a"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"metadata":[]}', b'{"metadata":{"name":1}}'])
async def test_a_response_without_a_name_leaves_the_object_unnamed(content: bytes) -> None:
    async with open_audit(reply_with(201, content)) as audit:
        await audit("POST", CONFIGMAPS, BODY)
    (event,) = audit.completed_events()
    assert "name" not in event["objectRef"]


# --- levels


@pytest.mark.parametrize(
    ("level", "recorded"), [(METADATA, set()), (REQUEST, {"requestObject"}), (3, {"requestObject", "responseObject"})]
)
async def test_the_level_determines_which_bodies_are_recorded(level: int, recorded: set[str]) -> None:
    async with open_audit(reply_with(201, build_configmap(uid="u")), Policy((PolicyRule(level),))) as audit:
        await audit("POST", CONFIGMAPS, BODY)
    (event,) = audit.completed_events()
    assert {"requestObject", "responseObject"} & event.keys() == recorded
    if "requestObject" in recorded:
        assert event["requestObject"] == BODY
    if "responseObject" in recorded:
        assert event["responseObject"] == build_configmap(uid="u")


async def test_nothing_is_recorded_at_level_none() -> None:
    async with open_audit(OK, Policy((PolicyRule(NONE),))) as audit:
        await audit("GET", CONFIGMAPS)
    assert audit.events == []


@pytest.mark.parametrize("mount", ["", MOUNT])
async def test_health_checks_are_not_recorded_by_default(mount: str) -> None:
    async with open_audit(OK, DEFAULT_POLICY) as audit:
        await audit("GET", f"{mount}/readyz")
        await audit("GET", f"{mount}/version")
    assert [event["requestURI"] for event in audit.events] == [f"{mount}/version"]


async def test_bodies_of_requests_that_are_not_for_resources_are_not_recorded() -> None:
    async with open_audit(reply_with(200, {"kind": "Thing"}), EVERYTHING) as audit:
        await audit("POST", "/auth/password/login", {"username": "a", "password": "b"})
    (event,) = audit.events
    assert not {"requestObject", "responseObject"} & event.keys()


# --- stages


async def test_the_received_stage_is_recorded_if_the_policy_includes_it() -> None:
    async with open_audit(OK, Policy((PolicyRule(METADATA),))) as audit:
        await audit("GET", CONFIGMAPS)
    received, complete = audit.events
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert received["auditID"] == complete["auditID"]
    assert received["requestReceivedTimestamp"] == complete["requestReceivedTimestamp"]
    assert received["user"] == complete["user"] and received["objectRef"] == complete["objectRef"]
    assert "responseStatus" not in received


@pytest.mark.parametrize("stage", [COMPLETE, PANIC])
async def test_a_stage_can_be_omitted(stage: str) -> None:
    policy = Policy((PolicyRule(METADATA, omit_stages=frozenset({stage})),))
    with structlog.testing.capture_logs():
        async with open_audit(always_raise(ValueError("only for the log")), policy) as audit:
            await audit("GET", CONFIGMAPS)
    assert {event["stage"] for event in audit.events} == {"RequestReceived", COMPLETE, PANIC} - {stage}


async def test_an_internal_error_is_recorded_as_panic_and_complete() -> None:
    with structlog.testing.capture_logs():
        async with open_audit(always_raise(ValueError("only for the log"))) as audit:
            assert (await audit("GET", CONFIGMAPS)).status == 500
    assert [event["stage"] for event in audit.events] == ["Panic", "ResponseComplete"]
    assert {event["responseStatus"]["code"] for event in audit.events} == {500}
    assert "only for the log" not in str(audit.events)


async def test_a_cancelled_request_is_recorded_and_stays_cancelled() -> None:
    async with open_audit(always_raise(asyncio.CancelledError())) as audit:
        with pytest.raises(asyncio.CancelledError):
            await audit("GET", CONFIGMAPS)
    (event,) = audit.completed_events()
    assert "responseStatus" not in event
    assert "aborted the request" in event["annotations"]["service.sh/aborted"]


async def test_the_response_is_not_changed() -> None:
    body = orjson.dumps(build_configmap(managedFields="mine"))
    async with open_audit(reply_with(200, body), EVERYTHING) as audit:
        reply = await audit("GET", f"{CONFIGMAPS}/a")
    assert (reply.status, reply.body) == (200, body)


async def test_the_body_reaches_the_handler() -> None:
    bodies = []

    async def read_body(call: Call) -> Reply:
        bodies.append(await call.read_body())
        return Reply(200, b"{}")

    async with open_audit(read_body, EVERYTHING) as audit:
        await audit("POST", CONFIGMAPS, b"the body")
    assert bodies == [b"the body"]


@pytest.mark.parametrize(
    "error",
    [error_class for error_class in ApiError.__subclasses__() if error_class.__module__.endswith("core.errors")],
)
async def test_every_error_is_recorded_once(error: type[ApiError]) -> None:
    async with open_audit(always_raise(error("an error")), EVERYTHING) as audit:
        await audit("GET", CONFIGMAPS)
    (event,) = audit.completed_events()
    assert (event["responseStatus"]["code"], event["responseStatus"]["reason"]) == (error.code, error.reason)
    assert event["responseObject"]["message"] == "an error"


async def test_concurrent_requests_are_each_recorded_once() -> None:
    async def reply_slowly(call: Call) -> Reply:
        await asyncio.sleep(0)
        return Reply(200, b"{}")

    async def send_many(audit: AuditFixture) -> None:
        await asyncio.gather(*(audit("GET", f"{CONFIGMAPS}/c{number}") for number in range(300)))

    async with open_audit(reply_slowly, Policy((PolicyRule(METADATA),))) as audit:
        await send_many(audit)
    for stage in ("RequestReceived", "ResponseComplete"):
        names = [event["objectRef"]["name"] for event in audit.events if event["stage"] == stage]
        assert sorted(names) == sorted(f"c{number}" for number in range(300))


def test_the_stages_have_the_names_of_kubernetes() -> None:
    assert (STARTED, COMPLETE, PANIC) == ("ResponseStarted", "ResponseComplete", "Panic")
