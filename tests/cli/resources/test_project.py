"""fairlead.cli.resources.project: projects created, shown, listed with their members, and deleted."""

import json
from typing import Any

import pytest

from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status
from tests.harness.watch_responses import END, build_watch_response

PROJECTS = f"{M}/projects"
MEMBERS = [{"kind": "User", "name": "ada", "clusterRole": "admin"}, {"kind": "Team", "name": "ops"}]
DEMO = build_object("demo", kind="Project", spec={"displayName": "Demo", "owner": {"team": "ops"}, "members": MEMBERS})


@pytest.fixture
def ada(user: CliFixture) -> CliFixture:
    user.fake.on("POST", PROJECTS, lambda request: (201, request.body))
    user.fake.on("GET", f"{PROJECTS}/demo", (200, build_project()))
    user.fake.on("DELETE", f"{PROJECTS}/demo", (200, build_project()))
    return user


def build_project(uid: str = "1", waiting: str = "") -> dict[str, Any]:
    metadata = {**DEMO["metadata"], "uid": uid}
    if not waiting:
        ready = {"type": "Ready", "status": "True", "reason": "NamespaceReady", "message": "the namespace is there"}
        return {**DEMO, "metadata": metadata, "status": {"conditions": [ready]}}
    ready = {"type": "Ready", "status": "False", "reason": "Deleting", "message": waiting}
    metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    return {**DEMO, "metadata": metadata, "status": {"conditions": [ready]}}


def test_create_sends_the_given_flags(ada: CliFixture) -> None:
    clusters = ("--allow-cluster", "berlin", "--allow-cluster", "oslo")
    flags = ("--display-name", "Demo", "--description", "to try", "--owner", "Team:ops")
    result = ada.run(
        "project", "create", "demo", *flags, "--member", "user:ada:service:own", "--member", "Team:*", *clusters
    )
    assert (result.code, result.out) == (0, "")
    assert "with the namespace service-p-demo" in result.err
    (request,) = ada.fake.requests_to("POST", PROJECTS)
    assert request.body["spec"] == {
        "displayName": "Demo",
        "description": "to try",
        "owner": {"team": "ops"},
        "members": [{"kind": "User", "name": "ada", "clusterRole": "service:own"}, {"kind": "Team", "name": "*"}],
        "allowedClusters": [{"name": "berlin"}, {"name": "oslo"}],
    }
    assert ada.run("project", "create", "two", "--owner", "ada", "-o", "name").out == "project/two\n"
    assert ada.fake.requests_to("POST", PROJECTS)[1].body["spec"] == {"owner": {"user": "ada"}}


@pytest.mark.parametrize(("cluster", "named"), [("oslo", "the cluster oslo"), ("*", "all clusters")])
def test_a_cluster_is_added_to_those_that_a_project_may_use(ada: CliFixture, cluster: str, named: str) -> None:
    stored = build_project()
    stored["spec"] = {**stored["spec"], "allowedClusters": [{"name": "berlin"}]}
    ada.fake.on("GET", f"{PROJECTS}/demo", (200, stored))
    ada.fake.on("PATCH", f"{PROJECTS}/demo", (200, stored))
    assert ada.run("project", "allow-cluster", "demo", "berlin").err == (
        "the members of the project demo already can use the cluster berlin\n"
    )
    assert ada.fake.requests_to("PATCH", f"{PROJECTS}/demo") == []
    everything = {**stored, "spec": {**stored["spec"], "allowedClusters": [{"name": "*"}]}}
    ada.fake.on("GET", f"{PROJECTS}/demo", (200, everything))
    assert "already can use" in ada.run("project", "allow-cluster", "demo", cluster).err
    ada.fake.on("GET", f"{PROJECTS}/demo", (200, stored))
    result = ada.run("project", "allow-cluster", "demo", cluster)
    assert (result.code, result.err) == (0, f"the members of the project demo can now use {named}\n")
    (request,) = ada.fake.requests_to("PATCH", f"{PROJECTS}/demo")
    assert request.body["spec"] == {"allowedClusters": [{"name": "berlin"}, {"name": cluster}]}


