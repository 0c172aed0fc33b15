"""What is written of a request, and that it is written whatever becomes of it."""

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
from tests.harness.audit import ALICE, EVERYTHING, MOUNT, OK, AuditFixture, answers, open_audit, place
from tests.harness.calls import always_raise, call

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
CONFIGMAPS = place(CONFIGMAP)
BODY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}}


def served(**metadata: str) -> dict[str, object]:
    return {**BODY, "metadata": {"name": "a", **metadata}}


async def test_an_event_says_who_did_what_to_which_object_when_and_from_where() -> None:
    async with open_audit(OK) as desk:
        await desk("GET", f"{CONFIGMAPS}/a", query="pretty=1")
    (event,) = desk.events
    for name in ("requestReceivedTimestamp", "stageTimestamp"):
        assert MOMENT.fullmatch(event.pop(name))
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


def test_a_moment_without_a_fraction_is_written_with_one_all_the_same() -> None:
    exact = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = orjson.loads(encode_line(build_event(AuditedRequest(call("/version"), exact), COMPLETE, (), exact, 1.25)))
    assert made["stageTimestamp"] == made["requestReceivedTimestamp"] == "2026-01-02T03:04:05.000000Z"
    assert made["annotations"] == {"service.sh/latency": "1.250000s"}


async def test_a_group_and_a_subresource_are_named() -> None:
    async with open_audit(OK) as desk:
        await desk("GET", place(PROJECT, "p", "status"))
    assert desk.events[0]["objectRef"] == {
        "resource": "projects",
        "name": "p",
        "apiGroup": "management.service.sh",
        "apiVersion": "v1",
        "subresource": "status",
    }


async def test_what_is_no_resource_is_recorded_without_an_object() -> None:
    async with open_audit(OK) as desk:
        await desk("GET", "/version")
    assert "objectRef" not in desk.events[0]
    assert (desk.events[0]["verb"], desk.events[0]["requestURI"]) == ("get", "/version")


async def test_who_acts_as_somebody_else_is_named_first() -> None:
    extra = (("reason", ("a", "b")),)
    bob = User("bob", ("ops",), "uid-of-bob", extra=extra, impersonator=replace(ALICE, groups=()))
    async with open_audit(OK, user=bob) as desk:
        await desk("GET", CONFIGMAPS)
    (event,) = desk.events
    assert event["user"]["username"] == "alice"
    assert event["impersonatedUser"] == {
        "username": "bob",
        "uid": "uid-of-bob",
        "groups": ["ops"],
        "extra": {"reason": ["a", "b"]},
    }


async def test_a_record_has_no_more_of_a_user_than_there_is_room_for() -> None:
    extra = tuple((f"field-{number}", ("v" * 5_000,) * 100) for number in range(100))
    many = User("n" * 5_000, tuple(f"group-{number}" for number in range(5_000)), extra=extra, impersonator=ALICE)
    async with open_audit(OK, user=many) as desk:
        await desk("GET", CONFIGMAPS, headers={"user-agent": "a" * 60_000}, query=f"labelSelector={'s' * 60_000}")
    (event,) = desk.events
    groups = event["impersonatedUser"]["groups"]
    assert len(groups) == 101 and groups[-1] == "... and 4900 more"
    assert len(event["impersonatedUser"]["extra"]) == 16 and len(event["impersonatedUser"]["username"]) == 1_024
    assert len(event["requestURI"]) <= 4_096 and len(event["userAgent"]) < 1_100


async def test_the_policy_looks_at_who_really_asks() -> None:
    policy = Policy((PolicyRule(NONE, users=frozenset({"bob"})), PolicyRule(METADATA)))
    async with open_audit(OK, policy, user=User("bob", impersonator=ALICE)) as desk:
        await desk("GET", CONFIGMAPS)
    assert len(desk.completed()) == 1


async def test_who_has_not_signed_in_is_recorded_too() -> None:
    async with open_audit(OK, user=None) as desk:
        assert (await desk("GET", CONFIGMAPS)).status == 401
    (event,) = desk.events
    assert event["user"] == {}
    assert event["responseStatus"]["code"] == 401
    assert event["responseStatus"]["reason"] == "Unauthorized"
    assert "authorization.k8s.io/decision" not in event["annotations"]


async def test_a_path_that_makes_no_sense_is_recorded_as_it_came() -> None:
    async with open_audit(OK) as desk:
        assert (await desk("GET", f"{CONFIGMAPS}/a%b")).status == 400
    (event,) = desk.events
    assert (event["requestURI"], event["verb"], event["user"]) == (f"{CONFIGMAPS}/a%25b", "get", {})


