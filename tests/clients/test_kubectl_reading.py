"""`kubectl get`, `describe`, `events` and `wait`: tables, output formats, selectors, paging and watches."""

import json
import re

import pytest
import yaml

from tests.clients.objects import build_app, build_cluster, build_project, build_workspace, to_yaml
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl, split_columns

BLUE = "service-p-blue"

OBJECTS = (
    build_app("alpha", {"tier": "web"}, displayName="Zulu", config={"chart": {"name": "nginx", "version": "1.2.3"}}),
    build_app("beta", {"tier": "db"}, displayName="Yankee", config={"chart": {"name": "redis"}}, owner={"user": "ada"}),
    build_app("gamma", {"tier": "db", "old": ""}, displayName="X-ray", recommendedApp=["cluster", "space"]),
    build_app("delta", displayName="Whiskey"),
    build_app("epsilon", {"tier": "web"}, displayName="Victor"),
    build_cluster("berlin", displayName="Berlin", networkPeer=True),
    build_cluster("munich", displayName="Munich"),
    build_project("blue", displayName="Blue", members=[{"kind": "User", "name": "admin"}]),
    build_workspace("one", BLUE, owner={"user": "ada"}, templateRef={"name": "python"}, runnerRef={}),
    build_workspace("two", BLUE, owner={"team": "ops"}, templateRef={"name": "go"}, runnerRef={"runner": "r1"}),
)


@pytest.fixture(scope="module")
def kubectl_with_objects(kubectl: Kubectl) -> Kubectl:
    """kubectl, after creating the objects. Tests change only one annotation and one label of them."""
    kubectl("create", "-f", "-", body=to_yaml(*OBJECTS))
    return kubectl


def test_get_prints_a_table_with_the_columns_of_the_kind(kubectl_with_objects: Kubectl) -> None:
    header, first, *_ = kubectl_with_objects.get_rows("apps")
    assert header == ["NAME", "DISPLAY NAME", "CHART", "VERSION", "AGE"]
    assert first[:-1] == ["alpha", "Zulu", "nginx", "1.2.3"]
    assert re.fullmatch(r"\d+s", first[-1])


def test_wide_output_has_more_columns(kubectl_with_objects: Kubectl) -> None:
    header, row = kubectl_with_objects.get_rows("app", "gamma", "-o", "wide")
    assert header[5:] == ["REPOSITORY", "RECOMMENDED"]
    assert row[6] == "cluster,space"


def test_the_row_of_a_project_has_its_namespace_and_readiness(kubectl_with_objects: Kubectl) -> None:
    kubectl_with_objects("wait", "--for=condition=Ready", "project/blue", "--timeout=60s")
    header, row = kubectl_with_objects.get_rows("projects")
    assert header == ["NAME", "NAMESPACE", "READY", "MEMBERS", "AGE"]
    assert row[:-1] == ["blue", BLUE, "True", "1"]


def test_yaml_output_has_no_managed_fields(kubectl_with_objects: Kubectl) -> None:
    obj = yaml.safe_load(kubectl_with_objects("get", "app", "alpha", "-o", "yaml"))
    assert (obj["apiVersion"], obj["kind"], obj["spec"]) == (VERSION, "App", OBJECTS[0]["spec"])
    assert obj["metadata"].keys() >= {"name", "uid", "resourceVersion", "generation", "creationTimestamp", "labels"}
    assert "managedFields" not in obj["metadata"]


def test_json_output_of_a_list_is_a_list(kubectl_with_objects: Kubectl) -> None:
    listed = kubectl_with_objects.get_json("apps")
    assert listed["kind"] == "List"
    assert [item["kind"] for item in listed["items"]] == ["App"] * 5


def test_managed_fields_name_the_command_that_wrote_them(kubectl_with_objects: Kubectl) -> None:
    obj = json.loads(kubectl_with_objects("get", "app", "alpha", "-o", "json", "--show-managed-fields"))
    (entry,) = obj["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl-create", "Update")
    assert "f:displayName" in entry["fieldsV1"]["f:spec"]


def test_name_output_is_kind_and_name(kubectl_with_objects: Kubectl) -> None:
    assert kubectl_with_objects("get", "clusters", "-o", "name").split() == [
        f"cluster.{GROUP}/berlin",
        f"cluster.{GROUP}/munich",
    ]


