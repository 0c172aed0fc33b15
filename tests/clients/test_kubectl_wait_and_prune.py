"""kubectl over a longer time: it waits, it prunes what a file no longer holds, and it changes its way of applying."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.objects import Body, app, as_yaml, cluster, core
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def created(kubectl: Kubectl, *bodies: Body) -> None:
    kubectl("create", "-f", "-", body=as_yaml(*bodies))


def test_wait_returns_when_the_last_of_many_is_deleted(kubectl: Kubectl) -> None:
    created(kubectl, app("one"), app("two"), app("three"))
    with kubectl.watching("wait", "--for=delete", "app/one", "app/two", "app/three", "--timeout=20s") as process:
        kubectl("delete", "app", "one", "two")
        assert process.poll() is None
        kubectl("delete", "app", "three")
        assert process.wait(20) == 0


def test_wait_for_the_end_of_what_is_not_there_is_over_at_once(kubectl: Kubectl) -> None:
    kubectl("wait", "--for=delete", "app/nope", "--timeout=20s")


def test_wait_for_an_end_that_does_not_come_gives_up(kubectl: Kubectl) -> None:
    created(kubectl, app("lasting"))
    said = kubectl.refused("wait", "--for=delete", "app/lasting", "--timeout=1s")
    assert "timed out waiting for the condition on apps/lasting" in said


@pytest.mark.parametrize(
    "waits",
    ["jsonpath={.status.phase}=Initialized", "jsonpath={.status.conditions[*].reason}", "condition=Synced=false"],
)
def test_wait_returns_when_the_status_says_so(kubectl: Kubectl, waits: str) -> None:
    """It is told by a watch of that one object, as soon as its status is written."""
    created(kubectl, cluster("waiting"))
    condition = {"type": "Synced", "status": "False", "reason": "Offline"}
    patch = json.dumps({"status": {"phase": "Initialized", "conditions": [condition]}})
    with kubectl.watching("wait", f"--for={waits}", "cluster/waiting", "--timeout=20s") as process:
        kubectl("patch", "cluster", "waiting", "--subresource=status", "--type=merge", "-p", patch)
        assert process.wait(20) == 0
    kubectl("delete", "cluster", "waiting")


SET = ("apply", "-f", "-", "--prune", "-l", "set=pruned", f"--prune-allowlist={VERSION}/App")
"""Which kinds to prune has to be said: left alone, kubectl insists on kinds that run programs, and has none here."""


def member(name: str, label: str = "pruned") -> Body:
    return app(name, {"set": label}, displayName=name)


def test_apply_prunes_what_the_file_no_longer_holds(kubectl: Kubectl) -> None:
    """It lets live what has other labels, or was never applied."""
    created(kubectl, member("by-hand"))
    kubectl("apply", "-f", "-", body=as_yaml(member("other", "another")))
    assert kubectl(*SET, body=as_yaml(member("one"), member("two"))).split()[1::2] == ["created", "created"]
    dry = kubectl(*SET, "--dry-run=server", body=as_yaml(member("two")))
    assert dry.splitlines()[-1] == f"app.{GROUP}/one pruned (server dry run)"
    assert kubectl.names("apps", "-l", "set") == ["by-hand", "one", "other", "two"]
    said = kubectl(*SET, body=as_yaml(member("two")))
    assert said == f"app.{GROUP}/two unchanged\napp.{GROUP}/one pruned\n"
    assert kubectl.names("apps", "-l", "set") == ["by-hand", "other", "two"]


@pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client-side", "server-side"])
@pytest.mark.parametrize("parent", ["configmaps", "secrets"])
def test_an_applyset_prunes_whatever_kinds_it_has_held(kubectl: Kubectl, parent: str, way: tuple[str, ...]) -> None:
    """A newer way: a parent object keeps which kinds are in the set, labels say which objects."""
    newer = kubectl.with_variable("KUBECTL_APPLYSET", "true")
    apply = ("apply", "-n", "default", "-f", "-", "--prune", f"--applyset={parent}/set", *way)
    newer(*apply, body=as_yaml(app("stays"), app("goes"), core("ConfigMap", "goes", "default")))
    said = newer(*apply, body=as_yaml(app("stays"))).splitlines()
    assert sorted(said[1:]) == [f"app.{GROUP}/goes pruned", "configmap/goes pruned"]
    held = kubectl.read(parent, "set")["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"]
    assert held == f"App.{GROUP}"
    kubectl("delete", f"{parent}/set", "app/stays")


def owners(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Who manages the app, each with the fields of the spec that are theirs."""
    obj = json.loads(kubectl("get", "app", name, "-o", "json", "--show-managed-fields"))
    return {entry["manager"]: sorted(entry["fieldsV1"].get("f:spec", {})) for entry in obj["metadata"]["managedFields"]}


def test_server_side_apply_takes_over_what_was_applied_the_older_way(kubectl: Kubectl) -> None:
    """Without conflicts with oneself, and what has been left out goes."""
    kubectl("apply", "-f", "-", body=as_yaml(app("moved", displayName="1", icon="i", description="d")))
    kubectl("apply", "--server-side", "-f", "-", body=as_yaml(app("moved", displayName="2", description="d")))
    assert kubectl.read("app", "moved")["spec"] == {"displayName": "2", "description": "d"}
    assert owners(kubectl, "moved") == {"kubectl": ["f:description", "f:displayName"], "kubectl-last-applied": []}


