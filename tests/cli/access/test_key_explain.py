"""`fairlead key explain` of fairlead.cli.access.permissions: the verdict of each authorizer, and the exit code."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure_status

SELF_REVIEWS, REVIEWS = f"{M}/selfsubjectaccessreviews", f"{M}/subjectaccessreviews"

ALLOWED = {
    "allowed": True,
    "reason": "project demo is in the scope",
    "path": [
        {"step": "scope", "verdict": "no opinion", "reason": "inside: project demo"},
        {"step": "roles", "verdict": "allow", "reason": "ClusterRole edit"},
        {"step": "owners", "verdict": "not evaluated"},
    ],
}
FILTERED = {
    "allowed": False,
    "filtered": True,
    "reason": "not all objects",
    "path": [{"step": "lists", "verdict": "deny", "reason": "not all objects"}],
}
DENIED = {"allowed": False, "path": [{"step": "scope", "verdict": "deny", "reason": "apps are outside"}]}


@pytest.fixture
def review_cli(user: CliFixture) -> CliFixture:
    resource = {"resource": "apps", "singularResource": "app", "responseKind": {"kind": "App"}, "scope": "Namespaced"}
    cluster = {"resource": "clusters", "scope": "Cluster"}
    resources = [each | {"verbs": ["create", "get"]} for each in (resource, cluster)]
    group = {"metadata": {"name": "management.service.sh"}, "versions": [{"version": "v1", "resources": resources}]}
    user.fake.on("GET", "/kubernetes/management/api", (200, {"items": []}))
    user.fake.on("GET", "/kubernetes/management/apis", (200, {"items": [group]}))
    user.fake.on("POST", SELF_REVIEWS, (201, {"status": ALLOWED}))
    user.fake.on("GET", f"{M}/ownedaccesskeys/ci", (200, {"metadata": {"name": "ci"}}))
    return user


def get_last_review(cli: CliFixture, path: str = SELF_REVIEWS) -> dict[str, Any]:
    body: dict[str, Any] = cli.fake.requests_to("POST", path)[-1].body
    return body


def test_the_verdict_of_each_authorizer_is_shown(review_cli: CliFixture) -> None:
    result = review_cli.run("key", "explain", "ci", "--verb", "create", "--resource", "app", "--project", "demo")
    assert result.code == 0, result.err
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
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
    assert get_last_review(review_cli) == {"spec": {"accessKey": "ci", "resourceAttributes": attributes}}


def test_a_denial_exits_with_1_like_kubectl_auth_can_i(review_cli: CliFixture) -> None:
    review_cli.fake.on("POST", SELF_REVIEWS, (201, {"status": DENIED}))
    flags = ("--verb", "get", "--resource", "apps/status", "--name", "x", "-n", "ns")
    result = review_cli.run("key", "explain", "ci", *flags)
    assert result.code == 1
    assert result.out.startswith("ci may not get apps.management.service.sh/status x in ns\napps are outside\n")
    assert result.err == ""
    assert get_last_review(review_cli)["spec"]["resourceAttributes"]["subresource"] == "status"
    result = review_cli.run("key", "explain", "ci", *flags, "-o", "json")
    assert (result.code, json.loads(result.out)) == (1, DENIED)


def test_a_list_that_succeeds_with_a_part_of_the_objects_is_a_yes_that_says_so(review_cli: CliFixture) -> None:
    review_cli.fake.on("POST", SELF_REVIEWS, (201, {"status": FILTERED}))
    flags = ("--verb", "list", "--resource", "apps", "--project", "demo")
    result = review_cli.run("key", "explain", "ci", *flags)
    answer = "ci may list apps.management.service.sh in service-p-demo, filtered: only the objects that it may get"
    assert (result.code, result.out.splitlines()[0].rstrip()) == (0, answer)
    result = review_cli.run("key", "explain", "ci", *flags, "-o", "json")
    assert (result.code, json.loads(result.out)) == (0, FILTERED)


@pytest.mark.parametrize(
    ("flags", "is_for_all"),
    [
        (("--verb", "get", "--resource", "apps"), True),
        (("--verb", "get", "--resource", "apps", "--name", "x"), False),
        (("--verb", "create", "--resource", "apps"), False),
        (("--verb", "get", "--path", "/metrics"), False),
    ],
)
def test_a_no_without_a_name_says_that_it_is_about_all_objects(
    review_cli: CliFixture, flags: tuple[str, ...], is_for_all: bool
) -> None:
    review_cli.fake.on("POST", SELF_REVIEWS, (201, {"status": DENIED}))
    result = review_cli.run("key", "explain", "ci", *flags)
    assert (result.code, "the answer is for all objects; add --name" in result.err) == (1, is_for_all)


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        (("--verb", "gte", "--resource", "apps"), "apps.management.service.sh has no verb 'gte'; it has create, get"),
        (("--verb", "get", "--resource", "clusters", "-n", "ns"), "clusters.management.service.sh is cluster-scoped"),
    ],
)
def test_an_unknown_verb_or_a_needless_namespace_gets_a_warning(
    review_cli: CliFixture, flags: tuple[str, ...], warning: str
) -> None:
    result = review_cli.run("key", "explain", "ci", *flags)
    assert (result.code, warning in result.err) == (0, True)


@pytest.mark.parametrize("verb", ["get", "bind"])
def test_a_valid_question_gets_no_warning(review_cli: CliFixture, verb: str) -> None:
    assert review_cli.run("key", "explain", "ci", "--verb", verb, "--resource", "clusters").err == ""


def test_without_a_namespace_the_review_is_for_all_namespaces(review_cli: CliFixture) -> None:
    output = review_cli.run("key", "explain", "ci", "--verb", "get", "--resource", "apps").out
    assert output.startswith("ci may get apps.management.service.sh in all namespaces\n")
    output = review_cli.run("key", "explain", "ci", "--verb", "get", "--resource", "clusters").out
    assert output.startswith("ci may get clusters.management.service.sh\n")


def test_a_non_resource_path_can_be_reviewed(review_cli: CliFixture) -> None:
    assert review_cli.run("key", "explain", "ci", "--verb", "get", "--path", "/metrics").code == 0
    assert get_last_review(review_cli)["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


def test_keys_of_other_users_are_reviewed_with_a_subject_access_review(review_cli: CliFixture) -> None:
    review_cli.fake.on("POST", SELF_REVIEWS, (403, failure_status(403, "Forbidden", "not yours")))
    review_cli.fake.on("POST", REVIEWS, (201, {"status": ALLOWED}))
    assert review_cli.run("key", "explain", "bobs", "--verb", "get", "--resource", "apps").code == 0
    assert get_last_review(review_cli, REVIEWS)["spec"]["accessKey"] == "bobs"
    review_cli.fake.on("POST", REVIEWS, (403, failure_status(403, "Forbidden", "you may not review access")))
    result = review_cli.run("key", "explain", "bobs", "--verb", "get", "--resource", "apps")
    assert result.code == 1
    assert "fairlead: you may not review access" in result.err


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        ((), "set either --resource, such as --resource apps, or --path"),
        (("--resource", "apps", "--path", "/x"), "set either --resource, such as --resource apps, or --path"),
        (("--path", "/x", "-n", "ns"), "a path has neither name nor namespace"),
        (("--path", "metrics"), "a path starts with a slash, like /metrics"),
        (("--resource", "apps", "-n", "a", "--project", "b"), "--namespace and --project are mutually exclusive"),
    ],
)
def test_contradicting_flags_are_a_usage_error(review_cli: CliFixture, flags: tuple[str, ...], advice: str) -> None:
    result = review_cli.run("key", "explain", "ci", "--verb", "get", *flags)
    assert result.code == 2
    assert advice in result.err


def test_an_unknown_resource_is_an_error_and_not_a_denial(review_cli: CliFixture) -> None:
    result = review_cli.run("key", "explain", "ci", "--verb", "get", "--resource", "pods")
    assert result.code == 1
    assert "the server has no resource 'pods'" in result.err
    assert not review_cli.fake.requests_to("POST", SELF_REVIEWS)


def test_a_key_that_does_not_exist_is_another_error_than_a_denial(review_cli: CliFixture) -> None:
    review_cli.fake.on("POST", SELF_REVIEWS, (201, {"status": DENIED}))
    review_cli.fake.on("GET", f"{M}/ownedaccesskeys/cii", (404, failure_status(404, "NotFound", "no")))
    result = review_cli.run("key", "explain", "cii", "--verb", "create", "--resource", "app")
    assert (result.code, "there is no access key cii" in result.err) == (2, True)