def test_jsonpath_and_custom_columns_reach_into_objects(kubectl_with_objects: Kubectl) -> None:
    assert kubectl_with_objects("get", "apps", "-o", "jsonpath={.items[*].spec.config.chart.name}") == "nginx redis"
    table = split_columns(
        kubectl_with_objects("get", "apps", "-o", "custom-columns=N:.metadata.name,CHART:.spec.config.chart.name")
    )
    assert table[:3] == [["N", "CHART"], ["alpha", "nginx"], ["beta", "redis"]]


def test_all_namespaces_adds_a_column(kubectl_with_objects: Kubectl) -> None:
    header, *rows = kubectl_with_objects.get_rows("ws", "-A")
    assert header == ["NAMESPACE", "NAME", "STATUS", "REASON", "OWNER", "TEMPLATE", "RUNNER", "AGE"]
    # Without status and reason, which are set later, or never without runners.
    columns = [[*row[:2], *row[4:-1]] for row in rows]
    assert columns == [[BLUE, "one", "ada", "python", ""], [BLUE, "two", "ops", "go", "r1"]]
    assert kubectl_with_objects.get_names("ws", "-n", BLUE) == ["one", "two"]
    assert kubectl_with_objects.get_names("ws") == []


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=db", ["beta", "gamma"]),
        ("tier==db,old", ["gamma"]),
        ("tier!=web", ["beta", "delta", "gamma"]),
        ("tier in (web, db)", ["alpha", "beta", "epsilon", "gamma"]),
        ("tier notin (web)", ["beta", "delta", "gamma"]),
        ("!tier", ["delta"]),
        ("old=", ["gamma"]),
        ("tier=none", []),
    ],
)
def test_objects_are_selected_by_label(kubectl_with_objects: Kubectl, selector: str, names: list[str]) -> None:
    assert kubectl_with_objects.get_names("apps", "-l", selector) == names


@pytest.mark.parametrize(
    ("resource", "selector", "names"),
    [
        ("apps", "metadata.name=beta", ["beta"]),
        ("apps", "metadata.name!=beta", ["alpha", "delta", "epsilon", "gamma"]),
        ("apps", "spec.config.chart.name=redis", ["beta"]),
        ("apps", "spec.owner.user==ada,metadata.name!=alpha", ["beta"]),
        ("clusters", "spec.networkPeer=true", ["berlin"]),
        ("ws", f"metadata.namespace={BLUE},spec.owner.user=ada", ["one"]),
        ("ws", "spec.runnerRef.runner=r1", ["two"]),
        ("ws", "spec.templateRef.name!=go", ["one"]),
        ("ns", "status.phase=Active,metadata.name=" + BLUE, [BLUE]),
    ],
)
def test_objects_are_selected_by_field(
    kubectl_with_objects: Kubectl, resource: str, selector: str, names: list[str]
) -> None:
    assert kubectl_with_objects.get_names(resource, "-A", "--field-selector", selector) == names


def test_long_lists_are_read_in_chunks(kubectl_with_objects: Kubectl) -> None:
    log = kubectl_with_objects.expect_warnings("get", "apps", "--chunk-size=2", "-v=8")
    assert len(set(re.findall(r"/apps\?(?:continue=[^\s\"&]+&)?limit=2", log))) == 3
    assert kubectl_with_objects.get_names("apps", "--chunk-size=2") == ["alpha", "beta", "delta", "epsilon", "gamma"]


def test_rows_can_be_sorted_by_a_field(kubectl_with_objects: Kubectl) -> None:
    _, *rows = kubectl_with_objects.get_rows("apps", "--sort-by=.spec.displayName")
    assert [row[0] for row in rows] == ["epsilon", "delta", "gamma", "beta", "alpha"]


def test_labels_can_be_shown_as_columns(kubectl_with_objects: Kubectl) -> None:
    header, row = kubectl_with_objects.get_rows("app", "beta", "-L", "tier", "--show-labels")
    assert header[-2:] == ["TIER", "LABELS"]
    assert row[-2:] == ["db", "tier=db"]


def test_several_kinds_and_objects_can_be_read_at_once(kubectl_with_objects: Kubectl) -> None:
    assert kubectl_with_objects.get_names("clusters,projects") == ["berlin", "munich", "blue"]
    assert kubectl_with_objects.get_names("app/beta", "cluster/munich") == ["beta", "munich"]
    assert kubectl_with_objects.get_names(f"apps.v1.{GROUP}", "beta") == ["beta"]


def test_the_category_lists_all_management_kinds(kubectl_with_objects: Kubectl) -> None:
    output = kubectl_with_objects("get", "fairlead", "-A", "-o", "name").split()
    assert {line.partition(".")[0] for line in output} >= {"app", "cluster", "project", "devpodworkspaceinstance"}


