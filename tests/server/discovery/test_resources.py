"""Discovery: two generations of the same facts, and both of them true."""

import json
import re
from typing import Any

import pytest
import yaml
from packaging.version import parse

from fairlead.kinds import KINDS
from fairlead.registry.kind import ALL_VERBS, MANAGEMENT_GROUP, Action, Catalog, Kind, Sensitivity
from fairlead.registry.schema import obj, string
from fairlead.server.discovery.document import build_reply, find_document
from fairlead.server.discovery.documents import build_documents
from fairlead.server.discovery.resources import Subresource, version_info

SPEC = {"spec": obj("What is wanted.", size=string("How big."))}

APP = Kind(
    "App",
    "apps",
    False,
    SPEC,
    "An app.",
    short_names=("ap",),
    categories=("all", "mine"),
    sensitivity=Sensitivity.NORMAL,
)
CLUSTER = Kind(
    "Cluster", "clusters", False, SPEC, "A cluster.", status_subresource=True, sensitivity=Sensitivity.NORMAL
)
WORKSPACE = Kind(
    "Workspace",
    "workspaces",
    True,
    SPEC,
    "A workspace.",
    verbs=("watch", "list", "get"),
    sensitivity=Sensitivity.NORMAL,
)
RUNNER = Kind("Runner", "runners", False, SPEC, "A runner.", sensitivity=Sensitivity.NORMAL)
ACCESS_KEY = Kind(
    "RunnerAccessKey", "runneraccesskeys", False, SPEC, "A key.", verbs=("get",), sensitivity=Sensitivity.CREDENTIAL
)
SCALE = Kind(
    "Scale", "scales", True, SPEC, "A scale.", group="autoscaling", verbs=("get",), sensitivity=Sensitivity.NORMAL
)
CONFIGMAP = Kind("ConfigMap", "configmaps", True, {}, "Data.", group="", sensitivity=Sensitivity.NORMAL)
REVIEW = Kind(
    "Review",
    "reviews",
    False,
    SPEC,
    "A review.",
    group="authorization.k8s.io",
    verbs=("create",),
    persisted=False,
    sensitivity=Sensitivity.NORMAL,
)
TURN = Kind(
    "KeyTurn", "keyturns", False, SPEC, "A turn.", verbs=("create",), persisted=False, sensitivity=Sensitivity.NORMAL
)
KEY = Kind(
    "Key", "keys", False, SPEC, "A key.", actions=(Action("turn", ("create",), TURN),), sensitivity=Sensitivity.NORMAL
)
OWNER = Kind(
    "Owner",
    "owners",
    False,
    SPEC,
    "An owner.",
    actions=(Action("keys", ("get",), KEY), Action("wake", ("create",))),
    sensitivity=Sensitivity.NORMAL,
)

SUBRESOURCES = (
    Subresource(MANAGEMENT_GROUP, "runners", "accesskey", ACCESS_KEY, ("get",)),
    Subresource(MANAGEMENT_GROUP, "workspaces", "scale", SCALE, ("update", "get")),
)
CATALOG = Catalog((APP, CLUSTER, WORKSPACE, RUNNER, KEY, OWNER, CONFIGMAP, REVIEW))
DOCUMENTS = build_documents(CATALOG, address="fairlead.example.com:443", subresources=SUBRESOURCES)

MANAGEMENT = f"/apis/{MANAGEMENT_GROUP}/v1"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"


def read(path: str, accept: str = "application/json", among: Any = DOCUMENTS) -> Any:
    document = find_document(among, path)
    assert document is not None, path
    return json.loads(build_reply(document, accept).body)


def resource(path: str, name: str) -> Any:
    return next(entry for entry in read(path)["resources"] if entry["name"] == name)


def discovered(path: str, name: str, version: str = "v2") -> Any:
    listed = read(path, AGGREGATED.format(version))["items"]
    return next(each for group in listed for each in group["versions"][0]["resources"] if each["resource"] == name)


def test_the_core_group_has_its_versions_at_api():
    assert read("/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "fairlead.example.com:443"}],
    }


def test_the_core_group_answers_even_without_kinds():
    small = build_documents(Catalog((APP,)))
    assert read("/api", among=small)["versions"] == ["v1"]
    assert read("/api/v1", among=small)["resources"] == []