def test_both_ways_of_applying_can_be_mixed(kubectl: Kubectl) -> None:
    """While its annotation is there, the older way knows what the newer one applied."""
    kubectl("apply", "-f", "-", body=as_yaml(app("mixed", displayName="1")))
    kubectl("apply", "--server-side", "-f", "-", body=as_yaml(app("mixed", displayName="1", icon="i")))
    assert yaml.safe_load(kubectl("apply", "view-last-applied", "app", "mixed"))["spec"]["icon"] == "i"
    kubectl("apply", "-f", "-", body=as_yaml(app("mixed", displayName="2")))
    assert kubectl.read("app", "mixed")["spec"] == {"displayName": "2"}


def test_what_was_changed_by_hand_since_then_is_a_conflict(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", body=as_yaml(app("touched", displayName="1", icon="i")))
    kubectl("patch", "app", "touched", "--type=merge", "-p", '{"spec":{"displayName":"by hand"}}')
    apply = ("apply", "--server-side", "-f", "-")
    said = kubectl.refused(*apply, body=as_yaml(app("touched", displayName="2", icon="j")))
    assert f'Apply failed with 1 conflict: conflict with "kubectl-patch" using {VERSION}: .spec.displayName' in said
    assert "--force-conflicts" in said
    kubectl(*apply, "--force-conflicts", body=as_yaml(app("touched", displayName="2", icon="j")))
    assert kubectl.read("app", "touched")["spec"] == {"displayName": "2", "icon": "j"}


def test_a_diff_of_either_way_finds_nothing_in_what_was_applied(kubectl: Kubectl) -> None:
    """The annotation of the older way stays as kubectl wrote it, letter by letter, or it would differ each time."""
    noted = app("same", {"a": "b"}, displayName="<1> & 2", icon="i")
    noted["metadata"]["annotations"] = {"note": "seen"}
    body = as_yaml(noted)
    kubectl("apply", "-f", "-", body=body)
    assert kubectl("diff", "-f", "-", body=body) == ""
    assert kubectl("diff", "--server-side", "-f", "-", body=body) == ""
    before = kubectl.read("app", "same")["metadata"]["annotations"][LAST_APPLIED]
    kubectl("apply", "--server-side", "-f", "-", body=body)
    assert kubectl.read("app", "same")["metadata"]["annotations"][LAST_APPLIED] == before


def test_a_diff_on_the_server_shows_changes_and_conflicts(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", body=as_yaml(app("watched", displayName="1")))
    diff = ("diff", "--server-side", "-f", "-")
    shown = kubectl.differing(*diff, body=as_yaml(app("watched", icon="i")))
    assert "+  icon: i\n" in shown
    assert 'conflict with "one": .spec.displayName' in kubectl.refused(
        *diff, body=as_yaml(app("watched", displayName="2"))
    )
    assert "+  displayName: new\n" in kubectl.differing(*diff, body=as_yaml(app("unborn", displayName="new")))
    assert kubectl.names("app", "unborn", "--ignore-not-found") == []


def test_a_dry_run_of_an_apply_on_the_server_changes_nothing(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "--dry-run=server", "-f", "-")
    assert kubectl(*apply, body=as_yaml(app("dry"))) == f"app.{GROUP}/dry serverside-applied (server dry run)\n"
    assert kubectl.names("app", "dry", "--ignore-not-found") == []


def test_a_strategic_patch_of_a_core_kind(kubectl: Kubectl) -> None:
    created(kubectl, core("ConfigMap", "patched", "default", data={"a": "1", "b": "1"}))
    patch = json.dumps({"data": {"a": None, "c": "2"}, "metadata": {"finalizers": ["example.com/hold"]}})
    assert kubectl("patch", "cm", "patched", "--type=strategic", "-p", patch) == "configmap/patched patched\n"
    obj = kubectl.read("cm", "patched")
    assert (obj["data"], obj["metadata"]["finalizers"]) == ({"b": "1", "c": "2"}, ["example.com/hold"])
    released = json.dumps({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}})
    kubectl("patch", "cm", "patched", "-p", released)
    kubectl("delete", "cm", "patched")


def test_an_editor_changes_a_status(kubectl: Kubectl) -> None:
    """EDITOR may be a command with arguments."""
    created(kubectl, cluster("edited"))
    kubectl("patch", "cluster", "edited", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Failed"}}')
    editing = kubectl.with_variable("EDITOR", "sed -i 's/phase: Failed/phase: Initialized/'")
    assert editing("edit", "cluster", "edited", "--subresource=status") == f"cluster.{GROUP}/edited edited\n"
    assert kubectl.read("cluster", "edited")["status"]["phase"] == "Initialized"


def test_an_edit_that_is_refused_is_kept_with_the_reason_and_changes_nothing(kubectl: Kubectl, tmp_path: Path) -> None:
    """kubectl opens the editor again, the reason above the text; once nothing changes any more, it puts that aside."""
    created(kubectl, app("spoiled", icon="i"))
    editing = kubectl.with_variable("EDITOR", "sed -i 's/icon: i/icon: 5/'").with_variable("TMPDIR", str(tmp_path))
    assert "A copy of your changes has been stored" in editing.refused("edit", "app", "spoiled")
    kept = [copy.read_text() for copy in tmp_path.glob("kubectl-edit-*.yaml")]
    assert [text for text in kept if "# * spec.icon: Invalid value" in text]
    assert kubectl.read("app", "spoiled")["spec"] == {"icon": "i"}
