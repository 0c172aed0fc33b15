"""`kubectl wait`, `apply --prune`, applysets, and switching between client-side and server-side apply."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.objects import Body, build_app, build_cluster, build_core_object, to_yaml
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def create_objects(kubectl: Kubectl, *bodies: Body) -> None:
    kubectl("create", "-f", "-", body=to_yaml(*bodies))


def test_wait_returns_when_the_last_of_many_is_deleted(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_app("one"), build_app("two"), build_app("three"))
    with kubectl.watching("wait", "--for=delete", "app/one", "app/two", "app/three", "--timeout=60s") as process:
        kubectl("delete", "app", "one", "two")
        assert process.poll() is None
        kubectl("delete", "app", "three")
        assert process.wait(60) == 0


def test_wait_for_the_deletion_of_a_missing_object_returns_at_once(kubectl: Kubectl) -> None:
    kubectl("wait", "--for=delete", "app/nope", "--timeout=60s")


def test_wait_for_deletion_times_out(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_app("lasting"))
    error = kubectl.expect_failure("wait", "--for=delete", "app/lasting", "--timeout=1s")
    assert "timed out waiting for the condition on apps/lasting" in error


@pytest.mark.parametrize(
    "condition_flag",
    ["jsonpath={.status.phase}=Initialized", "jsonpath={.status.conditions[*].reason}", "condition=Synced=false"],
)
def test_wait_returns_when_the_status_matches(kubectl: Kubectl, condition_flag: str) -> None:
    """kubectl watches the object, and sees its status as soon as it is written."""
    create_objects(kubectl, build_cluster("waiting"))
    condition = {"type": "Synced", "status": "False", "reason": "Offline"}
    patch = json.dumps({"status": {"phase": "Initialized", "conditions": [condition]}})
    with kubectl.watching("wait", f"--for={condition_flag}", "cluster/waiting", "--timeout=60s") as process:
        kubectl("patch", "cluster", "waiting", "--subresource=status", "--type=merge", "-p", patch)
        assert process.wait(60) == 0
    kubectl("delete", "cluster", "waiting")


APPLY_AND_PRUNE = ("apply", "-f", "-", "--prune", "-l", "set=pruned", f"--prune-allowlist={VERSION}/App")
"""With an allowlist: by default, kubectl prunes kinds such as Deployment, which this server does not have."""


def build_labelled_app(name: str, label: str = "pruned") -> Body:
    return build_app(name, {"set": label}, displayName=name)


def test_apply_prunes_objects_removed_from_the_file(kubectl: Kubectl) -> None:
    """Objects with other labels, or that were never applied, stay."""
    create_objects(kubectl, build_labelled_app("by-hand"))
    kubectl("apply", "-f", "-", body=to_yaml(build_labelled_app("other", "another")))
    assert kubectl(*APPLY_AND_PRUNE, body=to_yaml(build_labelled_app("one"), build_labelled_app("two"))).split()[
        1::2
    ] == ["created", "created"]
    output = kubectl(*APPLY_AND_PRUNE, "--dry-run=server", body=to_yaml(build_labelled_app("two")))
    assert output.splitlines()[-1] == f"app.{GROUP}/one pruned (server dry run)"
    assert kubectl.get_names("apps", "-l", "set") == ["by-hand", "one", "other", "two"]
    output = kubectl(*APPLY_AND_PRUNE, body=to_yaml(build_labelled_app("two")))
    assert output == f"app.{GROUP}/two unchanged\napp.{GROUP}/one pruned\n"
    assert kubectl.get_names("apps", "-l", "set") == ["by-hand", "other", "two"]


@pytest.mark.parametrize("apply_flags", [(), ("--server-side",)], ids=["client-side", "server-side"])
@pytest.mark.parametrize("parent", ["configmaps", "secrets"])
def test_an_applyset_prunes_all_kinds_that_it_contained(
    kubectl: Kubectl, parent: str, apply_flags: tuple[str, ...]
) -> None:
    """A parent object stores the kinds of the set, and labels mark its objects."""
    applyset_kubectl = kubectl.with_variable("KUBECTL_APPLYSET", "true")
    apply = ("apply", "-n", "default", "-f", "-", "--prune", f"--applyset={parent}/set", *apply_flags)
    applyset_kubectl(
        *apply, body=to_yaml(build_app("stays"), build_app("goes"), build_core_object("ConfigMap", "goes", "default"))
    )
    output = applyset_kubectl(*apply, body=to_yaml(build_app("stays"))).splitlines()
    assert sorted(output[1:]) == [f"app.{GROUP}/goes pruned", "configmap/goes pruned"]
    kinds = kubectl.get_json(parent, "set")["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"]
    assert kinds == f"App.{GROUP}"
    kubectl("delete", f"{parent}/set", "app/stays")


def get_managers(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Returns the field managers of the app, each with its fields of the spec."""
    obj = json.loads(kubectl("get", "app", name, "-o", "json", "--show-managed-fields"))
    return {entry["manager"]: sorted(entry["fieldsV1"].get("f:spec", {})) for entry in obj["metadata"]["managedFields"]}


