"""fairlead.cli.resources.cluster: what is deleted, what stays in the cluster, and what is rejected."""

from typing import Any

from tests.cli.resources.cluster_responses import (
    CLUSTERS,
    EVENTS,
    LABEL,
    SECRET,
    build_condition,
    build_healthy_cluster,
    build_secret,
)
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, build_object, failure_status, list_response
from tests.harness.watch_responses import END, build_watch_response


def test_remove_deletes_the_kubeconfig_secret(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_healthy_cluster()))
    ops.fake.on("GET", CLUSTERS, build_watch_response(END))
    ops.fake.on("GET", SECRET, (200, build_secret(**{LABEL: "berlin"})))
    result = ops.run("cluster", "remove", "berlin", "--yes")
    assert result.code == 0
    assert result.err.endswith("the cluster berlin is removed, and its kubeconfig is deleted\n")
    assert len(ops.fake.requests_to("DELETE", f"{CLUSTERS}/berlin")) == len(ops.fake.requests_to("DELETE", SECRET)) == 1


def test_remove_prints_what_it_waits_for(ops: CliFixture) -> None:
    held = build_healthy_cluster()
    held["metadata"]["finalizers"] = ["example.com/held"]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, held))
    gone = {"type": "DELETED", "object": held}
    ops.fake.on("GET", CLUSTERS, build_watch_response({"type": "ADDED", "object": held}, END, gone))
    result = ops.run("cluster", "remove", "berlin", "--yes", "-v")
    assert "being deleted: waiting for the finalizers example.com/held" in result.err
    assert result.err.endswith("the cluster berlin is removed\n")


def test_remove_keeps_secrets_not_created_by_cluster_add(ops: CliFixture) -> None:
    ops.fake.on("GET", CLUSTERS, build_watch_response(END))
    ops.fake.on("GET", SECRET, (200, build_secret()))
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_healthy_cluster()))
    assert (
        "was not created by `fairlead cluster add` and is kept" in ops.run("cluster", "remove", "berlin", "--yes").err
    )
    other_secret = build_object("berlin", spec={"config": {"secretName": "other", "secretNamespace": "default"}})
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, other_secret))
    assert ops.run("cluster", "remove", "berlin", "--yes").code == 0
    assert ops.fake.requests_to("DELETE", SECRET) == []


def build_instance(name: str, namespace: str = "") -> dict[str, Any]:
    found = build_object(name, spec={"clusterRef": {"cluster": "berlin", "namespace": namespace}})
    found["metadata"]["namespace"] = "p-demo"
    return found


def serve_instances(cli: CliFixture, *spaces: dict[str, Any]) -> None:
    cli.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_healthy_cluster()))
    cli.fake.on("GET", CLUSTERS, build_watch_response(END))
    cli.fake.on("GET", f"{M}/spaceinstances", list_response(*spaces))
    cli.fake.on("GET", f"{M}/virtualclusterinstances", (403, failure_status(403, "Forbidden", "not for you")))
    cli.fake.on("POST", f"{M}/selves", (201, {"status": {"projectNamespacePrefix": "p-"}}))


def test_remove_is_rejected_while_the_server_has_deployed_a_runner_into_the_cluster(ops: CliFixture) -> None:
    serve_instances(ops)
    deployed, elsewhere = build_object("r", spec={"clusterRef": {"cluster": "berlin"}}), build_object("s")
    deployed["metadata"]["finalizers"] = ["service.sh/runner-deployment"]
    ops.fake.on("GET", f"{M}/runners", list_response(deployed, elsewhere))
    result = ops.run("cluster", "remove", "berlin", "--yes")
    assert result.code == 1
    assert result.err.splitlines()[:2] == [
        "fairlead: there is 1 instance in the cluster berlin:",
        "  runner r: namespace fairlead-runner-r",
    ]
    assert ops.fake.requests_to("GET", f"{M}/runners")[0].query["fieldSelector"] == "spec.clusterRef.cluster=berlin"
    assert ops.fake.requests_to("DELETE", f"{CLUSTERS}/berlin") == []


def test_remove_is_rejected_while_an_app_is_deployed_in_the_cluster(ops: CliFixture) -> None:
    serve_instances(ops)
    target = {"cluster": {"name": "berlin", "namespace": "shop"}}
    deployed = build_object("web", spec={"target": target}, status={"release": {"name": "web", "namespace": "shop"}})
    pending = build_object("new", spec={"target": target})
    deployed["metadata"]["namespace"] = pending["metadata"]["namespace"] = "p-demo"
    ops.fake.on("GET", f"{M}/appinstances", list_response(deployed, pending))
    result = ops.run("cluster", "remove", "berlin", "--yes")
    assert result.code == 1
    assert result.err.splitlines() == [
        "fairlead: there is 1 instance in the cluster berlin:",
        "  app web of the project demo: namespace shop",
        "delete them first; or leave their namespaces in the cluster with --abandon;",
        "or leave everything that the server created there, including its ClusterRoleBinding, with --keep",
    ]
    assert ops.fake.requests_to("DELETE", f"{CLUSTERS}/berlin") == []


