"""`fairlead space`: spaces created in connected clusters, waited for, used with kubectl, and deleted."""

from typing import Any

import pytest

from tests.harness.cli import CliFixture, parse_yaml
from tests.harness.fake_server import KEY, M, build_object, failure_status
from tests.harness.watch_responses import END, build_watch_response

SPACES = f"{M}/namespaces/service-p-demo/spaceinstances"
TEMPLATES = f"{M}/projects/demo/templates"
CREATE = ("space", "create", "dev", "--project", "demo", "--cluster", "berlin")


def build_space(namespace: str = "", **status: Any) -> dict[str, Any]:
    cluster_ref = {"cluster": "berlin"} | ({"namespace": namespace} if namespace else {})
    space = build_object("dev", kind="SpaceInstance", spec={"clusterRef": cluster_ref}, status=status)
    space["metadata"] |= {"uid": "1", "namespace": "service-p-demo"}
    return space


@pytest.fixture
def ada(user: CliFixture) -> CliFixture:
    user.fake.on("GET", TEMPLATES, (200, {}))
    user.fake.on("POST", SPACES, (201, build_space()))
    user.fake.on("GET", f"{SPACES}/dev", (200, build_space("demo-dev")))
    user.fake.on("DELETE", f"{SPACES}/dev", (200, build_space()))
    return user


def test_create_sends_only_the_given_flags(ada: CliFixture) -> None:
    flags = ("--template", "small@1.x.x", "--parameter", "size=3", "--namespace", "ours", "--display-name", "Dev")
    assert ada.run(*CREATE, *flags, "--description", "To try things", "-o", "name").out == "spaceinstance/dev\n"
    result = ada.run(*CREATE)
    assert result.code == 0
    assert "`fairlead space kubeconfig dev --project demo`" in result.err
    first, second = (each.body["spec"] for each in ada.fake.requests_to("POST", SPACES))
    assert parse_yaml(first.pop("parameters")) == {"size": "3"}
    assert first == {
        "displayName": "Dev",
        "description": "To try things",
        "clusterRef": {"cluster": "berlin", "namespace": "ours"},
        "templateRef": {"name": "small", "version": "1.x.x"},
    }
    assert second == {"clusterRef": {"cluster": "berlin"}}


@pytest.mark.parametrize(
    ("templates", "chosen"),
    [
        ({"defaultSpaceTemplate": "small", "spaceTemplates": [build_object("default")]}, {"name": "small"}),
        ({"spaceTemplates": [build_object("other"), build_object("default")]}, {"name": "default"}),
        ({"spaceTemplates": [build_object("only")]}, {"name": "only"}),
        ({"spaceTemplates": [build_object("one"), build_object("two")]}, None),
        ({"virtualClusterTemplates": [build_object("default")]}, None),
    ],
)
def test_create_without_a_template_uses_the_default_or_the_only_one(
    ada: CliFixture, templates: dict[str, Any], chosen: dict[str, str] | None
) -> None:
    ada.fake.on("GET", TEMPLATES, (200, templates))
    assert ada.run(*CREATE).code == 0
    (request,) = ada.fake.requests_to("POST", SPACES)
    assert request.body["spec"].get("templateRef") == chosen


def test_a_user_who_may_not_list_templates_creates_a_space_without_one(ada: CliFixture) -> None:
    ada.fake.on("GET", TEMPLATES, (403, failure_status(403, "Forbidden", "no")))
    assert ada.run(*CREATE).code == 0
    assert "templateRef" not in ada.fake.requests_to("POST", SPACES)[0].body["spec"]


def test_a_failure_prints_each_reason_once(ada: CliFixture) -> None:
    message = "the namespace ours belongs to another space"
    conditions = [
        {"type": "Ready", "status": "False", "reason": "NamespaceConflict", "message": message},
        {"type": "NamespaceCreated", "status": "False", "reason": "NamespaceConflict", "message": message},
    ]
    failed = build_space(phase="Failed", reason="NamespaceConflict", message=message, conditions=conditions)
    ada.fake.on("GET", SPACES, build_watch_response({"type": "ADDED", "object": failed}, END))
    result = ada.run(*CREATE, "--wait")
    assert (result.code, result.err.count(message)) == (1, 1)
    assert "NamespaceCreated is False (NamespaceConflict)" in result.err


