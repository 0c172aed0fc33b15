"""fairlead.cli.resources.runner: runners and their access keys."""

import json

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status, list_response

RUNNERS = f"{M}/runners"
ACCESS_KEY = {"kind": "RunnerAccessKey", "accessKey": "fairlead_runner-key"}


@pytest.fixture
def admin(user: CliFixture) -> CliFixture:
    user.fake.on("POST", RUNNERS, lambda request: (201, request.body))
    user.fake.on("GET", f"{RUNNERS}/one/accesskey", (200, ACCESS_KEY))
    user.fake.on("POST", f"{RUNNERS}/one/rotatekey", (201, ACCESS_KEY))
    return user


def test_create_sends_only_the_given_flags(admin: CliFixture) -> None:
    flags = ("--display-name", "One", "--description", "the first", "--endpoint", "one.example.com", "--unusable")
    result = admin.run("runner", "create", "one", *flags)
    assert (result.code, result.out) == (0, "")
    assert "`fairlead runner key one` prints its access key" in result.err
    assert admin.run("runner", "create", "two").code == 0
    assert [each.body for each in admin.fake.requests_to("POST", RUNNERS)] == [
        {
            "apiVersion": "management.service.sh/v1",
            "kind": "Runner",
            "metadata": {"name": "one"},
            "spec": {
                "displayName": "One",
                "description": "the first",
                "endpoint": "one.example.com",
                "unusable": True,
            },
        },
        {"apiVersion": "management.service.sh/v1", "kind": "Runner", "metadata": {"name": "two"}, "spec": {}},
    ]


def test_runners_are_listed(admin: CliFixture) -> None:
    silent = {"type": "Ready", "status": "Unknown", "reason": "Silent", "message": "since 10:00"}
    status = {"phase": "Initialized", "conditions": [silent]}
    two = build_object("two", spec={"endpoint": "two.example.com", "unusable": True}, status=status)
    admin.fake.on("GET", RUNNERS, list_response(build_object("one"), two))
    header, *lines = (line.split() for line in admin.run("runner", "list").out.splitlines())
    assert header == ["NAME", "PHASE", "STATUS", "ENDPOINT", "UNUSABLE", "AGE"]
    assert [line[:5] for line in lines] == [
        ["one", "-", "-", "-", "false"],
        ["two", "Initialized", "Silent", "two.example.com", "true"],
    ]
    assert len(json.loads(admin.run("runner", "list", "-o", "json").out)["items"]) == 2


def test_create_names_the_cluster_that_the_server_deploys_the_runner_into(admin: CliFixture) -> None:
    admin.fake.on("POST", RUNNERS, (201, {}))
    result = admin.run("runner", "create", "one", "--cluster", "berlin", "--namespace", "builders")
    assert (result.code, "the server deploys it into the cluster berlin" in result.out + result.err) == (0, True)
    (request,) = admin.fake.requests_to("POST", RUNNERS)
    assert request.body["spec"] == {"clusterRef": {"cluster": "berlin", "namespace": "builders"}}


def test_a_namespace_without_a_cluster_is_an_error(admin: CliFixture) -> None:
    result = admin.run("runner", "create", "one", "--namespace", "builders")
    assert (result.code, "add --cluster" in result.err) == (2, True)
    assert admin.fake.requests_to("POST", RUNNERS) == []


def test_an_empty_list_suggests_the_create_command(admin: CliFixture) -> None:
    admin.fake.on("GET", RUNNERS, list_response())
    assert "`fairlead runner create`" in "".join((admin.run("runner", "list").out, admin.run("runner", "list").err))


def test_the_key_is_the_only_output_on_stdout(admin: CliFixture) -> None:
    assert admin.run("runner", "key", "one").out == "fairlead_runner-key\n"
    assert json.loads(admin.run("runner", "key", "one", "-o", "json").out) == ACCESS_KEY


def test_a_forbidden_request_is_reported_with_its_message(admin: CliFixture) -> None:
    admin.fake.on("GET", f"{RUNNERS}/one/accesskey", (403, failure_status(403, "Forbidden", "not for you")))
    result = admin.run("runner", "key", "one")
    assert (result.code, result.out) == (1, "")
    assert "not for you" in result.err


def test_a_response_without_a_key_is_an_error(admin: CliFixture) -> None:
    admin.fake.on("GET", f"{RUNNERS}/one/accesskey", (200, {}))
    result = admin.run("runner", "key", "one")
    assert (result.code, result.out) == (1, "")
    assert "did not return a key" in result.err


def test_a_key_is_rotated_at_once_or_with_an_overlap(admin: CliFixture) -> None:
    result = admin.run("runner", "rotate-key", "one")
    assert result.out == "fairlead_runner-key\n"
    assert "the old key is revoked" in result.err
    result = admin.run("runner", "rotate-key", "one", "--overlap", "1h")
    assert "the old key stays valid for 1h" in result.err
    assert [each.body for each in admin.fake.requests_to("POST", f"{RUNNERS}/one/rotatekey")] == [
        {"spec": {}},
        {"spec": {"overlapSeconds": 3600}},
    ]
