"""`kubectl create`, `replace`, `patch`, `label`, `annotate`, `edit` and `delete`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.objects import Body, build_app, build_cluster, to_yaml
from tests.clients.server import GROUP
from tests.harness.kubectl import Kubectl

MANIFEST = """\
# Files of users have comments, nulls and an empty status in them.
apiVersion: management.service.sh/v1
kind: App
metadata:
  creationTimestamp: null
  name: from-yaml
spec:
  displayName: "From YAML"   # quoted
  recommendedApp: [cluster]
  config:
    manifests: |
      kind: ConfigMap
      apiVersion: v1
status: {}
"""


def create_objects(kubectl: Kubectl, *bodies: Body) -> None:
    kubectl("create", "-f", "-", body=to_yaml(*bodies))


def get_app(kubectl: Kubectl, name: str) -> Any:
    return kubectl.get_json("app", name)


def test_create_reads_a_yaml_file(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(MANIFEST)
    assert kubectl("create", "-f", str(tmp_path / "app.yaml")) == f"app.{GROUP}/from-yaml created\n"
    obj = get_app(kubectl, "from-yaml")
    assert obj["spec"] == yaml.safe_load(MANIFEST)["spec"]
    assert obj["metadata"]["creationTimestamp"].endswith("Z")


def test_create_reads_a_json_file(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "app.json").write_text(json.dumps(build_app("from-json", {"a": "b"}, displayName="J")))
    assert kubectl("create", "-f", str(tmp_path / "app.json")) == f"app.{GROUP}/from-json created\n"
    assert get_app(kubectl, "from-json")["spec"] == {"displayName": "J"}


def test_create_reads_all_documents_of_a_folder(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "1.yaml").write_text(to_yaml(build_app("many-1"), build_cluster("many-2")))
    (tmp_path / "2.json").write_text(json.dumps(build_app("many-3")))
    output = kubectl("create", "-f", str(tmp_path)).splitlines()
    assert output == [
        f"app.{GROUP}/many-1 created",
        f"cluster.{GROUP}/many-2 created",
        f"app.{GROUP}/many-3 created",
    ]


def test_create_generates_a_name_from_generate_name(kubectl: Kubectl) -> None:
    body = build_app("")
    body["metadata"] = {"generateName": "made-up-"}
    output = kubectl("create", "-f", "-", "-o", "name", body=to_yaml(body))
    assert output.startswith(f"app.{GROUP}/made-up-")
    assert len(output.strip()) > len(f"app.{GROUP}/made-up-")


@pytest.mark.parametrize("strategy", ["client", "server"])
def test_a_dry_run_creates_nothing(kubectl: Kubectl, strategy: str) -> None:
    output = kubectl(
        "create", "-f", "-", f"--dry-run={strategy}", "-o", "yaml", body=to_yaml(build_app("dry", displayName="D"))
    )
    assert yaml.safe_load(output)["spec"] == {"displayName": "D"}
    assert kubectl.get_names("app", "dry", "--ignore-not-found") == []


def test_replace_writes_an_edited_object(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_app("replaced", displayName="before", description="goes"))
    obj = get_app(kubectl, "replaced")
    obj["spec"] = {"displayName": "after"}
    assert kubectl("replace", "-f", "-", body=json.dumps(obj)) == f"app.{GROUP}/replaced replaced\n"
    new = get_app(kubectl, "replaced")
    assert new["spec"] == {"displayName": "after"}
    assert new["metadata"]["uid"] == obj["metadata"]["uid"]
    assert new["metadata"]["generation"] == 2


def test_replace_with_force_creates_a_new_object(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_app("forced"))
    before = get_app(kubectl, "forced")
    kubectl("replace", "--force", "-f", "-", body=to_yaml(build_app("forced", displayName="new")))
    after = get_app(kubectl, "forced")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"] == {"displayName": "new"}


def test_a_json_patch_changes_the_given_paths(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_app("patched", displayName="before", description="goes", recommendedApp=["cluster"]))
    operations = [
        {"op": "test", "path": "/spec/displayName", "value": "before"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/example.com~1key", "value": "with a slash"},
        {"op": "replace", "path": "/spec/displayName", "value": "after"},
        {"op": "remove", "path": "/spec/description"},
        {"op": "add", "path": "/spec/recommendedApp/-", "value": "space"},
    ]
    output = kubectl("patch", "app", "patched", "--type=json", "-p", json.dumps(operations))
    assert output == f"app.{GROUP}/patched patched\n"
    obj = get_app(kubectl, "patched")
    assert obj["spec"] == {"displayName": "after", "recommendedApp": ["cluster", "space"]}
    assert obj["metadata"]["annotations"] == {"example.com/key": "with a slash"}


def test_a_merge_patch_changes_and_removes_fields_and_reports_no_change(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_app("merged", displayName="before", description="goes"))
    patch = ("patch", "app", "merged", "--type=merge", "-p", '{"spec":{"displayName":"after","description":null}}')
    assert kubectl(*patch) == f"app.{GROUP}/merged patched\n"
    assert get_app(kubectl, "merged")["spec"] == {"displayName": "after"}
    assert kubectl(*patch) == f"app.{GROUP}/merged patched (no change)\n"


def test_a_patch_without_a_type_merges_lists_by_their_keys(kubectl: Kubectl) -> None:
    """kubectl's default is the strategic merge patch."""
    create_objects(kubectl, build_cluster("strategic"))

    def patch(status: str) -> None:
        conditions = f'{{"status":{{"conditions":[{{"type":"{status}","status":"True"}}]}}}}'
        kubectl("patch", "cluster", "strategic", "--subresource=status", "-p", conditions)

    patch("Ready")
    patch("Synced")
    conditions = kubectl.get_json("cluster", "strategic")["status"]["conditions"]
    assert sorted(each["type"] for each in conditions) == ["Ready", "Synced"]