def test_server_side_apply_takes_over_fields_of_client_side_apply(kubectl: Kubectl) -> None:
    """There is no conflict with kubectl's own fields, and omitted fields are removed."""
    kubectl("apply", "-f", "-", body=to_yaml(build_app("moved", displayName="1", icon="i", description="d")))
    kubectl("apply", "--server-side", "-f", "-", body=to_yaml(build_app("moved", displayName="2", description="d")))
    assert kubectl.get_json("app", "moved")["spec"] == {"displayName": "2", "description": "d"}
    assert get_managers(kubectl, "moved") == {"kubectl": ["f:description", "f:displayName"], "kubectl-last-applied": []}


def test_client_side_and_server_side_apply_can_be_mixed(kubectl: Kubectl) -> None:
    """While the last-applied annotation exists, client-side apply knows what server-side apply wrote."""
    kubectl("apply", "-f", "-", body=to_yaml(build_app("mixed", displayName="1")))
    kubectl("apply", "--server-side", "-f", "-", body=to_yaml(build_app("mixed", displayName="1", icon="i")))
    assert yaml.safe_load(kubectl("apply", "view-last-applied", "app", "mixed"))["spec"]["icon"] == "i"
    kubectl("apply", "-f", "-", body=to_yaml(build_app("mixed", displayName="2")))
    assert kubectl.get_json("app", "mixed")["spec"] == {"displayName": "2"}