def test_apps_in_the_instances_of_the_cluster_count(ops: CliFixture) -> None:
    serve_instances(ops, build_instance("a", "demo-a"))
    release = {"name": "web", "namespace": "demo-a"}
    apps = []
    for name, target in (
        ("web", {"spaceInstance": {"name": "a"}}),
        ("other", {"spaceInstance": {"name": "b"}}),
        ("far", {"cluster": {"name": "paris", "namespace": "shop"}}),
        ("deep", {"virtualClusterInstance": {"name": "a"}}),
    ):
        app = build_object(name, spec={"target": target}, status={"release": release})
        app["metadata"]["namespace"] = "p-demo"
        apps.append(app)
    elsewhere = build_object("web", spec={"target": {"spaceInstance": {"name": "a"}}}, status={"release": release})
    elsewhere["metadata"]["namespace"] = "p-other"
    ops.fake.on("GET", f"{M}/appinstances", list_response(*apps, elsewhere))
    result = ops.run("cluster", "remove", "berlin", "--yes")
    assert result.code == 1
    assert result.err.splitlines()[:3] == [
        "fairlead: there are 2 instances in the cluster berlin:",
        "  space a of the project demo: namespace demo-a",
        "  app web of the project demo: namespace demo-a",
    ]


def test_remove_is_rejected_while_the_cluster_has_instances(ops: CliFixture) -> None:
    serve_instances(ops, build_instance("a", "demo-a"), build_instance("b"))
    result = ops.run("cluster", "remove", "berlin", "--yes")
    assert result.code == 1
    assert result.err.splitlines()[:3] == [
        "fairlead: there are 2 instances in the cluster berlin:",
        "  space a of the project demo: namespace demo-a",
        "  space b of the project demo: no namespace yet",
    ]
    assert all(option in result.err for option in ("delete them first", "--abandon", "--keep"))
    assert ops.fake.requests_to("DELETE", f"{CLUSTERS}/berlin") == []
    (query, *_) = (each.query for each in ops.fake.requests_to("GET", f"{M}/spaceinstances"))
    assert query["fieldSelector"] == "spec.clusterRef.cluster=berlin"


def test_the_error_lists_at_most_20_instances(ops: CliFixture) -> None:
    serve_instances(ops, *(build_instance(f"s-{number}") for number in range(30)))
    result = ops.run("cluster", "remove", "berlin", "--yes")
    assert "  and 10 more" in result.err.splitlines()
    assert "s-19 " in result.err and "s-20 " not in result.err


def test_instances_can_be_abandoned_and_their_namespaces_are_listed(ops: CliFixture) -> None:
    serve_instances(ops, build_instance("a", "demo-a"))
    left = {"message": "objects of these instances were left in the cluster: space p-demo/a (namespace demo-a)"}
    ops.fake.on("GET", EVENTS, (200, {"items": [left]}))
    ops.use_terminal()
    result = ops.run("cluster", "remove", "berlin", "--abandon", stdin="n\n")
    assert (result.code, "These namespaces are left in it: demo-a." in result.err) == (2, True)
    result = ops.run("cluster", "remove", "berlin", "--abandon", "--yes")
    assert result.code == 0
    assert result.err.splitlines()[:2] == [
        "these instances lose their cluster, and their namespaces stay in it:",
        "  space a of the project demo: namespace demo-a",
    ]
    assert result.err.endswith(f"warning: {left['message']}\n")
    assert ops.fake.requests_to("PATCH", f"{CLUSTERS}/berlin") == []
    assert ops.fake.requests_to("GET", EVENTS)[0].query["fieldSelector"] == "involvedObject.uid=1,reason=LeftBehind"


def test_remove_with_keep_leaves_everything_in_the_cluster(ops: CliFixture) -> None:
    serve_instances(ops, build_instance("a", "demo-a"))
    ops.fake.on("PATCH", f"{CLUSTERS}/berlin", (200, build_healthy_cluster()))
    assert ops.run("cluster", "remove", "berlin", "--keep", "--yes").code == 0
    (request,) = ops.fake.requests_to("PATCH", f"{CLUSTERS}/berlin")
    assert request.body == {"metadata": {"annotations": {"service.sh/abandon": "true"}}}
    assert len(ops.fake.requests_to("DELETE", f"{CLUSTERS}/berlin")) == 1


def test_remove_that_waits_for_an_unreachable_cluster_suggests_keep(ops: CliFixture) -> None:
    waiting = build_healthy_cluster()
    waiting["status"]["conditions"] = [build_condition("Ready", "False", "Deleting", "it cannot be reached")]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, waiting))
    gone = {"type": "DELETED", "object": waiting}
    ops.fake.on("GET", CLUSTERS, build_watch_response({"type": "ADDED", "object": waiting}, END, gone))
    result = ops.run("cluster", "remove", "berlin", "--yes", "-v")
    assert "it cannot be reached, as `fairlead cluster remove berlin --keep` does" in result.err


def test_remove_works_without_permission_to_read_events(ops: CliFixture) -> None:
    serve_instances(ops)
    ops.fake.on("GET", EVENTS, (403, failure_status(403, "Forbidden", "not for you")))
    assert ops.run("cluster", "remove", "berlin", "--yes").code == 0


def test_remove_needs_a_confirmation(ops: CliFixture) -> None:
    serve_instances(ops)
    assert ops.run("cluster", "remove", "berlin").code == 2
    ops.use_terminal()
    result = ops.run("cluster", "remove", "berlin", stdin="n\n")
    assert (result.code, "Remove the cluster berlin? [y/N]" in result.err) == (2, True)
    assert ops.fake.requests_to("DELETE", f"{CLUSTERS}/berlin") == []