@pytest.mark.parametrize("flags", [("--member", "ada"), ("--member", "Robot:r2"), ("--owner", "Team:")])
def test_an_invalid_member_or_owner_creates_no_project(ada: CliFixture, flags: tuple[str, str]) -> None:
    result = ada.run("project", "create", "demo", *flags)
    assert result.code == 2
    assert "use the format" in result.err
    assert ada.fake.requests_to("POST", PROJECTS) == []


def test_a_project_is_shown_with_its_members_and_quotas(ada: CliFixture) -> None:
    quotas = {"project": {"limit": {"spaceinstances": "5"}, "used": {"spaceinstances": "2"}}}
    project = build_project() | {"status": {"quotas": quotas}}
    ada.fake.on("GET", f"{PROJECTS}/demo", (200, project))
    out = ada.run("project", "show", "demo").out
    for text in ("service-p-demo", "team ops", "user ada (admin)", "team ops (viewer)", "spaceinstances: 2 of 5"):
        assert text in out
    assert ada.run("project", "show", "demo", "-o", "name").out == "project/demo\n"


def test_members_are_listed_with_their_roles(ada: CliFixture) -> None:
    members = {
        "kind": "ProjectMembers",
        "users": [{"info": {"name": "ada", "displayName": "Ada L."}}, {"info": {"name": "bob"}}],
        "teams": [{"info": {"name": "ops"}}],
    }
    ada.fake.on("GET", f"{PROJECTS}/demo/members", (200, members))
    lines = ada.run("project", "members", "demo").out.splitlines()[1:]
    assert [line.split("   ")[0].split()[0] for line in lines] == ["user", "user", "team"]
    assert "admin" in lines[0] and "Ada L." in lines[0]
    assert "through a team" in lines[1]
    assert "owner, viewer" in lines[2]
    assert ada.run("project", "members", "demo", "-o", "name").out == "user/ada\nuser/bob\nteam/ops\n"
    assert json.loads(ada.run("project", "members", "demo", "-o", "json").out) == members


def test_delete_prints_what_it_waits_for_until_the_project_is_deleted(ada: CliFixture) -> None:
    waiting = [
        {"type": "MODIFIED", "object": build_project(waiting=f"waiting for {what}")} for what in ("1 space", "a secret")
    ]
    gone = {"type": "DELETED", "object": build_project()}
    ada.fake.on(
        "GET",
        PROJECTS,
        build_watch_response({"type": "ADDED", "object": build_project()}, END, *waiting, waiting[1], gone),
    )
    result = ada.run("project", "delete", "demo", "--yes", "-v")
    assert result.err.splitlines() == [
        "waiting for demo to be deleted",
        "waiting for 1 space",
        "waiting for a secret",
        "the project demo is deleted, with everything in it",
    ]
    assert ada.fake.requests_to("GET", PROJECTS)[0].query["fieldSelector"] == "metadata.name=demo"


@pytest.mark.parametrize("initial_events", [[], [{"type": "ADDED", "object": build_project(uid="another")}]])
def test_delete_does_not_wait_for_a_project_that_no_longer_exists(ada: CliFixture, initial_events: list[Any]) -> None:
    ada.fake.on("GET", PROJECTS, build_watch_response(*initial_events, END))
    assert "the project demo is deleted" in ada.run("project", "delete", "demo", "--yes").err


def test_delete_with_no_wait_does_not_watch(ada: CliFixture) -> None:
    result = ada.run("project", "delete", "demo", "--yes", "--no-wait")
    assert "`fairlead project show demo` shows what it is waiting for" in result.err
    assert ada.fake.requests_to("GET", PROJECTS) == []


def test_delete_needs_a_confirmation(ada: CliFixture) -> None:
    assert ada.run("project", "delete", "demo").code == 2
    ada.use_terminal()
    assert ada.run("project", "delete", "demo", stdin="n\n").code == 2
    assert ada.fake.requests_to("DELETE", f"{PROJECTS}/demo") == []


def test_a_forbidden_deletion_is_an_error(ada: CliFixture) -> None:
    ada.fake.on("DELETE", f"{PROJECTS}/demo", (403, failure_status(403, "Forbidden", "not yours")))
    result = ada.run("project", "delete", "demo", "--yes")
    assert (result.code, "not yours" in result.err) == (1, True)