def test_server_side_apply_conflicts_with_a_field_changed_by_patch(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", body=to_yaml(build_app("touched", displayName="1", icon="i")))
    kubectl("patch", "app", "touched", "--type=merge", "-p", '{"spec":{"displayName":"by hand"}}')
    apply = ("apply", "--server-side", "-f", "-")
    error = kubectl.expect_failure(*apply, body=to_yaml(build_app("touched", displayName="2", icon="j")))
    assert f'Apply failed with 1 conflict: conflict with "kubectl-patch" using {VERSION}: .spec.displayName' in error
    assert "--force-conflicts" in error
    kubectl(*apply, "--force-conflicts", body=to_yaml(build_app("touched", displayName="2", icon="j")))
    assert kubectl.get_json("app", "touched")["spec"] == {"displayName": "2", "icon": "j"}


def test_a_diff_of_an_applied_object_is_empty(kubectl: Kubectl) -> None:
    """The last-applied annotation stays byte for byte as kubectl wrote it; otherwise each diff would show it."""
    annotated = build_app("same", {"a": "b"}, displayName="<1> & 2", icon="i")
    annotated["metadata"]["annotations"] = {"note": "seen"}
    body = to_yaml(annotated)
    kubectl("apply", "-f", "-", body=body)
    assert kubectl("diff", "-f", "-", body=body) == ""
    assert kubectl("diff", "--server-side", "-f", "-", body=body) == ""
    before = kubectl.get_json("app", "same")["metadata"]["annotations"][LAST_APPLIED]
    kubectl("apply", "--server-side", "-f", "-", body=body)
    assert kubectl.get_json("app", "same")["metadata"]["annotations"][LAST_APPLIED] == before


def test_a_server_side_diff_shows_changes_and_conflicts(kubectl: Kubectl) -> None:
    kubectl(
        "apply", "--server-side", "--field-manager=one", "-f", "-", body=to_yaml(build_app("watched", displayName="1"))
    )
    diff = ("diff", "--server-side", "-f", "-")
    output = kubectl.expect_diff(*diff, body=to_yaml(build_app("watched", icon="i")))
    assert "+  icon: i\n" in output
    assert 'conflict with "one": .spec.displayName' in kubectl.expect_failure(
        *diff, body=to_yaml(build_app("watched", displayName="2"))
    )
    assert "+  displayName: new\n" in kubectl.expect_diff(*diff, body=to_yaml(build_app("unborn", displayName="new")))
    assert kubectl.get_names("app", "unborn", "--ignore-not-found") == []


def test_a_dry_run_of_a_server_side_apply_changes_nothing(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "--dry-run=server", "-f", "-")
    assert kubectl(*apply, body=to_yaml(build_app("dry"))) == f"app.{GROUP}/dry serverside-applied (server dry run)\n"
    assert kubectl.get_names("app", "dry", "--ignore-not-found") == []


def test_a_strategic_merge_patch_of_a_core_kind(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_core_object("ConfigMap", "patched", "default", data={"a": "1", "b": "1"}))
    patch = json.dumps({"data": {"a": None, "c": "2"}, "metadata": {"finalizers": ["example.com/hold"]}})
    assert kubectl("patch", "cm", "patched", "--type=strategic", "-p", patch) == "configmap/patched patched\n"
    obj = kubectl.get_json("cm", "patched")
    assert (obj["data"], obj["metadata"]["finalizers"]) == ({"b": "1", "c": "2"}, ["example.com/hold"])
    patch_without_finalizer = json.dumps({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}})
    kubectl("patch", "cm", "patched", "-p", patch_without_finalizer)
    kubectl("delete", "cm", "patched")


def test_edit_changes_a_status(kubectl: Kubectl) -> None:
    """EDITOR may be a command with arguments."""
    create_objects(kubectl, build_cluster("edited"))
    kubectl("patch", "cluster", "edited", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Failed"}}')
    editor_kubectl = kubectl.with_variable("EDITOR", "sed -i 's/phase: Failed/phase: Initialized/'")
    assert editor_kubectl("edit", "cluster", "edited", "--subresource=status") == f"cluster.{GROUP}/edited edited\n"
    assert kubectl.get_json("cluster", "edited")["status"]["phase"] == "Initialized"


def test_a_rejected_edit_is_saved_with_the_error_and_changes_nothing(kubectl: Kubectl, tmp_path: Path) -> None:
    """kubectl opens the editor again with the error; once nothing changes, it saves a copy."""
    create_objects(kubectl, build_app("spoiled", icon="i"))
    editor_kubectl = kubectl.with_variable("EDITOR", "sed -i 's/icon: i/icon: 5/'").with_variable(
        "TMPDIR", str(tmp_path)
    )
    assert "A copy of your changes has been stored" in editor_kubectl.expect_failure("edit", "app", "spoiled")
    copies = [path.read_text() for path in tmp_path.glob("kubectl-edit-*.yaml")]
    assert [text for text in copies if "# * spec.icon: Invalid value" in text]
    assert kubectl.get_json("app", "spoiled")["spec"] == {"icon": "i"}