async def test_a_made_up_method_is_not_taken_into_the_log() -> None:
    async with open_audit(OK) as desk:
        await desk("SECRET-OF-MINE", "/version")
    assert desk.events[0]["verb"] == "unknown"


async def test_addresses_of_both_kinds_lose_their_port() -> None:
    async def from_afar(call: Call) -> Reply:
        call.client = "[2001:db8::1]:4711"
        return Reply(200)

    async with open_audit(from_afar) as desk:
        await desk("GET", CONFIGMAPS)
    assert desk.events[0]["sourceIPs"] == ["2001:db8::1"]


# --- decisions and refusals


async def test_a_refusal_is_recorded_with_its_reason() -> None:
    async def refuse(call: Call) -> Reply:
        call.decision = Decision(False, "no role allows it")
        raise Forbidden("you may not")

    async with open_audit(refuse) as desk:
        await desk("GET", CONFIGMAPS)
    (event,) = desk.events
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert event["annotations"]["authorization.k8s.io/reason"] == "no role allows it"
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": "you may not",
        "reason": "Forbidden",
        "code": 403,
    }


async def test_a_list_that_is_cut_down_is_no_refusal() -> None:
    class Some:
        def allows(self, entry: object) -> bool:
            return False

        def generation(self) -> object:
            return None

    async def cut(call: Call) -> Reply:
        call.decision, call.object_filter = Decision(False, "may not list all"), Some()
        return Reply(200, b"{}")

    async with open_audit(cut) as desk:
        await desk("GET", CONFIGMAPS)
    assert desk.events[0]["annotations"]["authorization.k8s.io/decision"] == "allow"


@pytest.mark.parametrize("headers", [{}, {"accept": "application/yaml"}, {"user-agent": "curl/8"}])
async def test_an_error_is_told_in_whatever_form_it_was_sent(headers: dict[str, str]) -> None:
    async with open_audit(always_raise(NotFound.of("configmaps", "", "a"))) as desk:
        await desk("GET", f"{CONFIGMAPS}/a", headers=headers)
    status = desk.events[0]["responseStatus"]
    assert (status["code"], status["reason"], status["message"]) == (404, "NotFound", 'configmaps "a" not found')
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_long_message_is_cut() -> None:
    async with open_audit(always_raise(NotFound("no " * 10_000))) as desk:
        await desk("GET", CONFIGMAPS)
    assert len(desk.events[0]["responseStatus"]["message"]) < 1_100


async def test_an_answer_that_is_no_status_is_recorded_by_its_code() -> None:
    async with open_audit(answers(404, b"404 page not found\n", "text/plain; charset=utf-8")) as desk:
        await desk("GET", "/nowhere")
    assert desk.events[0]["responseStatus"] == {"metadata": {}, "code": 404}


# --- new objects have names


async def test_a_new_object_is_named_as_the_server_has_named_it() -> None:
    body = served(uid="u-1", resourceVersion="7")
    async with open_audit(answers(201, body)) as desk:
        await desk("POST", CONFIGMAPS, BODY)
    reference = desk.events[0]["objectRef"]
    assert (reference["name"], reference["uid"], reference["resourceVersion"]) == ("a", "u-1", "7")


async def test_an_object_that_could_not_be_made_is_named_by_the_error() -> None:
    async with open_audit(always_raise(AlreadyExists.of("configmaps", "", "a"))) as desk:
        await desk("POST", CONFIGMAPS, BODY)
    assert desk.events[0]["objectRef"]["name"] == "a"


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"metadata":[]}', b'{"metadata":{"name":1}}'])
async def test_an_answer_without_a_name_names_nothing(answer: bytes) -> None:
    async with open_audit(answers(201, answer)) as desk:
        await desk("POST", CONFIGMAPS, BODY)
    (event,) = desk.completed()
    assert "name" not in event["objectRef"]


# --- levels


@pytest.mark.parametrize(
    ("level", "has"), [(METADATA, set()), (REQUEST, {"requestObject"}), (3, {"requestObject", "responseObject"})]
)
async def test_the_level_says_which_bodies_are_recorded(level: int, has: set[str]) -> None:
    async with open_audit(answers(201, served(uid="u")), Policy((PolicyRule(level),))) as desk:
        await desk("POST", CONFIGMAPS, BODY)
    (event,) = desk.completed()
    assert {"requestObject", "responseObject"} & event.keys() == has
    if "requestObject" in has:
        assert event["requestObject"] == BODY
    if "responseObject" in has:
        assert event["responseObject"] == served(uid="u")


async def test_nothing_is_written_at_level_none() -> None:
    async with open_audit(OK, Policy((PolicyRule(NONE),))) as desk:
        await desk("GET", CONFIGMAPS)
    assert desk.events == []


