"""`fairlead audit`: selectors, pages, output, following, and the explanation of one request."""

import json
from typing import Any

import pytest

from fairlead.cli.access.audit import VERBS
from fairlead.server.audit.events import LOGGED_VERBS
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, Request, failure_status

EVENTS = f"{M}/auditevents"
DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
DRY_RUN = "service.sh/dry-run"
REFUSED_BY = "service.sh/refused-by"


def build_event(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "management.service.sh/v1",
        "kind": "AuditEvent",
        "metadata": {"name": name, "resourceVersion": f"after-{name}"},
        "auditID": name,
        "stage": "ResponseComplete",
        "requestURI": "/kubernetes/management/api/v1/namespaces/service-p-demo/secrets/s?x=1",
        "verb": "get",
        "user": {"username": "ada", "groups": ["dev"], "extra": {"service.sh/access-key": ["laptop"]}},
        "sourceIPs": ["192.0.2.7"],
        "userAgent": "kubectl/v1.35.0",
        "objectRef": {"resource": "secrets", "namespace": "service-p-demo", "name": "s", "apiVersion": "v1"},
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000123Z",
        "stageTimestamp": "2026-01-02T03:04:05.002345Z",
        "responseStatus": {"code": 200},
        "annotations": {DECISION: "allow", REASON: "owner of the object", "service.sh/latency": "0.002s"},
        **fields,
    }


FORBIDDEN = build_event(
    "two",
    annotations={DECISION: "forbid", REASON: ""},
    responseStatus={"code": 403, "reason": "Forbidden", "message": "secrets is forbidden"},
)


def page(*events: dict[str, Any], token: str = "") -> tuple[int, Any]:
    return 200, {"metadata": {"resourceVersion": "the-list", "continue": token}, "items": list(events)}


def test_events_are_printed_as_a_table(user: CliFixture) -> None:
    user.fake.on("GET", EVENTS, page(build_event("one"), build_event("two", impersonatedUser={"username": "bob"})))
    result = user.run("audit")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("TIME")
    first, second = (line.split() for line in result.out.splitlines()[1:])
    assert first == ["2026-01-02T03:04:05Z", "ada", "get", "service-p-demo/secrets/s", "200", "allow", "-", "one"]
    assert second[1:4] == ["ada", "as", "bob"]
    wide = user.run("audit", "-o", "wide").out
    assert all(word in wide for word in ("laptop", "192.0.2.7", "kubectl/v1.35.0", "owner of the object"))


def test_dry_runs_are_marked(user: CliFixture) -> None:
    dry = build_event("one", verb="delete", annotations={DECISION: "allow", DRY_RUN: "All"})
    user.fake.on("GET", EVENTS, page(dry, build_event("two", verb="delete")))
    user.fake.on("GET", f"{EVENTS}/one", (200, dry))
    first, second = user.run("audit").out.splitlines()[1:]
    assert "delete (dry run)" in first and "dry run" not in second
    assert "delete (dry run) service-p-demo/secrets/s" in user.run("audit", "show", "one").out


def test_flags_become_a_field_selector(user: CliFixture) -> None:
    user.fake.on_self()
    user.fake.on("GET", EVENTS, page())
    flags = ("--user", "a=b,c", "--verb", "get", "--resource", "secrets", "--project", "demo", "--name", "s")
    result = user.run("audit", *flags, "--since", "1h", "--until", "2026-01-02T03:04:05Z", "--denied", "--code", "403")
    assert (result.code, "no events" in result.err) == (0, True)
    (request,) = user.fake.requests_to("GET", EVENTS)
    assert request.query["fieldSelector"].split(",o")[0] == r"user.username=a\=b\,c,verb=get"
    assert request.query["fieldSelector"].endswith(
        "objectRef.resource=secrets,project=demo,objectRef.name=s,"
        "since=1h,until=2026-01-02T03:04:05Z,responseStatus.code=403,refusedBy!="
    )
    assert request.query["limit"] == "50"