def test_create_with_wait_returns_when_the_space_is_ready(ada: CliFixture) -> None:
    ready = {"type": "MODIFIED", "object": build_space("demo-dev", phase="Ready")}
    ada.fake.on("GET", SPACES, build_watch_response({"type": "ADDED", "object": build_space()}, END, ready))
    result = ada.run(*CREATE, "--wait")
    (line,) = result.err.splitlines()
    assert (result.code, line.partition(";")[0]) == (0, "the space dev is Ready")
    assert "dev is Pending" in ada.run(*CREATE, "--wait", "-v").err


def test_a_failed_space_is_an_error_with_its_reason(ada: CliFixture) -> None:
    failed = build_space(phase="Failed", reason="NamespaceConflict", message="choose another")
    ada.fake.on("GET", SPACES, build_watch_response({"type": "ADDED", "object": failed}, END))
    result = ada.run(*CREATE, "--wait")
    assert result.code == 1
    assert result.err.splitlines()[:2] == [
        "fairlead: the space dev has failed:",
        "  Failed (NamespaceConflict: choose another)",
    ]
    assert "space kubeconfig" not in result.err


def test_a_context_has_the_namespace_of_the_space(ada: CliFixture) -> None:
    by_flag = ada.run("kubeconfig", "--space", "demo/dev", "-o", "-")
    by_command = ada.run("space", "kubeconfig", "dev", "--project", "demo", "-o", "-")
    assert (by_command.code, by_command.out) == (0, by_flag.out)
    config = parse_yaml(by_command.out)
    assert config["clusters"][0]["cluster"]["server"] == f"{ada.fake.url}/kubernetes/project/demo/space/dev"
    assert config["contexts"][0]["context"]["namespace"] == "demo-dev"
    assert config["current-context"] == "fairlead-test-space-demo-dev"
    assert config["users"][0]["user"] == {"token": KEY}


def test_a_space_without_a_namespace_has_no_context_yet(ada: CliFixture) -> None:
    ada.fake.on("GET", f"{SPACES}/dev", (200, build_space()))
    result = ada.run("space", "kubeconfig", "dev", "--project", "demo", "-o", "-")
    assert (result.code, result.out) == (1, "")
    assert "no namespace in a cluster yet; `fairlead space list --project demo`" in result.err


def test_delete_needs_a_confirmation_and_waits(ada: CliFixture) -> None:
    assert ada.run("space", "delete", "dev", "--project", "demo").code == 2
    assert ada.fake.requests_to("DELETE", f"{SPACES}/dev") == []
    deleting = build_space(reason="Deleting", message="waiting for the namespace demo-dev")
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ada.fake.on(
        "GET",
        SPACES,
        build_watch_response({"type": "ADDED", "object": deleting}, END, {"type": "DELETED", "object": deleting}),
    )
    result = ada.run("space", "delete", "dev", "--project", "demo", "--yes", "-v")
    assert "waiting for the namespace demo-dev" in result.err
    assert result.err.endswith("the space dev is deleted\n")
    assert "being deleted" in ada.run("space", "delete", "dev", "--project", "demo", "--yes", "--no-wait").err


def test_a_forbidden_creation_is_an_error(ada: CliFixture) -> None:
    ada.fake.on(
        "POST", SPACES, (403, failure_status(403, "Forbidden", "the project does not allow the cluster berlin"))
    )
    ada.fake.on("GET", f"{M}/projects/demo", (200, build_object("demo")))
    result = ada.run(*CREATE)
    assert (result.code, "does not allow the cluster berlin" in result.err) == (1, True)


