"""server.discovery.resources: legacy and aggregated discovery documents, which must agree."""

import json
import re
from dataclasses import replace
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

SPEC = {"spec": obj("The desired state.", size=string("The size."))}

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
ROTATION = Kind(
    "KeyRotation",
    "keyrotations",
    False,
    SPEC,
    "A rotation.",
    verbs=("create",),
    persisted=False,
    sensitivity=Sensitivity.NORMAL,
)
KEY = Kind(
    "Key",
    "keys",
    False,
    SPEC,
    "A key.",
    actions=(Action("rotate", ("create",), ROTATION),),
    sensitivity=Sensitivity.NORMAL,
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


def read_document(path: str, accept: str = "application/json", documents: Any = DOCUMENTS) -> Any:
    document = find_document(documents, path)
    assert document is not None, path
    return json.loads(build_reply(document, accept).body)


def find_resource(path: str, name: str) -> Any:
    return next(entry for entry in read_document(path)["resources"] if entry["name"] == name)


def find_aggregated_resource(path: str, name: str, version: str = "v2") -> Any:
    groups = read_document(path, AGGREGATED.format(version))["items"]
    return next(entry for group in groups for entry in group["versions"][0]["resources"] if entry["resource"] == name)


def test_the_core_group_has_its_versions_at_api():
    assert read_document("/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "fairlead.example.com:443"}],
    }


def test_the_core_group_is_served_even_without_kinds():
    documents = build_documents(Catalog((APP,)))
    assert read_document("/api", documents=documents)["versions"] == ["v1"]
    assert read_document("/api/v1", documents=documents)["resources"] == []


def test_resources_and_their_subresources_are_sorted_by_name():
    names = [entry["name"] for entry in read_document(MANAGEMENT)["resources"]]
    assert names == sorted(names)
    groups = read_document("/apis", AGGREGATED.format("v2"))["items"]
    resources = next(group for group in groups if group["metadata"]["name"] == MANAGEMENT_GROUP)["versions"][0][
        "resources"
    ]
    aggregated = [each["resource"] for each in resources]
    assert len(aggregated) > 1 and aggregated == sorted(aggregated)


def test_subresources_that_are_written_like_their_object_are_listed():
    space = replace(CONFIGMAP, name="Space", plural="spaces", extra_subresources=("finalize",))
    documents = build_documents(Catalog((space,)))
    entries = {entry["name"]: entry for entry in read_document("/api/v1", documents=documents)["resources"]}
    assert (entries["spaces/finalize"]["kind"], entries["spaces/finalize"]["verbs"]) == ("Space", ["update"])


def test_other_groups_are_listed_at_apis_in_the_order_of_declaration():
    content = read_document("/apis")
    assert (content["kind"], content["apiVersion"]) == ("APIGroupList", "v1")
    assert [group["name"] for group in content["groups"]] == [MANAGEMENT_GROUP, "authorization.k8s.io"]


def test_a_group_names_its_versions_and_the_preferred_one():
    version = {"groupVersion": f"{MANAGEMENT_GROUP}/v1", "version": "v1"}
    entry = {"name": MANAGEMENT_GROUP, "versions": [version], "preferredVersion": version}
    assert read_document(f"/apis/{MANAGEMENT_GROUP}") == {"kind": "APIGroup", "apiVersion": "v1", **entry}
    assert entry in read_document("/apis")["groups"]


def test_a_resource_is_listed_with_all_its_names():
    content = read_document(MANAGEMENT)
    assert (content["kind"], content["groupVersion"]) == ("APIResourceList", f"{MANAGEMENT_GROUP}/v1")
    entry = find_resource(MANAGEMENT, "apps")
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


def test_the_group_version_of_core_resources_is_v1():
    assert read_document("/api/v1")["groupVersion"] == "v1"
    assert find_resource("/api/v1", "configmaps")["namespaced"] is True


def test_verbs_are_sorted():
    assert find_resource(MANAGEMENT, "workspaces")["verbs"] == ["get", "list", "watch"]
    assert find_aggregated_resource("/apis", "workspaces")["verbs"] == ["get", "list", "watch"]


def test_a_kind_that_is_not_stored_has_no_storage_version():
    assert "storageVersionHash" not in find_resource("/apis/authorization.k8s.io/v1", "reviews")


def test_a_status_subresource_is_listed():
    assert find_resource(MANAGEMENT, "clusters/status") == {
        "name": "clusters/status",
        "singularName": "",
        "namespaced": False,
        "kind": "Cluster",
        "verbs": ["get", "patch", "update"],
    }
    assert "apps/status" not in [entry["name"] for entry in read_document(MANAGEMENT)["resources"]]


def test_a_subresource_of_another_group_names_that_group():
    entry = find_resource(MANAGEMENT, "workspaces/scale")
    assert (entry["group"], entry["version"], entry["kind"]) == ("autoscaling", "v1", "Scale")
    assert "group" not in find_resource(MANAGEMENT, "runners/accesskey")


def test_a_kind_that_is_not_persisted_has_only_the_verb_create():
    assert find_resource("/apis/authorization.k8s.io/v1", "reviews")["verbs"] == ["create"]
    entry = find_aggregated_resource("/apis", "reviews")
    assert (entry["verbs"], "subresources" in entry) == (["create"], False)


def test_actions_are_subresources_with_the_kind_that_they_return():
    def read_kind_and_verbs(name: str) -> tuple[str, list[str]]:
        entry = find_resource(MANAGEMENT, name)
        return entry["kind"], entry["verbs"]

    assert read_kind_and_verbs("keys/rotate") == ("KeyRotation", ["create"])
    assert read_kind_and_verbs("owners/wake") == ("Owner", ["create"])
    # An action that returns a persisted kind lists the objects that belong to the owner.
    assert read_kind_and_verbs("owners/keys") == ("KeyList", ["get"])
    kinds = {
        entry["subresource"]: entry["responseKind"]["kind"]
        for entry in find_aggregated_resource("/apis", "owners")["subresources"]
    }
    assert kinds == {"keys": "KeyList", "wake": "Owner"}


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_is_negotiated(path, version):
    accept = AGGREGATED.format(version)
    reply = build_reply(DOCUMENTS[path], f"{accept},application/json")
    assert reply.content_type == accept
    assert dict(reply.headers)["Vary"] == "Accept"
    content = json.loads(reply.body)
    assert (content["kind"], content["apiVersion"]) == ("APIGroupDiscoveryList", f"apidiscovery.k8s.io/{version}")


def test_a_client_of_both_versions_of_aggregated_discovery_gets_the_newer():
    accept = f"{AGGREGATED.format('v2beta1')},{AGGREGATED.format('v2')},application/json"
    assert read_document("/apis", accept)["apiVersion"] == "apidiscovery.k8s.io/v2"


def test_the_core_group_is_aggregated_at_api_and_the_others_at_apis():
    core_group = read_document("/api", AGGREGATED.format("v2"))["items"]
    assert [group["metadata"] for group in core_group] == [{}]
    other_groups = read_document("/apis", AGGREGATED.format("v2"))["items"]
    assert [group["metadata"]["name"] for group in other_groups] == [MANAGEMENT_GROUP, "authorization.k8s.io"]
    assert {version["freshness"] for group in core_group + other_groups for version in group["versions"]} == {"Current"}


def test_an_aggregated_resource_matches_the_legacy_one():
    assert find_aggregated_resource("/apis", "clusters") == {
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
    assert find_aggregated_resource("/apis", "apps")["shortNames"] == ["ap"]
    assert find_aggregated_resource("/api", "configmaps")["scope"] == "Namespaced"
    assert find_aggregated_resource("/apis", "workspaces")["subresources"][0]["responseKind"]["group"] == "autoscaling"


def test_discovery_can_be_read_as_yaml():
    reply = build_reply(DOCUMENTS[MANAGEMENT], "application/yaml")
    assert reply.content_type == "application/yaml"
    assert yaml.safe_load(reply.body) == read_document(MANAGEMENT)


def test_trailing_slashes_are_ignored():
    for path in ("/api", "/apis", f"/apis/{MANAGEMENT_GROUP}", MANAGEMENT, "/openapi/v3"):
        assert find_document(DOCUMENTS, f"{path}/") is find_document(DOCUMENTS, path) is not None


def test_groups_and_versions_that_are_not_served_have_no_document():
    for path in ("/apis/nope.example.com", f"/apis/{MANAGEMENT_GROUP}/v9", "/api/v9", "/apis/autoscaling"):
        assert find_document(DOCUMENTS, path) is None


def test_the_root_lists_every_document_the_metrics_and_the_health_checks():
    paths = read_document("/")["paths"]
    assert paths == sorted(paths)
    documents = {path for path in DOCUMENTS if path != "/" and not path.startswith(("/openapi/v3/", "/apis/apiext"))}
    assert set(paths) == documents | {"/healthz", "/livez", "/metrics", "/readyz"}


def test_the_api_group_can_be_changed():
    renamed_group = build_documents(Catalog((APP,), api_group="api.example.com"))
    assert find_document(renamed_group, MANAGEMENT) is None
    assert read_document("/apis/api.example.com/v1", documents=renamed_group)["resources"][0]["kind"] == "App"


def test_the_version_document_names_the_kubernetes_version():
    info = version_info("0.1.0")
    assert (info["major"], info["minor"], info["gitVersion"]) == ("1", "35", "v1.35.0+fairlead.0.1.0")
    assert all(isinstance(value, str) for value in info.values())
    assert info.keys() >= {"gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"}


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0.dev3+local-build", "1!2", "0"])
def test_every_version_of_fairlead_yields_a_git_version_that_clients_can_parse(version):
    text = version_info(version)["gitVersion"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+\+[0-9A-Za-z]+(\.[0-9A-Za-z]+)*", text)
    assert parse(text).release == (1, 35, 0)


def test_every_kind_is_in_legacy_and_aggregated_discovery():
    catalog = Catalog(KINDS)
    product = build_documents(catalog)
    for kind in catalog.kinds:
        path = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        legacy = {entry["name"]: entry for entry in read_document(path, documents=product)["resources"]}
        assert legacy[kind.plural]["verbs"] == sorted(kind.verbs)
        assert (f"{kind.plural}/status" in legacy) == kind.status_subresource
        for action in kind.actions:
            assert legacy[f"{kind.plural}/{action.name}"]["verbs"] == sorted(action.verbs)
        groups = read_document("/apis" if kind.group else "/api", AGGREGATED.format("v2"), product)["items"]
        kinds = [entry["responseKind"] for group in groups for entry in group["versions"][0]["resources"]]
        assert {"group": kind.group, "version": kind.version, "kind": kind.name} in kinds