def test_several_verbs_are_all_but_the_others(user: CliFixture) -> None:
    user.fake.on("GET", EVENTS, page())
    assert user.run("audit", "--verb", "patch", "--verb", "delete").code == 0
    (request,) = user.fake.requests_to("GET", EVENTS)
    excluded = {each.removeprefix("verb!=") for each in request.query["fieldSelector"].split(",")}
    assert excluded == set(VERBS) - {"patch", "delete"}
    assert set(VERBS) == {*LOGGED_VERBS, "unknown"}


def test_changes_are_without_reads_dry_runs_and_reviews(user: CliFixture) -> None:
    user.fake.on("GET", EVENTS, page())
    assert user.run("audit", "--changes", "--resource", "spaces").code == 0
    (request,) = user.fake.requests_to("GET", EVENTS)
    terms = request.query["fieldSelector"].split(",")
    assert {"verb!=get", "dryRun!=All", "objectRef.resource!=selves", "objectRef.resource=spaceinstances"} <= set(terms)


@pytest.mark.parametrize("verb", ["patch,delete", "foo", "GET"])
def test_an_unknown_verb_is_a_usage_error(user: CliFixture, verb: str) -> None:
    result = user.run("audit", "--verb", verb)
    assert (result.code, "is no verb" in result.err, "Repeat --verb" in " ".join(result.err.split())) == (2, True, True)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("project/demo/space/real/apis/apps/v1/deployments", "space demo/real: "),
        ("project/demo/virtualcluster/dev/api/v1/pods", "virtualcluster demo/dev: "),
        ("cluster/berlin/api/v1/pods", "cluster berlin: "),
    ],
)
def test_an_object_in_a_cluster_says_where_it_is(user: CliFixture, path: str, place: str) -> None:
    reference = {"resource": "deployments", "namespace": "demo-real", "name": "x"}
    event = build_event("one", requestURI=f"/kubernetes/{path}", objectRef=reference)
    user.fake.on("GET", EVENTS, page(event))
    assert f" {place}demo-real/deployments/x " in user.run("audit").out


def test_pages_are_followed_until_the_limit_also_if_one_is_empty(user: CliFixture) -> None:
    user.fake.on(
        "GET", EVENTS, page(token="a"), page(build_event("one"), token="b"), page(build_event("two"), token="c")
    )
    result = user.run("audit", "--limit", "2", "-o", "name")
    assert result.out.split() == ["auditevent/one", "auditevent/two"]
    queries = [each.query for each in user.fake.requests_to("GET", EVENTS)]
    assert [(each.get("continue"), each["limit"]) for each in queries] == [(None, "2"), ("a", "2"), ("b", "1")]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_events_are_printed_for_programs(user: CliFixture, output: str) -> None:
    user.fake.on("GET", EVENTS, page(build_event("one")))
    result = user.run("audit", "-o", output)
    assert "auditID" in result.out
    if output == "json":
        assert json.loads(result.out)["items"] == [build_event("one")]


def test_following_prints_the_latest_events_and_then_new_ones(user: CliFixture) -> None:
    def respond(request: Request) -> tuple[int, Any]:
        if "watch" not in request.query:
            return page(build_event("two"), build_event("one"))
        version = request.query["resourceVersion"]
        if version == "the-list":
            return 200, {"type": "ADDED", "object": build_event("three")}
        return 200, {"type": "ERROR", "object": failure_status(410, "Expired", f"too old: {version}")}

    user.fake.on("GET", EVENTS, respond)
    result = user.run("audit", "-f")
    assert [line.split()[-1] for line in result.out.splitlines()[1:]] == ["one", "two", "three"]
    assert (result.code, "too old: after-three" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--since", "soon"), "neither a duration"),
        (("--until", "2026-01-02"), "neither a duration"),
        (("--limit", "0"), "--limit"),
        (("--code", "42"), "--code"),
        (("--follow", "--until", "1h"), "--follow cannot be combined"),
        (("-o", "csv"), "csv"),
    ],
)
def test_mistakes_are_usage_errors(user: CliFixture, flags: tuple[str, ...], message: str) -> None:
    result = user.run("audit", *flags)
    assert (result.code, message in result.err) == (2, True), result.err
    assert user.fake.requests_to("GET", EVENTS) == []