def test_other_groups_are_listed_at_apis_in_the_order_of_declaration():
    listed = read("/apis")
    assert (listed["kind"], listed["apiVersion"]) == ("APIGroupList", "v1")
    assert [group["name"] for group in listed["groups"]] == [MANAGEMENT_GROUP, "authorization.k8s.io"]


def test_a_group_names_its_versions_and_the_preferred_one():
    version = {"groupVersion": f"{MANAGEMENT_GROUP}/v1", "version": "v1"}
    entry = {"name": MANAGEMENT_GROUP, "versions": [version], "preferredVersion": version}
    assert read(f"/apis/{MANAGEMENT_GROUP}") == {"kind": "APIGroup", "apiVersion": "v1", **entry}
    assert entry in read("/apis")["groups"]


def test_a_resource_is_listed_with_all_that_clients_look_it_up_by():
    listed = read(MANAGEMENT)
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", f"{MANAGEMENT_GROUP}/v1")
    entry = resource(MANAGEMENT, "apps")
    assert re.fullmatch(r"[A-Za-z0-9+/]{11}=", entry.pop("storageVersionHash"))
    assert entry == {
        "name": "apps",
        "singularName": "app",
        "namespaced": False,
        "kind": "App",
        "verbs": list(ALL_VERBS),
        "shortNames": ["ap"],
        "categories": ["all", "mine"],
    }


def test_the_core_groups_resources_carry_the_bare_version():
    assert read("/api/v1")["groupVersion"] == "v1"
    assert resource("/api/v1", "configmaps")["namespaced"] is True


def test_verbs_are_sorted():
    assert resource(MANAGEMENT, "workspaces")["verbs"] == ["get", "list", "watch"]
    assert discovered("/apis", "workspaces")["verbs"] == ["get", "list", "watch"]


def test_a_kind_that_is_not_stored_has_no_storage_version():
    assert "storageVersionHash" not in resource("/apis/authorization.k8s.io/v1", "reviews")


def test_a_status_that_a_controller_owns_is_a_subresource():
    assert resource(MANAGEMENT, "clusters/status") == {
        "name": "clusters/status",
        "singularName": "",
        "namespaced": False,
        "kind": "Cluster",
        "verbs": ["get", "patch", "update"],
    }
    assert "apps/status" not in [entry["name"] for entry in read(MANAGEMENT)["resources"]]


def test_a_subresource_of_another_group_says_so():
    entry = resource(MANAGEMENT, "workspaces/scale")
    assert (entry["group"], entry["version"], entry["kind"]) == ("autoscaling", "v1", "Scale")
    assert "group" not in resource(MANAGEMENT, "runners/accesskey")


def test_a_kind_that_is_only_asked_can_be_created_and_nothing_else():
    assert resource("/apis/authorization.k8s.io/v1", "reviews")["verbs"] == ["create"]
    entry = discovered("/apis", "reviews")
    assert (entry["verbs"], "subresources" in entry) == (["create"], False)


def test_actions_are_subresources_with_what_they_answer():
    def told(name: str) -> tuple[str, list[str]]:
        entry = resource(MANAGEMENT, name)
        return entry["kind"], entry["verbs"]

    assert told("keys/turn") == ("KeyTurn", ["create"])
    assert told("owners/wake") == ("Owner", ["create"])
    # What is stored elsewhere is listed there, as far as it belongs to the object.
    assert told("owners/keys") == ("KeyList", ["get"])
    kinds = {
        each["subresource"]: each["responseKind"]["kind"] for each in discovered("/apis", "owners")["subresources"]
    }
    assert kinds == {"keys": "KeyList", "wake": "Owner"}


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_is_for_those_who_ask_for_it(path, version):
    accept = AGGREGATED.format(version)
    reply = build_reply(DOCUMENTS[path], f"{accept},application/json")
    assert reply.content_type == accept
    assert dict(reply.headers)["Vary"] == "Accept"
    listed = json.loads(reply.body)
    assert (listed["kind"], listed["apiVersion"]) == ("APIGroupDiscoveryList", f"apidiscovery.k8s.io/{version}")


def test_who_can_read_both_versions_of_aggregated_discovery_gets_the_newer():
    accept = f"{AGGREGATED.format('v2beta1')},{AGGREGATED.format('v2')},application/json"
    assert read("/apis", accept)["apiVersion"] == "apidiscovery.k8s.io/v2"