def test_waiting_times_out_with_the_last_status(ada: CliFixture) -> None:
    waiting = build_space(
        "demo-dev", phase="Pending", reason="Progressing", message="its namespace is being created or updated"
    )
    ada.fake.on("GET", SPACES, build_watch_response({"type": "ADDED", "object": waiting}, END), build_watch_response())
    result = ada.run(*CREATE, "--wait", "--timeout", "1s")
    assert result.code == 1
    assert (
        "the space dev is still Pending (Progressing: its namespace is being created or updated) after 1s" in result.err
    )
    assert "--timeout" in result.err
    assert {each.query["timeoutSeconds"] for each in ada.fake.requests_to("GET", SPACES)} == {"1"}


def build_space_without_cluster() -> dict[str, Any]:
    message = 'cluster "nowhere" does not exist; connect it with `fairlead cluster add`, or use another one'
    return build_space(phase="Pending", reason="ClusterNotFound", message=message)


def test_waiting_for_a_space_in_a_missing_cluster_ends_early(ada: CliFixture) -> None:
    ada.patches.setattr("fairlead.cli.resources.instance.MISSING_CLUSTER_SECONDS", 1.0)
    missing = build_watch_response({"type": "ADDED", "object": build_space_without_cluster()}, END)
    ada.fake.on("GET", SPACES, missing, missing, build_watch_response())
    result = ada.run(*CREATE, "--wait", "--timeout", "10m")
    assert result.code == 1
    assert "fairlead: the space dev cannot be deployed:\n" in result.err
    assert 'ClusterNotFound: cluster "nowhere" does not exist; connect it with `fairlead cluster add`' in result.err
    assert "`fairlead space delete dev --project demo` deletes it" in result.err


def test_a_space_in_a_missing_cluster_that_is_deleted_meanwhile_is_reported_as_deleted(ada: CliFixture) -> None:
    missing = {"type": "ADDED", "object": build_space_without_cluster()}
    deleted = {"type": "DELETED", "object": build_space_without_cluster()}
    for responses in (((missing, END), (missing, END, deleted)), ((missing, END), (END,))):
        ada.fake.on("GET", SPACES, *(build_watch_response(*each) for each in responses))
        result = ada.run(*CREATE, "--wait")
        assert (result.code, "cannot be deployed" in result.err) == (1, False)
        assert "fairlead: the space dev was deleted while waiting; create it again\n" in result.err


def test_a_cluster_that_is_connected_meanwhile_does_not_end_the_wait(ada: CliFixture) -> None:
    missing = {"type": "ADDED", "object": build_space_without_cluster()}
    waiting = {"type": "MODIFIED", "object": build_space(phase="Pending", reason="Progressing")}
    ready = {"type": "ADDED", "object": build_space("demo-dev", phase="Ready")}
    responses = (build_watch_response(*each) for each in ((missing, END), (missing, END, waiting), (ready, END)))
    ada.fake.on("GET", SPACES, *responses)
    result = ada.run(*CREATE, "--wait")
    assert (result.code, "the space dev is Ready" in result.err) == (0, True), result.err


def test_a_status_of_an_older_generation_does_not_end_the_wait(ada: CliFixture) -> None:
    old, new = (build_space("demo-dev", phase="Ready", observedGeneration=each) for each in (1, 2))
    for each in (old, new):
        each["metadata"]["generation"] = 2
    ada.fake.on(
        "GET", SPACES, build_watch_response({"type": "ADDED", "object": old}, END, {"type": "MODIFIED", "object": new})
    )
    result = ada.run(*CREATE, "--wait", "-o", "json")
    assert result.code == 0
    assert parse_yaml(result.out)["status"]["observedGeneration"] == 2


def test_an_invalid_timeout_is_rejected_before_the_space_is_created(ada: CliFixture) -> None:
    result = ada.run(*CREATE, "--wait", "--timeout", "soon")
    assert result.code == 2
    assert "'soon' is not a duration" in result.err
    assert ada.fake.requests_to("POST", SPACES) == []


