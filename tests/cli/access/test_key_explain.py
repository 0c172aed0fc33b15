"""`fairlead key explain`: a verdict, the path to it, and an exit code to go by."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure

OWN, ANYBODYS = f"{M}/selfsubjectaccessreviews", f"{M}/subjectaccessreviews"

YES = {
    "allowed": True,
    "reason": "project demo is in the scope",
    "path": [
        {"step": "scope", "verdict": "no opinion", "reason": "inside: project demo"},
        {"step": "roles", "verdict": "allow", "reason": "ClusterRole edit"},
        {"step": "owners", "verdict": "not evaluated"},
    ],
}
NO = {"allowed": False, "path": [{"step": "scope", "verdict": "deny", "reason": "apps are outside"}]}


@pytest.fixture
def explaining(user: CliFixture) -> CliFixture:
    resource = {"resource": "apps", "singularResource": "app", "responseKind": {"kind": "App"}, "scope": "Namespaced"}
    cluster = {"resource": "clusters", "scope": "Cluster"}
    resources = [each | {"verbs": ["create", "get"]} for each in (resource, cluster)]
    group = {"metadata": {"name": "management.service.sh"}, "versions": [{"version": "v1", "resources": resources}]}
    user.fake.on("GET", "/kubernetes/management/api", (200, {"items": []}))
    user.fake.on("GET", "/kubernetes/management/apis", (200, {"items": [group]}))
    user.fake.on("POST", OWN, (201, {"status": YES}))
    return user


def asked(cli: CliFixture, path: str = OWN) -> dict[str, Any]:
    body: dict[str, Any] = cli.fake.asked("POST", path)[-1].body
    return body


def test_the_path_of_the_decision_is_shown(explaining: CliFixture) -> None:
    ended = explaining.type("key", "explain", "ci", "--verb", "create", "--resource", "app", "--project", "demo")
    assert ended.code == 0, ended.err
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines == [
        "ci may create apps.management.service.sh in service-p-demo",
        "project demo is in the scope",
        "",
        "AUTHORIZER VERDICT REASON",
        "scope no opinion inside: project demo",
        "roles allow ClusterRole edit",
        "owners not evaluated -",
    ]
    attributes = {
        "verb": "create",
        "group": "management.service.sh",
        "resource": "apps",
        "namespace": "service-p-demo",
    }
    assert asked(explaining) == {"spec": {"accessKey": "ci", "resourceAttributes": attributes}}


def test_no_ends_with_one_like_kubectl_auth_can_i(explaining: CliFixture) -> None:
    explaining.fake.on("POST", OWN, (201, {"status": NO}))
    flags = ("--verb", "get", "--resource", "apps/status", "--name", "x", "-n", "ns")
    ended = explaining.type("key", "explain", "ci", *flags)
    assert ended.code == 1
    assert ended.out.startswith("ci may not get apps.management.service.sh/status x in ns\napps are outside\n")
    assert ended.err == ""
    assert asked(explaining)["spec"]["resourceAttributes"]["subresource"] == "status"
    printed = explaining.type("key", "explain", "ci", *flags, "-o", "json")
    assert (printed.code, json.loads(printed.out)) == (1, NO)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--verb", "gte", "--resource", "apps"), "apps.management.service.sh has no verb 'gte'; it has create, get"),
        (("--verb", "get", "--resource", "clusters", "-n", "ns"), "clusters.management.service.sh is cluster-scoped"),
    ],
)
def test_what_looks_like_a_slip_is_remarked_on(explaining: CliFixture, flags: tuple[str, ...], words: str) -> None:
    ended = explaining.type("key", "explain", "ci", *flags)
    assert (ended.code, words in ended.err) == (0, True)


@pytest.mark.parametrize("verb", ["get", "bind"])
def test_a_sound_question_is_not_remarked_on(explaining: CliFixture, verb: str) -> None:
    assert explaining.type("key", "explain", "ci", "--verb", verb, "--resource", "clusters").err == ""


def test_a_question_without_a_namespace_is_about_all_of_them(explaining: CliFixture) -> None:
    everywhere = explaining.type("key", "explain", "ci", "--verb", "get", "--resource", "apps").out
    assert everywhere.startswith("ci may get apps.management.service.sh in all namespaces\n")
    nowhere = explaining.type("key", "explain", "ci", "--verb", "get", "--resource", "clusters").out
    assert nowhere.startswith("ci may get clusters.management.service.sh\n")


def test_a_path_can_be_asked_about(explaining: CliFixture) -> None:
    assert explaining.type("key", "explain", "ci", "--verb", "get", "--path", "/metrics").code == 0
    assert asked(explaining)["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


def test_somebody_elses_key_is_asked_about_as_an_administrator(explaining: CliFixture) -> None:
    explaining.fake.on("POST", OWN, (403, failure(403, "Forbidden", "not yours")))
    explaining.fake.on("POST", ANYBODYS, (201, {"status": YES}))
    assert explaining.type("key", "explain", "bobs", "--verb", "get", "--resource", "apps").code == 0
    assert asked(explaining, ANYBODYS)["spec"]["accessKey"] == "bobs"
    explaining.fake.on("POST", ANYBODYS, (403, failure(403, "Forbidden", "you may not review access")))
    refused = explaining.type("key", "explain", "bobs", "--verb", "get", "--resource", "apps")
    assert refused.code == 1
    assert "fairlead: you may not review access" in refused.err


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        ((), "set either a resource or a path"),
        (("--resource", "apps", "--path", "/x"), "set either a resource or a path"),
        (("--path", "/x", "-n", "ns"), "a path has neither name nor namespace"),
        (("--path", "metrics"), "a path starts with a slash, like /metrics"),
        (("--resource", "apps", "-n", "a", "--project", "b"), "--namespace and --project are mutually exclusive"),
    ],
)
def test_a_question_without_sense_is_a_usage_error(explaining: CliFixture, flags: tuple[str, ...], advice: str) -> None:
    ended = explaining.type("key", "explain", "ci", "--verb", "get", *flags)
    assert ended.code == 2
    assert advice in ended.err


def test_a_resource_that_does_not_exist_is_not_answered_with_no(explaining: CliFixture) -> None:
    ended = explaining.type("key", "explain", "ci", "--verb", "get", "--resource", "pods")
    assert ended.code == 1
    assert "the server has no resource 'pods'" in ended.err
    assert not explaining.fake.asked("POST", OWN)