@pytest.mark.parametrize("mount", ["", MOUNT])
async def test_health_checks_are_not_recorded_by_default(mount: str) -> None:
    async with open_audit(OK, DEFAULT_POLICY) as desk:
        await desk("GET", f"{mount}/readyz")
        await desk("GET", f"{mount}/version")
    assert [event["requestURI"] for event in desk.events] == [f"{mount}/version"]


async def test_what_is_no_resource_has_no_bodies_recorded() -> None:
    async with open_audit(answers(200, {"kind": "Thing"}), EVERYTHING) as desk:
        await desk("POST", "/auth/password/login", {"username": "a", "password": "b"})
    (event,) = desk.events
    assert not {"requestObject", "responseObject"} & event.keys()


# --- stages


async def test_a_request_is_announced_if_the_policy_asks_for_it() -> None:
    async with open_audit(OK, Policy((PolicyRule(METADATA),))) as desk:
        await desk("GET", CONFIGMAPS)
    received, complete = desk.events
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert received["auditID"] == complete["auditID"]
    assert received["requestReceivedTimestamp"] == complete["requestReceivedTimestamp"]
    assert received["user"] == complete["user"] and received["objectRef"] == complete["objectRef"]
    assert "responseStatus" not in received


@pytest.mark.parametrize("stage", [COMPLETE, PANIC])
async def test_a_stage_can_be_left_out(stage: str) -> None:
    policy = Policy((PolicyRule(METADATA, omit_stages=frozenset({stage})),))
    with structlog.testing.capture_logs():
        async with open_audit(always_raise(ValueError("ours")), policy) as desk:
            await desk("GET", CONFIGMAPS)
    assert {event["stage"] for event in desk.events} == {"RequestReceived", COMPLETE, PANIC} - {stage}


async def test_a_fault_of_ours_is_a_panic_and_an_end() -> None:
    with structlog.testing.capture_logs():
        async with open_audit(always_raise(ValueError("ours"))) as desk:
            assert (await desk("GET", CONFIGMAPS)).status == 500
    assert [event["stage"] for event in desk.events] == ["Panic", "ResponseComplete"]
    assert {event["responseStatus"]["code"] for event in desk.events} == {500}
    assert "ours" not in str(desk.events)


async def test_a_request_that_is_given_up_is_recorded_and_stays_given_up() -> None:
    async with open_audit(always_raise(asyncio.CancelledError())) as desk:
        with pytest.raises(asyncio.CancelledError):
            await desk("GET", CONFIGMAPS)
    (event,) = desk.completed()
    assert "responseStatus" not in event
    assert "aborted the request" in event["annotations"]["service.sh/aborted"]


async def test_the_answer_itself_is_left_alone() -> None:
    body = orjson.dumps(served(managedFields="mine"))
    async with open_audit(answers(200, body), EVERYTHING) as desk:
        reply = await desk("GET", f"{CONFIGMAPS}/a")
    assert (reply.status, reply.body) == (200, body)


async def test_the_body_reaches_whoever_reads_it() -> None:
    seen = []

    async def read(call: Call) -> Reply:
        seen.append(await call.read_body())
        return Reply(200, b"{}")

    async with open_audit(read, EVERYTHING) as desk:
        await desk("POST", CONFIGMAPS, b"the body")
    assert seen == [b"the body"]


@pytest.mark.parametrize(
    "error", [kind for kind in ApiError.__subclasses__() if kind.__module__.endswith("core.errors")]
)
async def test_every_error_is_recorded_once(error: type[ApiError]) -> None:
    async with open_audit(always_raise(error("what is wrong")), EVERYTHING) as desk:
        await desk("GET", CONFIGMAPS)
    (event,) = desk.completed()
    assert (event["responseStatus"]["code"], event["responseStatus"]["reason"]) == (error.code, error.reason)
    assert event["responseObject"]["message"] == "what is wrong"


async def test_requests_at_once_are_each_recorded_once() -> None:
    async def slowly(call: Call) -> Reply:
        await asyncio.sleep(0)
        return Reply(200, b"{}")

    async def many(desk: AuditFixture) -> None:
        await asyncio.gather(*(desk("GET", f"{CONFIGMAPS}/c{number}") for number in range(300)))

    async with open_audit(slowly, Policy((PolicyRule(METADATA),))) as desk:
        await many(desk)
    for stage in ("RequestReceived", "ResponseComplete"):
        names = [event["objectRef"]["name"] for event in desk.events if event["stage"] == stage]
        assert sorted(names) == sorted(f"c{number}" for number in range(300))


def test_the_stages_have_kubernetes_names() -> None:
    assert (STARTED, COMPLETE, PANIC) == ("ResponseStarted", "ResponseComplete", "Panic")
