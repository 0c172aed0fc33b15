"""`fairlead space`: spaces made in connected clusters, waited for, used and deleted."""

from typing import Any

import pytest

from tests.client.test_watch import END, lines
from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import KEY, M, failure, named

PLACE = f"{M}/namespaces/service-p-demo/spaceinstances"
CREATE = ("space", "create", "dev", "--project", "demo", "--cluster", "berlin")


def space(namespace: str = "", **status: Any) -> dict[str, Any]:
    place = {"cluster": "berlin"} | ({"namespace": namespace} if namespace else {})
    made = named("dev", kind="SpaceInstance", spec={"clusterRef": place}, status=status)
    made["metadata"] |= {"uid": "1", "namespace": "service-p-demo"}
    return made


@pytest.fixture
def ada(user: CliFixture) -> CliFixture:
    user.fake.on("POST", PLACE, (201, space()))
    user.fake.on("GET", f"{PLACE}/dev", (200, space("demo-dev")))
    user.fake.on("DELETE", f"{PLACE}/dev", (200, space()))
    return user


def test_a_space_is_made_in_a_cluster_with_what_was_said_and_nothing_else(ada: CliFixture) -> None:
    flags = ("--template", "small@1.x.x", "--parameter", "size=3", "--namespace", "ours", "--display-name", "Dev")
    assert ada.type(*CREATE, *flags, "--description", "To try things", "-o", "name").out == "spaceinstance/dev\n"
    ended = ada.type(*CREATE)
    assert ended.code == 0
    assert "`fairlead space kubeconfig dev --project demo`" in ended.err
    first, second = (each.body["spec"] for each in ada.fake.asked("POST", PLACE))
    assert parse_yaml(first.pop("parameters")) == {"size": "3"}
    assert first == {
        "displayName": "Dev",
        "description": "To try things",
        "clusterRef": {"cluster": "berlin", "namespace": "ours"},
        "templateRef": {"name": "small", "version": "1.x.x"},
    }
    assert second == {"clusterRef": {"cluster": "berlin"}}


def test_a_space_is_waited_for(ada: CliFixture) -> None:
    ready = {"type": "MODIFIED", "object": space("demo-dev", phase="Ready")}
    ada.fake.on("GET", PLACE, lines({"type": "ADDED", "object": space()}, END, ready))
    ended = ada.type(*CREATE, "--wait")
    assert ended.code == 0
    assert "dev is Pending" in ended.err
    assert "the space dev is Ready" in ended.err


def test_a_space_that_cannot_come_up_is_a_failure_with_its_reason(ada: CliFixture) -> None:
    failed = space(phase="Failed", reason="NamespaceConflict", message="choose another")
    ada.fake.on("GET", PLACE, lines({"type": "ADDED", "object": failed}, END))
    ended = ada.type(*CREATE, "--wait")
    assert ended.code == 1
    assert "the space dev is Failed (NamespaceConflict: choose another)" in ended.err
    assert "space kubeconfig" not in ended.err


def test_a_context_leads_into_the_namespace_of_the_space(ada: CliFixture) -> None:
    by_flag = ada.type("kubeconfig", "--space", "demo/dev", "-o", "-")
    by_command = ada.type("space", "kubeconfig", "dev", "--project", "demo", "-o", "-")
    assert (by_command.code, by_command.out) == (0, by_flag.out)
    config = parse_yaml(by_command.out)
    assert config["clusters"][0]["cluster"]["server"] == f"{ada.fake.url}/kubernetes/project/demo/space/dev"
    assert config["contexts"][0]["context"]["namespace"] == "demo-dev"
    assert config["current-context"] == "fairlead-test-space-demo/dev"
    assert config["users"][0]["user"] == {"token": KEY}


def test_a_space_without_a_namespace_has_no_context_yet(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{PLACE}/dev", (200, space()))
    ended = ada.type("space", "kubeconfig", "dev", "--project", "demo", "-o", "-")
    assert (ended.code, ended.out) == (1, "")
    assert "no namespace in a cluster yet; `fairlead space list --project demo`" in ended.err


def test_a_deletion_is_asked_about_and_waited_for(ada: CliFixture) -> None:
    assert ada.type("space", "delete", "dev", "--project", "demo").code == 2
    assert ada.fake.asked("DELETE", f"{PLACE}/dev") == []
    going = space(reason="Deleting", message="waiting for the namespace demo-dev")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ada.fake.on("GET", PLACE, lines({"type": "ADDED", "object": going}, END, {"type": "DELETED", "object": going}))
    ended = ada.type("space", "delete", "dev", "--project", "demo", "--yes")
    assert "waiting for the namespace demo-dev" in ended.err
    assert ended.err.endswith("the space dev is deleted\n")
    assert "being deleted" in ada.type("space", "delete", "dev", "--project", "demo", "--yes", "--no-wait").err


def test_a_space_that_may_not_be_made_is_told(ada: CliFixture) -> None:
    ada.fake.on("POST", PLACE, (403, failure(403, "Forbidden", "the project does not allow the cluster berlin")))
    ended = ada.type(*CREATE)
    assert (ended.code, "does not allow the cluster berlin" in ended.err) == (1, True)


def test_waiting_ends_in_time_and_says_what_for(ada: CliFixture) -> None:
    waiting = space(
        "demo-dev", phase="Pending", reason="Progressing", message="its namespace is being created or updated"
    )
    ada.fake.on("GET", PLACE, lines({"type": "ADDED", "object": waiting}, END), lines())
    ended = ada.type(*CREATE, "--wait", "--timeout", "1s")
    assert ended.code == 1
    assert (
        "the space dev is still Pending (Progressing: its namespace is being created or updated) after 1s" in ended.err
    )
    assert "--timeout" in ended.err
    assert {each.query["timeoutSeconds"] for each in ada.fake.asked("GET", PLACE)} == {"1"}


def test_a_status_about_an_older_generation_settles_nothing(ada: CliFixture) -> None:
    old, new = (space("demo-dev", phase="Ready", observedGeneration=each) for each in (1, 2))
    for each in (old, new):
        each["metadata"]["generation"] = 2
    ada.fake.on("GET", PLACE, lines({"type": "ADDED", "object": old}, END, {"type": "MODIFIED", "object": new}))
    ended = ada.type(*CREATE, "--wait", "-o", "json")
    assert ended.code == 0
    assert parse_yaml(ended.out)["status"]["observedGeneration"] == 2


def test_a_timeout_that_is_no_time_is_refused_before_anything_is_made(ada: CliFixture) -> None:
    ended = ada.type(*CREATE, "--wait", "--timeout", "soon")
    assert ended.code == 2
    assert "'soon' is not a duration" in ended.err
    assert ada.fake.asked("POST", PLACE) == []


def test_a_space_can_be_given_up_with_what_it_has_in_its_cluster(ada: CliFixture) -> None:
    ada.fake.on("PATCH", f"{PLACE}/dev", (200, space()))
    ada.fake.on("GET", PLACE, lines(END))
    ended = ada.type("space", "delete", "dev", "--project", "demo", "--yes", "--abandon")
    assert ended.code == 0
    (change,) = ada.fake.asked("PATCH", f"{PLACE}/dev")
    assert change.body == {"metadata": {"annotations": {"service.sh/abandon": "true"}}}
    assert len(ada.fake.asked("DELETE", f"{PLACE}/dev")) == 1
    assert "the namespace demo-dev in the cluster berlin was left behind" in ended.err
