"""kubectl reads: tables, every output format, selectors, paging, watches."""

import json
import re

import pytest
import yaml

from tests.clients.objects import app, as_yaml, cluster, project, workspace
from tests.clients.server import GROUP, VERSION
from tests.harness.kubectl import Kubectl, cut

BLUE = "service-p-blue"

OBJECTS = (
    app("alpha", {"tier": "web"}, displayName="Zulu", config={"chart": {"name": "nginx", "version": "1.2.3"}}),
    app("beta", {"tier": "db"}, displayName="Yankee", config={"chart": {"name": "redis"}}, owner={"user": "ada"}),
    app("gamma", {"tier": "db", "old": ""}, displayName="X-ray", recommendedApp=["cluster", "space"]),
    app("delta", displayName="Whiskey"),
    app("epsilon", {"tier": "web"}, displayName="Victor"),
    cluster("berlin", displayName="Berlin", networkPeer=True),
    cluster("munich", displayName="Munich"),
    project("blue", displayName="Blue", members=[{"kind": "User", "name": "admin"}]),
    workspace("one", BLUE, owner={"user": "ada"}, templateRef={"name": "python"}, runnerRef={}),
    workspace("two", BLUE, owner={"team": "ops"}, templateRef={"name": "go"}, runnerRef={"runner": "r1"}),
)


@pytest.fixture(scope="module")
def stocked(kubectl: Kubectl) -> Kubectl:
    """kubectl, with something there to read. Nothing here changes it, but for one annotation and one label."""
    kubectl("create", "-f", "-", body=as_yaml(*OBJECTS))
    return kubectl


def test_get_prints_a_table_with_the_columns_of_the_kind(stocked: Kubectl) -> None:
    header, first, *_ = stocked.rows("apps")
    assert header == ["NAME", "DISPLAY NAME", "CHART", "VERSION", "AGE"]
    assert first[:-1] == ["alpha", "Zulu", "nginx", "1.2.3"]
    assert re.fullmatch(r"\d+s", first[-1])


def test_wide_output_has_more_columns(stocked: Kubectl) -> None:
    header, row = stocked.rows("app", "gamma", "-o", "wide")
    assert header[5:] == ["REPOSITORY", "RECOMMENDED"]
    assert row[6] == "cluster,space"


def test_a_projects_row_tells_its_namespace_and_that_it_is_ready(stocked: Kubectl) -> None:
    stocked("wait", "--for=condition=Ready", "project/blue", "--timeout=10s")
    header, row = stocked.rows("projects")
    assert header == ["NAME", "NAMESPACE", "READY", "MEMBERS", "AGE"]
    assert row[:-1] == ["blue", BLUE, "True", "1"]


def test_yaml_output_is_the_object_without_its_housekeeping(stocked: Kubectl) -> None:
    obj = yaml.safe_load(stocked("get", "app", "alpha", "-o", "yaml"))
    assert (obj["apiVersion"], obj["kind"], obj["spec"]) == (VERSION, "App", OBJECTS[0]["spec"])
    assert obj["metadata"].keys() >= {"name", "uid", "resourceVersion", "generation", "creationTimestamp", "labels"}
    assert "managedFields" not in obj["metadata"]


def test_json_output_of_a_list_is_a_list(stocked: Kubectl) -> None:
    listed = stocked.read("apps")
    assert listed["kind"] == "List"
    assert [item["kind"] for item in listed["items"]] == ["App"] * 5


def test_managed_fields_name_the_command_that_wrote_them(stocked: Kubectl) -> None:
    obj = json.loads(stocked("get", "app", "alpha", "-o", "json", "--show-managed-fields"))
    (entry,) = obj["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl-create", "Update")
    assert "f:displayName" in entry["fieldsV1"]["f:spec"]


def test_name_output_is_kind_and_name(stocked: Kubectl) -> None:
    assert stocked("get", "clusters", "-o", "name").split() == [f"cluster.{GROUP}/berlin", f"cluster.{GROUP}/munich"]


def test_jsonpath_and_custom_columns_reach_into_objects(stocked: Kubectl) -> None:
    assert stocked("get", "apps", "-o", "jsonpath={.items[*].spec.config.chart.name}") == "nginx redis"
    table = cut(stocked("get", "apps", "-o", "custom-columns=N:.metadata.name,CHART:.spec.config.chart.name"))
    assert table[:3] == [["N", "CHART"], ["alpha", "nginx"], ["beta", "redis"]]


def test_all_namespaces_adds_a_column(stocked: Kubectl) -> None:
    header, *rows = stocked.rows("ws", "-A")
    assert header == ["NAMESPACE", "NAME", "PHASE", "OWNER", "TEMPLATE", "RUNNER", "AGE"]
    told = [[*row[:2], *row[3:-1]] for row in rows]  # the phase comes a moment later, or not at all without runners
    assert told == [[BLUE, "one", "ada", "python", ""], [BLUE, "two", "ops", "go", "r1"]]
    assert stocked.names("ws", "-n", BLUE) == ["one", "two"]
    assert stocked.names("ws") == []


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
def test_labels_select(stocked: Kubectl, selector: str, names: list[str]) -> None:
    assert stocked.names("apps", "-l", selector) == names