def test_show_explains_a_forbidden_request_and_the_next_step(user: CliFixture) -> None:
    user.fake.on("GET", f"{EVENTS}/two", (200, FORBIDDEN))
    result = user.run("audit", "show", "two")
    rows = dict(line.split(maxsplit=1) for line in result.out.splitlines() if line[0] != " ")
    assert rows["request"] == "ada: get service-p-demo/secrets/s"
    assert rows["decision"] == "forbidden: no role, ownership or membership allows it"
    assert rows["result"] == "403 Forbidden"
    assert rows["next"] == "`fairlead who-can get secrets s -n service-p-demo` shows who may do this"
    assert "secrets is forbidden" in result.out


def test_show_explains_an_allowed_request_without_a_next_step(user: CliFixture) -> None:
    user.fake.on("GET", f"{EVENTS}/one", (200, build_event("one")))
    result = user.run("audit", "show", "one")
    assert "allowed: owner of the object" in result.out
    assert "next" not in result.out
    assert json.loads(user.run("audit", "show", "one", "-o", "json").out)["auditID"] == "one"


def test_show_explains_requests_without_an_object_or_user(user: CliFixture) -> None:
    path = "/kubernetes/management/api"
    denied = build_event("one", user={}, objectRef=None, requestURI=path, responseStatus={"code": 401}, annotations={})
    user.fake.on("GET", f"{EVENTS}/one", (200, denied))
    result = user.run("audit", "show", "one")
    assert all(words in result.out for words in (f"-: get {path}", "not authenticated", "fairlead login"))


def test_a_refused_sign_on_has_its_reason_and_a_command_that_tries_the_rules(user: CliFixture) -> None:
    refused = build_event(
        "one",
        user={},
        objectRef=None,
        requestURI="/auth/okta/callback",
        responseStatus={"code": 303},
        annotations={REFUSED_BY: "sign-on/no_rule_matched"},
    )
    user.fake.on("GET", EVENTS, page(refused))
    user.fake.on("GET", f"{EVENTS}/one", (200, refused))
    listed = user.run("audit", "--denied").out.splitlines()[1].split()
    assert listed[-4:] == ["303", "-", "sign-on/no_rule_matched", "one"]
    assert "fairlead sso test --claims FILE" in user.run("audit", "show", "one").out


def test_an_unknown_id_is_an_error(user: CliFixture) -> None:
    status = failure_status(404, "NotFound", 'auditevents.management.service.sh "x" not found')
    user.fake.on("GET", f"{EVENTS}/x", (404, status))
    result = user.run("audit", "show", "x")
    assert (result.code, "not found" in result.err) == (1, True)


def test_an_empty_id_is_an_error_and_not_the_list_of_all_events(user: CliFixture) -> None:
    result = user.run("audit", "show", "")
    assert (result.code, "is empty" in result.err, result.out) == (1, True, "")
    assert user.fake.requests == []


def test_a_request_that_admission_refused_says_so_and_does_not_blame_the_permissions(user: CliFixture) -> None:
    refused = build_event(
        "one",
        annotations={DECISION: "allow", REASON: "owner of the object", REFUSED_BY: "admission/enforce-allow-lists"},
        responseStatus={"code": 403, "reason": "Forbidden", "message": "the project does not allow the cluster"},
    )
    user.fake.on("GET", EVENTS, page(refused))
    user.fake.on("GET", f"{EVENTS}/one", (200, refused))
    listed = user.run("audit", "--denied").out.splitlines()[1].split()
    assert listed[-4:] == ["403", "allow", "admission/enforce-allow-lists", "one"]
    shown = user.run("audit", "show", "one").out
    assert "refused by   admission/enforce-allow-lists" in shown
    assert "does not allow the cluster" in shown and "who-can" not in shown
