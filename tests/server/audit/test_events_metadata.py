"""server.audit.events: the fast rendering of metadata events equals the general one."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qs

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, Decision
from fairlead.core.user import User
from fairlead.kinds import KINDS
from fairlead.server.api.routing import RouteConfig, route
from fairlead.server.audit import events
from fairlead.server.audit.events import AuditedRequest, MetadataEvent, build_event, encode_line
from fairlead.server.audit.policy import COMPLETE, METADATA, REQUEST, STARTED, PolicyRule
from fairlead.server.audit.redaction import _selector_fields
from tests.harness.audit import ALICE, MOUNT
from tests.harness.calls import call

KEY = "fairlead_C9BxpWZ20hyLLe1oIgk8Cn75Fvt4UvWTvotlDb_c8z8"
APPS = f"{MOUNT}/apis/management.service.sh/v1/apps"
JANE = User("jane", ("g1", "g2"), extra=(("why", (f"because {KEY}", 'a "reason"')),), impersonator=ALICE)
SPECIAL_CHARACTERS = User('o"dd\\ ', ("gröup", "日本"), "u\n", KEY)

NOON = datetime(2026, 11, 15, 12, 0, 7, 7, tzinfo=UTC)

texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=80)


class HideAll:
    """An object filter that hides every entry."""

    def allows(self, entry: object) -> bool:
        return False

    def generation(self) -> object:
        return None


def build_request(path: str, query: str = "", agent: str = "tests/1.0", user: User | None = ALICE) -> Call:
    request = call(path, query, headers={"user-agent": agent})
    request.client, request.user = "192.0.2.7:4711", user
    request.audit_id = "11111111-2222-4333-a444-555555555555"
    request.target = route("GET", path, parse_qs(query, keep_blank_values=True), RouteConfig(MOUNT))
    return request


def assert_same(request: Call, ended_at: datetime = NOON, level: int = METADATA, stage: str = COMPLETE) -> bytes:
    audited, seconds = AuditedRequest(request, NOON, PolicyRule(level)), 1.623_456_7
    expected = build_event(audited, stage, KINDS, ended_at, seconds)
    expected["responseStatus"] = {"metadata": {}, "code": 200}
    event = MetadataEvent(audited, stage, 200, KINDS, ended_at, seconds)
    line = event.render()
    assert line == encode_line(expected)
    assert line == event.render(), "rendered from the cache"
    return line


@pytest.mark.parametrize("user", [None, ALICE, JANE, SPECIAL_CHARACTERS, User("plain")])
@pytest.mark.parametrize(
    "path",
    [
        "/version",
        f"{APPS}",
        f"{APPS}/one",
        f"{APPS}/{KEY}",
        f"{APPS}/one/status",
        f"{MOUNT}/api/v1/namespaces/demo/configmaps/one",
        f'{MOUNT}/api/v1/namespaces/d"mo/configmaps/o\\ne',
        "/kubernetes/cluster/c/api/v1/namespaces/demo/pods/p",
        f"{MOUNT}/apis/{'long' * 300}/v1/apps/one",
    ],
)
def test_both_renderings_are_equal(path: str, user: User | None) -> None:
    assert_same(build_request(path, user=user))


@pytest.mark.parametrize(
    "query", ["limit=5&watch=1", f"token={KEY}", 'fieldSelector=metadata.name%3D"x"', f"continue={KEY}"]
)
def test_both_renderings_redact_queries_alike(query: str) -> None:
    assert KEY.encode() not in assert_same(build_request(APPS, query))


@pytest.mark.parametrize("agent", ["", KEY, 'a "quoted" one', "x" * 2_000, "ümlaut"])
def test_both_renderings_redact_user_agents_alike(agent: str) -> None:
    assert KEY.encode() not in assert_same(build_request(APPS, agent=agent))


def test_both_renderings_have_the_same_level_stage_and_timestamps() -> None:
    assert_same(build_request(APPS), NOON.replace(microsecond=0), REQUEST, STARTED)


@pytest.mark.parametrize("is_filtered", [False, True])
@pytest.mark.parametrize("decision", [Decision(True, f'said "{KEY}"'), Decision(False, "no"), Decision(True), None])
def test_both_renderings_have_the_same_decision(decision: Decision | None, is_filtered: bool) -> None:
    request = build_request(APPS)
    request.decision, request.object_filter = decision, HideAll() if is_filtered else None
    request.annotations["service.sh/more"] = f'more "{KEY}"'
    assert KEY.encode() not in assert_same(request)


@given(texts, texts, texts)
def test_both_renderings_are_equal_for_arbitrary_text(name: str, agent: str, username: str) -> None:
    request = build_request(APPS, agent=agent, user=replace(JANE, name=username))
    request.path = f"{APPS}/{name}"
    request.target = replace(request.target, name=name, namespace=username)
    assert_same(request)


def test_the_template_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_templates", BoundedCache(3))
    users = [User(f"user-{number}") for number in range(10)]
    for user in users:
        assert f'"username":"{user.name}"'.encode() in assert_same(build_request(APPS, user=user))
    assert len(events._templates) <= 3


def test_long_templates_do_not_fill_the_memory() -> None:
    groups = tuple("g" * 1_000 + str(number) for number in range(90))
    for number in range(100):
        assert_same(build_request(f"{MOUNT}/api/v1/namespaces/n{number}/configmaps/one", user=User("u", groups)))
    cached_characters = sum(len(template) for _, template in events._templates.values())
    assert cached_characters <= events.MAX_CACHED_TEMPLATE_CHARACTERS


@pytest.mark.parametrize("name", ["50%s", "%d", "100%"])
def test_percent_signs_are_no_placeholders(name: str) -> None:
    request = build_request(f"{APPS}/one", user=User(name, (name,)))
    request.target = replace(request.target, name=name, namespace=name, group=name, subresource=name)
    request.decision = Decision(True, name)
    assert_same(request)


@pytest.mark.parametrize("agent", ["tests/1.0", "a" * events.MAX_CACHED_TEXT_LENGTH])
def test_a_created_object_is_named_however_long_the_line_is(agent: str) -> None:
    audited = AuditedRequest(build_request(APPS, agent=agent), NOON, PolicyRule(METADATA))
    created = b'{"metadata":{"name":"one","uid":"u-1","resourceVersion":"7"},"spec":{}}'
    event = orjson.loads(MetadataEvent(audited, COMPLETE, 201, KINDS, NOON, 1.0, created).render())
    group = {"resource": "apps", "apiGroup": "management.service.sh", "apiVersion": "v1"}
    assert event["objectRef"] == {**group, "name": "one", "uid": "u-1", "resourceVersion": "7"}


def test_parsing_a_long_selector_takes_linear_time() -> None:
    """Anonymous clients choose it, and it is logged before authentication."""
    for selector in ("x" * 32_000, "x" * 16_000 + "!" * 16_000, "x," * 16_000, "=" * 32_000):
        started_at = time.thread_time()
        assert _selector_fields(selector) == [selector]
        assert time.thread_time() - started_at < 1.0  # an unanchored search would take ten seconds


def test_selector_fields_are_parsed_term_by_term() -> None:
    assert _selector_fields("a=b,c==d,e!=f,g=") == ["a", "c", "e", "g"]
    for selector in ("a=b=c", "a=b,c", "=b", ""):
        assert _selector_fields(selector) == [selector]
