"""`fairlead cluster remove`: what goes, what stays in the cluster, and what is refused."""

from typing import Any

from tests.cli.resources.test_cluster import CLUSTERS, EVENTS, LABEL, SECRET, condition, healthy, ops, secret
from tests.client.test_watch import END, lines
from tests.harness.cli import CliFixture
from tests.harness.fake_server import M, failure, items, named

__all__ = ["ops"]


def test_a_removal_takes_the_kubeconfig_along(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, healthy()))
    ops.fake.on("GET", CLUSTERS, lines(END))
    ops.fake.on("GET", SECRET, (200, secret(**{LABEL: "berlin"})))
    ended = ops.type("cluster", "remove", "berlin", "--yes")
    assert ended.code == 0
    assert ended.err.endswith("the cluster berlin is removed, and its kubeconfig is deleted\n")
    assert len(ops.fake.asked("DELETE", f"{CLUSTERS}/berlin")) == len(ops.fake.asked("DELETE", SECRET)) == 1


def test_a_removal_tells_what_holds_it_up(ops: CliFixture) -> None:
    held = healthy()
    held["metadata"]["finalizers"] = ["example.com/held"]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, held))
    gone = {"type": "DELETED", "object": held}
    ops.fake.on("GET", CLUSTERS, lines({"type": "ADDED", "object": held}, END, gone))
    ended = ops.type("cluster", "remove", "berlin", "--yes")
    assert "being deleted: waiting for the finalizers example.com/held" in ended.err
    assert ended.err.endswith("the cluster berlin is removed\n")


def test_a_removal_leaves_secrets_that_are_not_of_this_command(ops: CliFixture) -> None:
    ops.fake.on("GET", CLUSTERS, lines(END))
    ops.fake.on("GET", SECRET, (200, secret()))
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, healthy()))
    assert (
        "was not created by `fairlead cluster add` and is kept" in ops.type("cluster", "remove", "berlin", "--yes").err
    )
    elsewhere = named("berlin", spec={"config": {"secretName": "other", "secretNamespace": "default"}})
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, elsewhere))
    assert ops.type("cluster", "remove", "berlin", "--yes").code == 0
    assert ops.fake.asked("DELETE", SECRET) == []


def instance(name: str, namespace: str = "") -> dict[str, Any]:
    found = named(name, spec={"clusterRef": {"cluster": "berlin", "namespace": namespace}})
    found["metadata"]["namespace"] = "p-demo"
    return found


def inhabit(cli: CliFixture, *spaces: dict[str, Any]) -> None:
    cli.fake.on("GET", f"{CLUSTERS}/berlin", (200, healthy()))
    cli.fake.on("GET", CLUSTERS, lines(END))
    cli.fake.on("GET", f"{M}/spaceinstances", items(*spaces))
    cli.fake.on("GET", f"{M}/virtualclusterinstances", (403, failure(403, "Forbidden", "not for you")))
    cli.fake.on("POST", f"{M}/selves", (201, {"status": {"projectNamespacePrefix": "p-"}}))


def test_a_removal_is_refused_while_instances_are_in_the_cluster(ops: CliFixture) -> None:
    inhabit(ops, instance("a", "demo-a"), instance("b"))
    ended = ops.type("cluster", "remove", "berlin", "--yes")
    assert ended.code == 1
    assert ended.err.splitlines()[:3] == [
        "fairlead: there are 2 instances in the cluster berlin:",
        "  space a of the project demo: namespace demo-a",
        "  space b of the project demo: no namespace yet",
    ]
    assert all(way in ended.err for way in ("delete them first", "--abandon", "--keep"))
    assert ops.fake.asked("DELETE", f"{CLUSTERS}/berlin") == []
    (query, *_) = (each.query for each in ops.fake.asked("GET", f"{M}/spaceinstances"))
    assert query["fieldSelector"] == "spec.clusterRef.cluster=berlin"


def test_a_refusal_lists_no_more_than_a_screenful(ops: CliFixture) -> None:
    inhabit(ops, *(instance(f"s-{number}") for number in range(30)))
    ended = ops.type("cluster", "remove", "berlin", "--yes")
    assert "  and 10 more" in ended.err.splitlines()
    assert "s-19 " in ended.err and "s-20 " not in ended.err


def test_instances_can_be_abandoned_and_their_namespaces_are_listed(ops: CliFixture) -> None:
    inhabit(ops, instance("a", "demo-a"))
    left = {"message": "objects of these instances were left in the cluster: space p-demo/a (namespace demo-a)"}
    ops.fake.on("GET", EVENTS, (200, {"items": [left]}))
    ops.use_terminal()
    ended = ops.type("cluster", "remove", "berlin", "--abandon", stdin="n\n")
    assert (ended.code, "These namespaces are left in it: demo-a." in ended.err) == (2, True)
    ended = ops.type("cluster", "remove", "berlin", "--abandon", "--yes")
    assert ended.code == 0
    assert ended.err.endswith(f"warning: {left['message']}\n")
    assert ops.fake.asked("PATCH", f"{CLUSTERS}/berlin") == []
    assert ops.fake.asked("GET", EVENTS)[0].query["fieldSelector"] == "involvedObject.uid=1,reason=LeftBehind"


def test_everything_in_the_cluster_can_be_kept(ops: CliFixture) -> None:
    inhabit(ops, instance("a", "demo-a"))
    ops.fake.on("PATCH", f"{CLUSTERS}/berlin", (200, healthy()))
    assert ops.type("cluster", "remove", "berlin", "--keep", "--yes").code == 0
    (sent,) = ops.fake.asked("PATCH", f"{CLUSTERS}/berlin")
    assert sent.body == {"metadata": {"annotations": {"service.sh/abandon": "true"}}}
    assert len(ops.fake.asked("DELETE", f"{CLUSTERS}/berlin")) == 1


def test_a_removal_that_waits_for_the_cluster_tells_the_way_out(ops: CliFixture) -> None:
    waiting = healthy()
    waiting["status"]["conditions"] = [condition("Ready", "False", "Deleting", "it cannot be reached")]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, waiting))
    gone = {"type": "DELETED", "object": waiting}
    ops.fake.on("GET", CLUSTERS, lines({"type": "ADDED", "object": waiting}, END, gone))
    ended = ops.type("cluster", "remove", "berlin", "--yes")
    assert "it cannot be reached, as `fairlead cluster remove berlin --keep` does" in ended.err


def test_who_may_not_read_events_can_remove_a_cluster_all_the_same(ops: CliFixture) -> None:
    inhabit(ops)
    ops.fake.on("GET", EVENTS, (403, failure(403, "Forbidden", "not for you")))
    assert ops.type("cluster", "remove", "berlin", "--yes").code == 0


def test_a_removal_is_asked_about(ops: CliFixture) -> None:
    inhabit(ops)
    assert ops.type("cluster", "remove", "berlin").code == 2
    ops.use_terminal()
    ended = ops.type("cluster", "remove", "berlin", stdin="n\n")
    assert (ended.code, "Remove the cluster berlin? [y/N]" in ended.err) == (2, True)
    assert ops.fake.asked("DELETE", f"{CLUSTERS}/berlin") == []