def test_delete_says_what_was_left_behind(ada: CliFixture) -> None:
    left = 'namespace "demo-dev" in cluster "berlin" was not deleted'
    conditions = [{"type": "SpaceReady", "status": "False", "reason": "Abandoned", "message": left}]
    last = {**build_space(), "status": {"conditions": conditions}}
    deleted = {"type": "DELETED", "object": last}
    ada.fake.on("GET", SPACES, build_watch_response({"type": "ADDED", "object": build_space()}, END, deleted))
    result = ada.run("space", "delete", "dev", "--project", "demo", "--yes")
    assert result.code == 1
    assert result.err == f"fairlead: the space dev is deleted, but not what it has deployed: {left}\n"
    ada.fake.on("PATCH", f"{SPACES}/dev", (200, build_space()))
    assert ada.run("space", "delete", "dev", "--project", "demo", "--yes", "--abandon").code == 0


@pytest.mark.parametrize("is_expired", [False, True])
def test_delete_sees_what_happened_before_it_began_to_watch(ada: CliFixture, is_expired: bool) -> None:
    """The space may be gone before the watch begins, and with it what its last state says."""
    before = build_space("demo-dev")
    before["metadata"]["resourceVersion"] = "41"
    ada.fake.on("GET", f"{SPACES}/dev", (200, before))
    left = 'namespace "demo-dev" in cluster "berlin" was not deleted'
    conditions = [{"type": "SpaceReady", "status": "False", "reason": "Abandoned", "message": left}]
    deleted = {"type": "DELETED", "object": {**before, "status": {"conditions": conditions}}}
    expired = (410, failure_status(410, "Expired", "too old resource version"))
    responses = (expired, build_watch_response(END)) if is_expired else (build_watch_response(deleted),)
    ada.fake.on("GET", SPACES, *responses)
    result = ada.run("space", "delete", "dev", "--project", "demo", "--yes")
    assert (result.code, left in result.err) == ((0, False) if is_expired else (1, True))
    first = ada.fake.requests_to("GET", SPACES)[0].query
    assert (first.get("resourceVersion"), "sendInitialEvents" in first) == ("41", False)


def test_a_deletion_that_waits_too_long_names_abandon(ada: CliFixture) -> None:
    conditions = [{"type": "Ready", "status": "False", "reason": "Deleting", "message": "pods remain"}]
    status = {"reason": "Deleting", "message": "pods remain", "conditions": conditions}
    waiting = {**build_space(), "status": status}
    ada.fake.on("GET", SPACES, build_watch_response({"type": "ADDED", "object": waiting}, END))
    result = ada.run("space", "delete", "dev", "--project", "demo", "--yes", "--timeout", "1s")
    assert result.code == 1
    assert "dev is not deleted after 1s: Pending (Deleting: pods remain)" in result.err
    assert "`fairlead space delete dev --project demo --abandon` deletes it now and leaves that behind" in result.err


def test_delete_with_abandon_leaves_the_namespace_in_the_cluster(ada: CliFixture) -> None:
    ada.fake.on("PATCH", f"{SPACES}/dev", (200, build_space()))
    ada.fake.on("GET", SPACES, build_watch_response(END))
    result = ada.run("space", "delete", "dev", "--project", "demo", "--yes", "--abandon")
    assert result.code == 0
    (change,) = ada.fake.requests_to("PATCH", f"{SPACES}/dev")
    assert change.body == {"metadata": {"annotations": {"service.sh/abandon": "true"}}}
    assert len(ada.fake.requests_to("DELETE", f"{SPACES}/dev")) == 1
    assert "the namespace demo-dev in the cluster berlin was left behind" in result.err


def test_create_takes_the_only_cluster_of_the_project(ada: CliFixture) -> None:
    cluster = build_object("oslo", spec={"config": {"secretName": "oslo"}})
    ada.fake.on("GET", f"{M}/projects/demo/clusters", (200, {"clusters": [cluster]}))
    result = ada.run("space", "create", "dev", "--project", "demo")
    assert (result.code, "in the cluster oslo, the only one of the project demo" in result.err) == (0, True)
    assert ada.fake.requests_to("POST", SPACES)[-1].body["spec"]["clusterRef"] == {"cluster": "oslo"}
