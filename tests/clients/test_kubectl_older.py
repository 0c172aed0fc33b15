"""Older versions of kubectl that are still in use: 1.20 of Debian 12 and 1.32 of Debian 13.

1.20 reads OpenAPI v2 and the unaggregated discovery lists, validates on the client, requests no field validation, and
sends core kinds as JSON.
"""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.objects import build_app, build_project, build_workspace, to_yaml
from tests.clients.server import GROUP, VERSION, Server
from tests.harness.kubectl import Kubectl, split_columns

KubectlFactory = Callable[[str], Kubectl]


@pytest.fixture(scope="module")
def kubectl_of_version(
    server: Server, component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> KubectlFactory:
    """`kubectl_of_version("1.20")` returns that kubectl; all versions use the same server."""

    def build_kubectl(version: str) -> Kubectl:
        return Kubectl(component(f"kubectl-{version}"), server.kubeconfig, tmp_path_factory.mktemp("home"))

    return build_kubectl


@pytest.fixture(scope="module", params=["1.20", "1.32"])
def old(kubectl_of_version: KubectlFactory, request: pytest.FixtureRequest) -> Kubectl:
    return kubectl_of_version(request.param)


@pytest.fixture(scope="module")
def oldest(kubectl_of_version: KubectlFactory) -> Kubectl:
    return kubectl_of_version("1.20")


def test_it_discovers_every_kind(old: Kubectl) -> None:
    rows = {row[0]: row[1:] for row in split_columns(old("api-resources"))}
    assert rows["apps"] == ["", VERSION, "false", "App"]
    assert rows["devpodworkspaceinstances"] == ["ws", VERSION, "true", "DevPodWorkspaceInstance"]
    assert {"configmaps", "secrets", "events", "namespaces", "leases"} <= rows.keys()
    assert json.loads(old("version", "-o", "json"))["serverVersion"]["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("kind", ["apps", "projects", "ws", "secrets", "events"])
def test_it_explains_kinds(old: Kubectl, kind: str) -> None:
    output = old("explain", kind, "--recursive")
    assert re.search(r"^ +metadata\t<Object(Meta)?>\n +annotations\t<map\[string\]string>\n", output, re.MULTILINE)
    assert "<>" not in output, "a field without a type"


def test_it_explains_a_single_field(old: Kubectl) -> None:
    assert "Name of the chart in its repository." in old("explain", "app.spec.config.chart.name")


def test_it_creates_reads_changes_and_deletes(old: Kubectl) -> None:
    body = build_app("a", {"x": "1"}, displayName="A", config={"chart": {"name": "nginx"}})
    assert old("create", "-f", "-", body=to_yaml(body)) == f"app.{GROUP}/a created\n"
    assert split_columns(old("get", "apps"))[1][:3] == ["a", "A", "nginx"]
    assert old.get_json("app", "a")["spec"] == body["spec"]
    old("label", "app", "a", "y=2")
    old("annotate", "app", "a", "note=n")
    old("patch", "app", "a", "--type=json", "-p", '[{"op":"replace","path":"/spec/displayName","value":"B"}]')
    obj = old.get_json("app", "a")
    assert (obj["metadata"]["labels"], obj["spec"]["displayName"]) == ({"x": "1", "y": "2"}, "B")
    obj["spec"] = {"displayName": "C"}
    old("replace", "-f", "-", body=json.dumps(obj))
    assert "Display Name:  C" in old("describe", "app", "a")
    assert old("delete", "app", "a") == f'app.{GROUP} "a" deleted\n'
    assert old.get_names("apps") == []


def test_it_applies(old: Kubectl) -> None:
    assert old("apply", "-f", "-", body=to_yaml(build_app("b", displayName="1"))) == f"app.{GROUP}/b created\n"
    assert old("apply", "-f", "-", body=to_yaml(build_app("b", displayName="2"))) == f"app.{GROUP}/b configured\n"
    assert old("apply", "-f", "-", body=to_yaml(build_app("b", displayName="2"))) == f"app.{GROUP}/b unchanged\n"
    old("delete", "-f", "-", body=to_yaml(build_app("b")))


def test_client_side_validation_uses_the_openapi_schemas(oldest: Kubectl) -> None:
    error = oldest.expect_failure(
        "create", "-f", "-", body=to_yaml(build_app("x", displayNam="a", recommendedApp="cluster"))
    )
    assert 'unknown field "displayNam"' in error
    assert 'got "string", expected "array"' in error


def test_without_client_side_validation_the_server_validates_and_warns(oldest: Kubectl) -> None:
    body = to_yaml(build_app("x", recommendedApp="cluster"))
    assert "must be of type array" in oldest.expect_failure("create", "--validate=false", "-f", "-", body=body)
    body = to_yaml(build_app("warned", displayNam="a"))
    warnings = oldest.expect_warnings("create", "--validate=false", "-f", "-", body=body)
    assert warnings == 'Warning: unknown field "spec.displayNam"\n'
    oldest("delete", "apps", "--all")


def test_it_lists_selects_and_pages(old: Kubectl) -> None:
    bodies = [build_app(f"n{i}", {"odd": str(i % 2)}, owner={"user": f"u{i}"}) for i in range(5)]
    old("create", "-f", "-", body=to_yaml(*bodies))
    assert old.get_names("apps", "--chunk-size=2") == ["n0", "n1", "n2", "n3", "n4"]
    assert old.get_names("apps", "-l", "odd in (1)") == ["n1", "n3"]
    assert old.get_names("apps", "--field-selector", "spec.owner.user=u3") == ["n3"]
    assert "field label not supported: spec.x" in old.expect_failure("get", "apps", "--field-selector", "spec.x=1")
    old("delete", "apps", "-l", "odd=1")
    assert old.get_names("apps") == ["n0", "n2", "n4"]
    old("delete", "apps", "--all")


def test_it_watches(old: Kubectl) -> None:
    old("create", "-f", "-", body=to_yaml(build_app("watched", displayName="before")))
    with old.watching("get", "app", "watched", "-w") as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.stdout.readline().split()[:2] == ["watched", "before"]
        old("patch", "app", "watched", "--type=merge", "-p", '{"spec":{"displayName":"after"}}')
        assert process.stdout.readline().split()[:2] == ["watched", "after"]
    old("delete", "app", "watched")


def test_it_works_in_projects(old: Kubectl) -> None:
    namespace = "service-p-old"
    old("create", "-f", "-", body=to_yaml(build_project("old"), build_workspace("w", namespace, owner={"user": "ada"})))
    old("wait", "--for=condition=Ready", "project/old", "--timeout=60s")
    old("create", "configmap", "c", "-n", namespace, "--from-literal=a=1")
    old("create", "secret", "generic", "s", "-n", namespace, "--from-literal=a=1")
    assert old.get_json("cm", "c", "-n", namespace)["data"] == {"a": "1"}
    assert old.get_json("secret", "s", "-n", namespace)["data"] == {"a": base64.b64encode(b"1").decode()}
    old.wait_for_event("old")
    assert "NamespaceReady" in old("describe", "project", "old")
    assert {"old", "w"} <= set(old.get_names("fairlead", "-A"))
    assert "delete the project instead" in old.expect_failure("delete", "ns", namespace)
    old("delete", "project", "old", "--timeout=60s")
    assert old.get_names("ns", namespace, "--ignore-not-found") == []
