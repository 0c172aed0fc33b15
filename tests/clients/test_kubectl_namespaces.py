"""kubectl with projects, their namespaces, and objects in them."""

import base64
import time

import pytest

from tests.clients.objects import build_core_object, build_project, build_workspace, to_yaml
from tests.clients.server import GROUP
from tests.harness.kubectl import Kubectl

RED = "service-p-red"


@pytest.fixture(scope="module")
def red(kubectl: Kubectl) -> str:
    """The namespace of a project, which exists as soon as the project does."""
    kubectl("create", "-f", "-", body=to_yaml(build_project("red")))
    assert kubectl.get_names("ns", RED) == [RED]
    return RED


def test_a_project_gets_a_namespace_and_becomes_ready(kubectl: Kubectl, red: str) -> None:
    assert kubectl.get_json("ns", red)["metadata"]["labels"]["service.sh/project"] == "red"
    output = kubectl("wait", "--for=condition=Ready", "project/red", "--timeout=60s")
    assert output == f"project.{GROUP}/red condition met\n"
    assert kubectl.get_json("project", "red")["status"]["observedGeneration"] == 1


def test_a_project_and_its_workspace_can_be_in_one_file(kubectl: Kubectl) -> None:
    first_workspace = build_workspace("first", "service-p-at-once", owner={"user": "ada"})
    kubectl("create", "-f", "-", body=to_yaml(build_project("at-once"), first_workspace))
    assert kubectl.get_names("ws", "-n", "service-p-at-once") == ["first"]


def test_deleting_a_project_deletes_its_namespace_with_all_objects(kubectl: Kubectl) -> None:
    namespace = "service-p-gone"
    objects = (
        build_workspace("w", namespace),
        build_core_object("ConfigMap", "c", namespace),
        build_core_object("Secret", "s", namespace),
    )
    kubectl("create", "-f", "-", body=to_yaml(build_project("gone"), *objects))
    assert kubectl("delete", "project", "gone", "--timeout=60s").startswith(f'project.{GROUP} "gone" deleted')
    assert kubectl.get_names("ns", namespace, "--ignore-not-found") == []
    assert kubectl.get_names("ws,cm,secrets", "-n", namespace) == []
    kubectl("create", "-f", "-", body=to_yaml(build_project("gone")))
    assert kubectl.get_names("ws,cm,secrets", "-n", namespace) == []


def test_the_namespace_of_a_project_cannot_be_deleted_alone(kubectl: Kubectl, red: str) -> None:
    error = kubectl.expect_failure("delete", "ns", red)
    assert f'namespaces "{red}" is forbidden' in error
    assert "delete the project instead" in error
    assert kubectl.get_json("ns", red)["status"]["phase"] == "Active"


def test_the_namespace_of_a_project_cannot_be_created_alone(kubectl: Kubectl) -> None:
    error = kubectl.expect_failure("create", "-f", "-", body=to_yaml(build_core_object("Namespace", "service-p-alone")))
    assert "create the project instead" in error


def test_other_namespaces_can_be_created_and_deleted(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "mine")
    kubectl("create", "-f", "-", body=to_yaml(build_core_object("ConfigMap", "inside", "mine")))
    kubectl("delete", "namespace", "mine", "--timeout=60s")
    assert kubectl.get_names("ns", "mine", "--ignore-not-found") == []
    assert kubectl.get_names("cm", "-n", "mine") == []


@pytest.mark.parametrize("name", ["default", "service-system"])
def test_system_namespaces_cannot_be_deleted(kubectl: Kubectl, name: str) -> None:
    assert "forbidden" in kubectl.expect_failure("delete", "ns", name, "--wait=false")
    assert kubectl.get_json("ns", name)["status"]["phase"] == "Active"


def test_workspaces_are_written_and_read_in_their_namespace(kubectl: Kubectl, red: str) -> None:
    kubectl("create", "-n", red, "-f", "-", body=to_yaml(build_workspace("w1", "", parameters="a: b", runnerRef={})))
    assert kubectl.get_json("ws", "w1", "-n", red)["metadata"]["namespace"] == red
    kubectl("label", "ws", "w1", "-n", red, "service.sh/workspace-uid=123")
    assert kubectl.get_names("ws", "-A", "-l", "service.sh/workspace-uid=123") == ["w1"]
    kubectl("delete", "ws", "--all", "-n", red)
    assert kubectl.get_names("ws", "-n", red) == []


def test_a_configmap_is_created_from_literals(kubectl: Kubectl, red: str) -> None:
    kubectl("create", "configmap", "literal", "-n", red, "--from-literal=a=1", "--from-literal=b=2")
    assert kubectl.get_json("cm", "literal", "-n", red)["data"] == {"a": "1", "b": "2"}
    assert kubectl.get_rows("cm", "literal", "-n", red)[1][:2] == ["literal", "2"]


def test_a_secret_is_created_from_literals(kubectl: Kubectl, red: str) -> None:
    kubectl("create", "secret", "generic", "literal", "-n", red, "--from-literal=password=hunter2")
    obj = kubectl.get_json("secret", "literal", "-n", red)
    assert (obj["type"], base64.b64decode(obj["data"]["password"])) == ("Opaque", b"hunter2")
    assert "hunter2" not in kubectl("describe", "secret", "literal", "-n", red)


def test_configmaps_and_secrets_are_created_from_files(kubectl: Kubectl, red: str) -> None:
    bodies = (
        build_core_object("ConfigMap", "filed", red, data={"a": "1"}),
        build_core_object("Secret", "filed", red, stringData={"b": "2"}),
    )
    kubectl("create", "-f", "-", body=to_yaml(*bodies))
    assert kubectl.get_json("cm", "filed", "-n", red)["data"] == {"a": "1"}
    assert kubectl.get_json("secret", "filed", "-n", red)["data"] == {"b": base64.b64encode(b"2").decode()}
    assert kubectl.get_rows("secret", "filed", "-n", red)[1][:3] == ["filed", "Opaque", "1"]


def test_a_lease_shows_its_holder(kubectl: Kubectl, red: str) -> None:
    body = build_core_object("Lease", "leader", red, spec={"holderIdentity": "me", "leaseDurationSeconds": 15})
    kubectl("create", "-f", "-", body=to_yaml({**body, "apiVersion": "coordination.k8s.io/v1"}))
    header, row = kubectl.get_rows("leases", "-n", red)
    assert (header, row[:2]) == (["NAME", "HOLDER", "AGE"], ["leader", "me"])


def test_an_event_is_listed_and_shown_by_describe(kubectl: Kubectl, red: str) -> None:
    kubectl("create", "-f", "-", body=to_yaml(build_core_object("ConfigMap", "watched", red)))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    involved_object = {"apiVersion": "v1", "kind": "ConfigMap", "name": "watched", "namespace": red}
    involved_object["uid"] = kubectl.get_json("cm", "watched", "-n", red)["metadata"]["uid"]
    fields = {"reason": "Seen", "message": "it was read", "type": "Warning", "source": {"component": "tester"}}
    event = build_core_object(
        "Event", "seen", red, involvedObject=involved_object, firstTimestamp=now, lastTimestamp=now, count=1, **fields
    )
    kubectl("create", "-f", "-", body=to_yaml(event))
    assert kubectl.get_rows("events", "-n", red)[1][1:] == ["Warning", "Seen", "configmap/watched", "it was read"]
    assert "it was read" in kubectl("describe", "cm", "watched", "-n", red)