def test_the_core_group_is_aggregated_at_api_and_the_others_at_apis():
    core = read("/api", AGGREGATED.format("v2"))["items"]
    assert [group["metadata"] for group in core] == [{}]
    named = read("/apis", AGGREGATED.format("v2"))["items"]
    assert [group["metadata"]["name"] for group in named] == [MANAGEMENT_GROUP, "authorization.k8s.io"]
    assert {version["freshness"] for group in core + named for version in group["versions"]} == {"Current"}


def test_an_aggregated_resource_says_the_same_as_the_plain_one():
    assert discovered("/apis", "clusters") == {
        "resource": "clusters",
        "responseKind": {"group": MANAGEMENT_GROUP, "version": "v1", "kind": "Cluster"},
        "scope": "Cluster",
        "singularResource": "cluster",
        "verbs": list(ALL_VERBS),
        "subresources": [
            {
                "subresource": "status",
                "responseKind": {"group": MANAGEMENT_GROUP, "version": "v1", "kind": "Cluster"},
                "verbs": ["get", "patch", "update"],
            }
        ],
    }
    assert discovered("/apis", "apps")["shortNames"] == ["ap"]
    assert discovered("/api", "configmaps")["scope"] == "Namespaced"
    assert discovered("/apis", "workspaces")["subresources"][0]["responseKind"]["group"] == "autoscaling"


def test_discovery_can_be_read_as_yaml():
    reply = build_reply(DOCUMENTS[MANAGEMENT], "application/yaml")
    assert reply.content_type == "application/yaml"
    assert yaml.safe_load(reply.body) == read(MANAGEMENT)


def test_slashes_at_the_end_change_nothing():
    for path in ("/api", "/apis", f"/apis/{MANAGEMENT_GROUP}", MANAGEMENT, "/openapi/v3"):
        assert find_document(DOCUMENTS, f"{path}/") is find_document(DOCUMENTS, path) is not None


def test_groups_and_versions_that_are_not_served_have_no_document():
    for path in ("/apis/nope.example.com", f"/apis/{MANAGEMENT_GROUP}/v9", "/api/v9", "/apis/autoscaling"):
        assert find_document(DOCUMENTS, path) is None


def test_the_root_lists_every_document_the_metrics_and_the_health_checks():
    paths = read("/")["paths"]
    assert paths == sorted(paths)
    served = {path for path in DOCUMENTS if path != "/" and not path.startswith(("/openapi/v3/", "/apis/apiext"))}
    assert set(paths) == served | {"/healthz", "/livez", "/metrics", "/readyz"}


def test_a_vendors_own_group_takes_the_place_of_ours():
    moved = build_documents(Catalog((APP,), api_group="api.example.com"))
    assert find_document(moved, MANAGEMENT) is None
    assert read("/apis/api.example.com/v1", among=moved)["resources"][0]["kind"] == "App"


def test_the_version_document_says_which_kubernetes_api_is_spoken():
    info = version_info("0.1.0")
    assert (info["major"], info["minor"], info["gitVersion"]) == ("1", "35", "v1.35.0+fairlead.0.1.0")
    assert all(isinstance(value, str) for value in info.values())
    assert info.keys() >= {"gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"}


@pytest.mark.parametrize("ours", ["0.1.0", "0.2.0.dev3+local-build", "1!2", "0"])
def test_every_version_of_ours_makes_a_version_that_clients_can_parse(ours):
    text = version_info(ours)["gitVersion"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+\+[0-9A-Za-z]+(\.[0-9A-Za-z]+)*", text)
    assert parse(text).release == (1, 35, 0)


def test_there_are_no_custom_resource_definitions_and_one_may_ask():
    listed = read("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert (listed["kind"], listed["items"]) == ("CustomResourceDefinitionList", [])


def test_every_kind_of_the_product_is_discovered_in_both_generations():
    catalog = Catalog(KINDS)
    product = build_documents(catalog)
    for kind in catalog.kinds:
        path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        plain = {entry["name"]: entry for entry in read(path, among=product)["resources"]}
        assert plain[kind.plural]["verbs"] == sorted(kind.verbs)
        assert (f"{kind.plural}/status" in plain) == kind.status_subresource
        for action in kind.actions:
            assert plain[f"{kind.plural}/{action.name}"]["verbs"] == sorted(action.verbs)
        groups = read("/apis" if kind.group else "/api", AGGREGATED.format("v2"), product)["items"]
        kinds = [each["responseKind"] for group in groups for each in group["versions"][0]["resources"]]
        assert {"group": kind.group, "version": kind.version, "kind": kind.name} in kinds