def test_the_objects_of_a_file_can_be_read(kubectl_with_objects: Kubectl) -> None:
    output = kubectl_with_objects("get", "-f", "-", "-o", "name", body=to_yaml(*OBJECTS)).split()
    assert [line.rpartition("/")[2] for line in output] == [obj["metadata"]["name"] for obj in OBJECTS]


def test_an_empty_result_is_not_an_error(kubectl_with_objects: Kubectl) -> None:
    assert kubectl_with_objects.expect_warnings("get", "leases").startswith("No resources found")
    assert kubectl_with_objects("get", "app", "nope", "--ignore-not-found") == ""


def test_a_watch_prints_existing_objects_and_then_each_change(kubectl_with_objects: Kubectl) -> None:
    with kubectl_with_objects.watching(
        "get", "app", "delta", "--watch", "--output-watch-events", "-L", "seen"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[:2] == ["EVENT", "NAME"]
        assert process.stdout.readline().split()[:3] == ["ADDED", "delta", "Whiskey"]
        kubectl_with_objects("label", "app", "delta", "seen=once")
        changed = process.stdout.readline().split()
        assert (changed[:2], changed[-1]) == (["MODIFIED", "delta"], "once")
    assert kubectl_with_objects.get_names("app", "delta") == ["delta"], "a killed watch does not affect other requests"


def test_a_watch_with_a_selector_prints_added_and_deleted_for_label_changes(kubectl_with_objects: Kubectl) -> None:
    with kubectl_with_objects.watching(
        "get", "apps", "-l", "seen=twice", "--watch", "--output-watch-events"
    ) as process:
        assert process.stdout is not None
        kubectl_with_objects("label", "app", "epsilon", "seen=twice")
        assert process.stdout.readline().split()[:2] == ["EVENT", "NAME"]
        assert process.stdout.readline().split()[:2] == ["ADDED", "epsilon"]
        kubectl_with_objects("label", "app", "epsilon", "seen-")
        assert process.stdout.readline().split()[:2] == ["DELETED", "epsilon"]


def test_describe_shows_the_whole_object(kubectl_with_objects: Kubectl) -> None:
    output = kubectl_with_objects("describe", "app", "alpha")
    assert re.search(r"^Labels:\s+tier=web$", output, re.MULTILINE)
    assert re.search(r"^  Config:\n    Chart:\n      Name: +nginx\n      Version: +1.2.3$", output, re.MULTILINE)
    assert re.search(r"^Events:\s+<none>$", output, re.MULTILINE)


def test_describe_shows_the_event_of_a_project_once(kubectl_with_objects: Kubectl) -> None:
    kubectl_with_objects.wait_for_event("blue")
    output = kubectl_with_objects("describe", "project", "blue")
    events = output[output.index("\nEvents:") :].splitlines()[4:]
    assert [line.split(maxsplit=4)[i] for line in events for i in (0, 1, 3, 4)] == [
        "Normal",
        "NamespaceReady",
        "fairlead",
        f"namespace {BLUE} exists",
    ]


def test_events_are_selected_by_their_involved_object(kubectl_with_objects: Kubectl) -> None:
    kubectl_with_objects.wait_for_event("blue")
    header, *rows = kubectl_with_objects.get_rows(
        "events", "--field-selector", "involvedObject.name=blue,reason=NamespaceReady"
    )
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert {tuple(row[1:]) for row in rows} == {
        ("Normal", "NamespaceReady", "project/blue", f"namespace {BLUE} exists")
    }
    assert "NamespaceReady" in kubectl_with_objects("events", "--for", "project/blue")


def test_wait_returns_when_a_field_has_its_value(kubectl_with_objects: Kubectl) -> None:
    output = kubectl_with_objects("wait", "--for=jsonpath={.spec.displayName}=Zulu", "app/alpha", "--timeout=60s")
    assert output == f"app.{GROUP}/alpha condition met\n"
    command = ("wait", "--for=jsonpath={.metadata.annotations.go}=yes", "app/alpha", "--timeout=60s")
    with kubectl_with_objects.watching(*command) as process:
        kubectl_with_objects("annotate", "app", "alpha", "go=yes")
        assert process.wait(60) == 0


def test_wait_times_out(kubectl_with_objects: Kubectl) -> None:
    error = kubectl_with_objects.expect_failure("wait", "--for=condition=Ready", "cluster/berlin", "--timeout=1s")
    assert "timed out waiting for the condition" in error