@pytest.mark.parametrize(
    ("what", "selector", "names"),
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
def test_fields_select(stocked: Kubectl, what: str, selector: str, names: list[str]) -> None:
    assert stocked.names(what, "-A", "--field-selector", selector) == names


def test_big_lists_come_in_chunks(stocked: Kubectl) -> None:
    asked = stocked.warned("get", "apps", "--chunk-size=2", "-v=8")
    assert len(set(re.findall(r"/apps\?(?:continue=[^\s\"&]+&)?limit=2", asked))) == 3
    assert stocked.names("apps", "--chunk-size=2") == ["alpha", "beta", "delta", "epsilon", "gamma"]


def test_rows_can_be_sorted_by_a_field(stocked: Kubectl) -> None:
    _, *rows = stocked.rows("apps", "--sort-by=.spec.displayName")
    assert [row[0] for row in rows] == ["epsilon", "delta", "gamma", "beta", "alpha"]


def test_labels_can_be_shown_as_columns(stocked: Kubectl) -> None:
    header, row = stocked.rows("app", "beta", "-L", "tier", "--show-labels")
    assert header[-2:] == ["TIER", "LABELS"]
    assert row[-2:] == ["db", "tier=db"]


def test_several_kinds_and_objects_can_be_asked_for_at_once(stocked: Kubectl) -> None:
    assert stocked.names("clusters,projects") == ["berlin", "munich", "blue"]
    assert stocked.names("app/beta", "cluster/munich") == ["beta", "munich"]
    assert stocked.names(f"apps.v1.{GROUP}", "beta") == ["beta"]


def test_the_category_lists_all_management_kinds(stocked: Kubectl) -> None:
    found = stocked("get", "fairlead", "-A", "-o", "name").split()
    assert {each.partition(".")[0] for each in found} >= {"app", "cluster", "project", "devpodworkspaceinstance"}


def test_what_a_file_names_can_be_read_back(stocked: Kubectl) -> None:
    found = stocked("get", "-f", "-", "-o", "name", body=as_yaml(*OBJECTS)).split()
    assert [each.rpartition("/")[2] for each in found] == [each["metadata"]["name"] for each in OBJECTS]


def test_nothing_found_is_said_and_no_error(stocked: Kubectl) -> None:
    assert stocked.warned("get", "leases").startswith("No resources found")
    assert stocked("get", "app", "nope", "--ignore-not-found") == ""


def test_a_watch_shows_what_is_there_and_then_each_change(stocked: Kubectl) -> None:
    with stocked.watching("get", "app", "delta", "--watch", "--output-watch-events", "-L", "seen") as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[:2] == ["EVENT", "NAME"]
        assert process.stdout.readline().split()[:3] == ["ADDED", "delta", "Whiskey"]
        stocked("label", "app", "delta", "seen=once")
        changed = process.stdout.readline().split()
        assert (changed[:2], changed[-1]) == (["MODIFIED", "delta"], "once")
    assert stocked.names("app", "delta") == ["delta"], "a watch that is killed troubles nobody else"


def test_a_watch_with_a_selector_tells_when_an_object_comes_and_goes(stocked: Kubectl) -> None:
    with stocked.watching("get", "apps", "-l", "seen=twice", "--watch", "--output-watch-events") as process:
        assert process.stdout is not None
        stocked("label", "app", "epsilon", "seen=twice")
        assert process.stdout.readline().split()[:2] == ["EVENT", "NAME"]
        assert process.stdout.readline().split()[:2] == ["ADDED", "epsilon"]
        stocked("label", "app", "epsilon", "seen-")
        assert process.stdout.readline().split()[:2] == ["DELETED", "epsilon"]


def test_describe_shows_the_whole_object(stocked: Kubectl) -> None:
    told = stocked("describe", "app", "alpha")
    assert re.search(r"^Labels:\s+tier=web$", told, re.MULTILINE)
    assert re.search(r"^  Config:\n    Chart:\n      Name: +nginx\n      Version: +1.2.3$", told, re.MULTILINE)
    assert re.search(r"^Events:\s+<none>$", told, re.MULTILINE)


def test_describe_shows_what_happened_to_a_project_once(stocked: Kubectl) -> None:
    stocked.await_event("blue")
    told = stocked("describe", "project", "blue")
    events = told[told.index("\nEvents:") :].splitlines()[4:]
    assert [line.split(maxsplit=4)[i] for line in events for i in (0, 1, 3, 4)] == [
        "Normal",
        "NamespaceReady",
        "fairlead",
        f"namespace {BLUE} exists",
    ]


def test_events_can_be_listed_and_selected_by_what_they_are_about(stocked: Kubectl) -> None:
    stocked.await_event("blue")
    header, *rows = stocked.rows("events", "--field-selector", "involvedObject.name=blue,reason=NamespaceReady")
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert {tuple(row[1:]) for row in rows} == {
        ("Normal", "NamespaceReady", "project/blue", f"namespace {BLUE} exists")
    }
    assert "NamespaceReady" in stocked("events", "--for", "project/blue")


def test_wait_returns_when_a_field_has_its_value(stocked: Kubectl) -> None:
    said = stocked("wait", "--for=jsonpath={.spec.displayName}=Zulu", "app/alpha", "--timeout=20s")
    assert said == f"app.{GROUP}/alpha condition met\n"
    waits = ("wait", "--for=jsonpath={.metadata.annotations.go}=yes", "app/alpha", "--timeout=20s")
    with stocked.watching(*waits) as process:
        stocked("annotate", "app", "alpha", "go=yes")
        assert process.wait(20) == 0


def test_wait_gives_up_in_the_end(stocked: Kubectl) -> None:
    said = stocked.refused("wait", "--for=condition=Ready", "cluster/berlin", "--timeout=1s")
    assert "timed out waiting for the condition" in said
