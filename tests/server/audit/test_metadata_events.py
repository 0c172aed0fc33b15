"""The quick way to a line and the long one say the same, whatever was asked by whomever."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qs

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, Decision
from fairlead.core.user import User
from fairlead.kinds import KINDS
from fairlead.server.api.routing import RouteConfig, route
from fairlead.server.audit import metadata_events
from fairlead.server.audit.events import AuditedRequest, build_event, encode_line
from fairlead.server.audit.metadata_events import MetadataEvent
from fairlead.server.audit.policy import COMPLETE, METADATA, REQUEST, STARTED, PolicyRule
from fairlead.server.audit.redaction import _selector_fields
from tests.harness.audit import ALICE, MOUNT
from tests.harness.calls import call

KEY = "fairlead_C9BxpWZ20hyLLe1oIgk8Cn75Fvt4UvWTvotlDb_c8z8"
APPS = f"{MOUNT}/apis/management.service.sh/v1/apps"
JANE = User("jane", ("g1", "g2"), extra=(("why", (f"because {KEY}", 'a "reason"')),), impersonator=ALICE)
ODD = User('o"dd\\ ', ("gröup", "日本"), "u\n", KEY)

NOON = datetime(2026, 11, 15, 12, 0, 7, 7, tzinfo=UTC)

texts = some.text(some.characters(blacklist_categories=["Cs"]), max_size=80)


class NotAll:
    """What cuts a list."""

    def allows(self, entry: object) -> bool:
        return False

    def generation(self) -> object:
        return None


def asked(path: str, query: str = "", agent: str = "tests/1.0", user: User | None = ALICE) -> Call:
    made = call(path, query, headers={"user-agent": agent})
    made.client, made.user = "192.0.2.7:4711", user
    made.audit_id = "11111111-2222-4333-a444-555555555555"
    made.target = route("GET", path, parse_qs(query, keep_blank_values=True), RouteConfig(MOUNT))
    return made


def assert_same(made: Call, ended: datetime = NOON, level: int = METADATA, stage: str = COMPLETE) -> bytes:
    exchange, seconds = AuditedRequest(made, NOON, PolicyRule(level)), 1.623_456_7
    the_long_way = build_event(exchange, stage, KINDS, ended, seconds)
    the_long_way["responseStatus"] = {"metadata": {}, "code": 200}
    plain_event = MetadataEvent(exchange, stage, 200, KINDS, ended, seconds)
    found = plain_event.render()
    assert found == encode_line(the_long_way)
    assert found == plain_event.render(), "from what was kept"
    return found


@pytest.mark.parametrize("user", [None, ALICE, JANE, ODD, User("plain")])
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
def test_both_ways_say_the_same(path: str, user: User | None) -> None:
    assert_same(asked(path, user=user))


@pytest.mark.parametrize(
    "query", ["limit=5&watch=1", f"token={KEY}", 'fieldSelector=metadata.name%3D"x"', f"continue={KEY}"]
)
def test_queries_are_shown_alike(query: str) -> None:
    assert KEY.encode() not in assert_same(asked(APPS, query))


@pytest.mark.parametrize("agent", ["", KEY, 'a "quoted" one', "x" * 2_000, "ümlaut"])
def test_clients_are_shown_alike(agent: str) -> None:
    assert KEY.encode() not in assert_same(asked(APPS, agent=agent))


def test_levels_stages_and_whole_seconds_are_told_alike() -> None:
    assert_same(asked(APPS), NOON.replace(microsecond=0), REQUEST, STARTED)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("decision", [Decision(True, f'said "{KEY}"'), Decision(False, "no"), Decision(True), None])
def test_decisions_are_told_alike(decision: Decision | None, cut: bool) -> None:
    made = asked(APPS)
    made.decision, made.object_filter = decision, NotAll() if cut else None
    made.annotations["service.sh/more"] = f'more "{KEY}"'
    assert KEY.encode() not in assert_same(made)


@given(texts, texts, texts)
def test_whatever_is_sent_is_told_alike(name: str, agent: str, who: str) -> None:
    made = asked(APPS, agent=agent, user=replace(JANE, name=who))
    made.path = f"{APPS}/{name}"
    made.target = replace(made.target, name=name, namespace=who)
    assert_same(made)


def test_what_is_kept_of_users_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_events, "_user_cache", BoundedCache(3))
    users = [User(f"user-{number}") for number in range(10)]
    for user in users:
        assert f'"username":"{user.name}"'.encode() in assert_same(asked(APPS, user=user))
    assert len(metadata_events._user_cache) <= 3


@pytest.mark.parametrize("agent", ["tests/1.0", "a" * metadata_events.MAX_CACHED_TEXT_LENGTH])
def test_a_new_object_is_named_however_long_the_line_is(agent: str) -> None:
    exchange = AuditedRequest(asked(APPS, agent=agent), NOON, PolicyRule(METADATA))
    created = b'{"metadata":{"name":"one","uid":"u-1","resourceVersion":"7"},"spec":{}}'
    made = orjson.loads(MetadataEvent(exchange, COMPLETE, 201, KINDS, NOON, 1.0, created).render())
    group = {"resource": "apps", "apiGroup": "management.service.sh", "apiVersion": "v1"}
    assert made["objectRef"] == {**group, "name": "one", "uid": "u-1", "resourceVersion": "7"}


def test_a_long_selector_costs_no_more_than_its_length() -> None:
    """Strangers choose it, and it is written down before anybody asks who they are."""
    for selector in ("x" * 32_000, "x" * 16_000 + "!" * 16_000, "x," * 16_000, "=" * 32_000):
        began = time.thread_time()
        assert _selector_fields(selector) == [selector]
        assert time.thread_time() - began < 1.0  # looked for anywhere, a field takes ten seconds to be not there


def test_fields_are_found_term_by_term() -> None:
    assert _selector_fields("a=b,c==d,e!=f,g=") == ["a", "c", "e", "g"]
    for selector in ("a=b=c", "a=b,c", "=b", ""):
        assert _selector_fields(selector) == [selector]