def test_the_status_subresource_changes_only_the_status(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_cluster("with-status", displayName="C"))
    patch = '{"spec":{"displayName":"ignored"},"status":{"phase":"Failed","reason":"Offline"}}'
    kubectl("patch", "cluster", "with-status", "--subresource=status", "--type=merge", "-p", patch)
    obj = kubectl.get_json("cluster", "with-status")
    assert obj["spec"] == {"displayName": "C"}
    assert obj["status"]["phase"] == "Failed"
    assert kubectl.get_names("clusters", "--field-selector", "status.phase=Failed") == ["with-status"]


@pytest.mark.parametrize(("command", "field"), [("label", "labels"), ("annotate", "annotations")])
def test_labels_and_annotations_are_added_overwritten_and_removed(kubectl: Kubectl, command: str, field: str) -> None:
    name = f"to-{command}"
    create_objects(kubectl, build_app(name))

    def read_field() -> Any:
        return get_app(kubectl, name)["metadata"].get(field)

    kubectl(command, "app", name, "example.com/one=1", "two=2")
    assert read_field() == {"example.com/one": "1", "two": "2"}
    assert "already has a value" in kubectl.expect_failure(command, "app", name, "two=3")
    kubectl(command, "app", name, "two=3", "--overwrite")
    assert read_field() == {"example.com/one": "1", "two": "3"}
    kubectl(command, "app", name, "two-", "example.com/one-")
    assert not read_field()
    assert get_app(kubectl, name)["metadata"]["generation"] == 1


def test_edit_sends_the_saved_file(kubectl: Kubectl, tmp_path: Path) -> None:
    create_objects(kubectl, build_app("edited", displayName="before"))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/displayName: before/displayName: after/' \"$1\"\n")
    editor.chmod(0o755)
    output = kubectl.with_variable("KUBE_EDITOR", str(editor))("edit", "app", "edited")
    assert output == f"app.{GROUP}/edited edited\n"
    assert get_app(kubectl, "edited")["spec"] == {"displayName": "after"}


def test_delete_accepts_names_files_and_selectors(kubectl: Kubectl) -> None:
    names = ["bye-1", "bye-2", "bye-3", "bye-4"]
    create_objects(kubectl, *(build_app(name, {"bye": "yes"}) for name in names))
    assert kubectl("delete", "app", "bye-1").startswith(f'app.{GROUP} "bye-1" deleted')
    assert kubectl("delete", "-f", "-", body=to_yaml(build_app("bye-2"))).startswith(f'app.{GROUP} "bye-2" deleted')
    assert kubectl.get_names("apps", "-l", "bye") == ["bye-3", "bye-4"]
    kubectl("delete", "apps", "-l", "bye=yes", "--dry-run=client")
    assert kubectl.get_names("apps", "-l", "bye") == ["bye-3", "bye-4"]
    kubectl("delete", "apps", "-l", "bye=yes")
    assert kubectl.get_names("apps", "-l", "bye") == []


def test_delete_all_deletes_only_objects_of_its_kind(kubectl: Kubectl) -> None:
    create_objects(kubectl, build_app("all-1"), build_app("all-2"), build_cluster("stays"))
    kubectl("delete", "apps", "--all")
    assert kubectl.get_names("apps") == []
    assert "stays" in kubectl.get_names("clusters")


@pytest.mark.parametrize("policy", ["background", "foreground", "orphan"])
def test_delete_waits_for_the_deletion_with_every_cascade_policy(kubectl: Kubectl, policy: str) -> None:
    create_objects(kubectl, build_cluster(policy))
    kubectl("delete", "cluster", policy, f"--cascade={policy}", "--timeout=60s")
    assert kubectl.get_names("cluster", policy, "--ignore-not-found") == []


def test_an_object_with_a_finalizer_is_deleted_when_it_is_removed(kubectl: Kubectl) -> None:
    body = build_app("held")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    create_objects(kubectl, body)
    kubectl("delete", "app", "held", "--wait=false")
    assert get_app(kubectl, "held")["metadata"]["deletionTimestamp"]
    with kubectl.watching("wait", "--for=delete", "app/held", "--timeout=60s") as process:
        kubectl("patch", "app", "held", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
        assert process.wait(60) == 0


def test_base64_may_be_wrapped_in_lines(kubectl: Kubectl) -> None:
    """As `base64 < file` prints it, and as the examples of Kubernetes' documentation have it."""
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: wrapped}\ndata:\n  text: |\n    c29tZSB0\n    ZXh0\n"
    kubectl("apply", "-f", "-", body=secret)
    stored = kubectl.get_json("secret", "wrapped")
    assert stored["data"] == {"text": "c29tZSB0ZXh0"}
    kubectl("apply", "-f", "-", body=secret)
    assert kubectl.get_json("secret", "wrapped") == stored
