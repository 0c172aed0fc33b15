"""Scopes of keys over HTTP. The keys are an administrator's, so only their scope rejects requests."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.specification.api import PREFIX, Api, build_object, unique_name, virtual_clusters_path, workspaces_path

StatusGetter = Callable[..., list[int]]


@pytest.fixture(scope="module")
def projects(api: Api) -> tuple[str, str]:
    """Two projects with a virtual cluster and a space called `one` and `two` in each."""
    names = api.create_project(), api.create_project()
    for project in names:
        for name in ("one", "two"):
            api.create(virtual_clusters_path(project), build_object("VirtualClusterInstance", name, {"template": {}}))
            api.create(spaces_path(project), build_object("SpaceInstance", name, {"template": {}}))
    return names


@pytest.fixture(scope="module")
def get_statuses(api: Api) -> StatusGetter:
    def get_statuses_of_scope(scope: dict[str, Any], *paths: str) -> list[int]:
        """The statuses that a key with the scope gets for each path."""
        with api.use_key(api.create_key(scope=scope)["spec"]["key"]) as client:
            return [client.send("GET", path).status_code for path in paths]

    return get_statuses_of_scope


def spaces_path(project: str) -> str:
    return f"namespaces/{PREFIX}{project}/spaceinstances"


def test_a_scope_of_projects_allows_these_projects(projects: tuple[str, str], get_statuses: StatusGetter) -> None:
    here, there = projects
    paths = (workspaces_path(here), workspaces_path(there))
    assert get_statuses({"projects": [{"project": here}]}, *paths) == [200, 403]
    assert get_statuses({"projects": [{"project": "*"}]}, *paths) == [200, 200]


def test_a_scope_of_spaces_allows_these_spaces(projects: tuple[str, str], get_statuses: StatusGetter) -> None:
    here, there = projects
    paths = [
        f"{spaces_path(here)}/one",
        f"{spaces_path(here)}/two",
        f"{spaces_path(there)}/one",
        f"{virtual_clusters_path(here)}/one",
    ]
    assert get_statuses({"spaces": [{"project": here, "space": "one"}]}, *paths) == [200, 403, 403, 403]
    assert get_statuses({"spaces": [{"project": here, "space": "*"}]}, *paths) == [200, 200, 403, 403]


def test_a_scope_of_virtual_clusters_allows_these_virtual_clusters(
    projects: tuple[str, str], get_statuses: StatusGetter
) -> None:
    here, there = projects
    path_in = virtual_clusters_path
    paths = [f"{path_in(here)}/one", f"{path_in(here)}/two", f"{path_in(there)}/one", f"{spaces_path(here)}/one"]
    assert get_statuses({"virtualClusters": [{"project": here, "virtualCluster": "one"}]}, *paths) == [
        200,
        403,
        403,
        403,
    ]
    assert get_statuses({"virtualClusters": [{"project": here, "virtualCluster": "*"}]}, *paths) == [200, 200, 403, 403]


def test_the_command_line_scope_can_read_but_not_write(
    api: Api, projects: tuple[str, str], get_statuses: StatusGetter
) -> None:
    here, _ = projects
    scope = {"projects": [{"project": here}]}
    assert get_statuses(scope, "clusters") == [403]
    scope["allowServiceCli"] = True  # type: ignore[assignment]
    with api.use_key(api.create_key(scope=scope)["spec"]["key"]) as client:
        assert client.send("GET", "clusters").status_code == 200
        assert client.send("POST", "clusters", build_object("Cluster", unique_name())).status_code == 403


def build_rules(**rule: Any) -> dict[str, Any]:
    return {"rules": [rule]}


def test_deprecated_rules_are_still_enforced(projects: tuple[str, str], get_statuses: StatusGetter) -> None:
    here, there = projects
    ours = [{"group": "management.service.sh", "resources": ["apps"]}]
    assert get_statuses(build_rules(verbs=["list"], resources=ours), "apps", "apps/x", "clusters") == [200, 403, 403]
    namespaced = build_rules(namespaces=[f"{PREFIX}{here}"])
    assert get_statuses(namespaced, workspaces_path(here), workspaces_path(there), "apps") == [200, 403, 403]
    assert get_statuses(build_rules(namespaces=[""]), "apps", workspaces_path(here)) == [200, 403]
    named = build_rules(resources=ours, resourceNames=["mine"])
    assert get_statuses(named, "apps/mine", "apps/other") == [404, 403]
    assert get_statuses(build_rules(requestTargets=["Management"]), "apps") == [200]
    assert get_statuses(build_rules(cluster="berlin"), "apps") == [403]
    assert get_statuses(build_rules(virtualClusters=[{"name": "", "namespace": ""}]), "apps") == [403]


def test_rules_for_paths_allow_these_paths_only(api: Api) -> None:
    created = api.create_key(scope=build_rules(nonResourceURLs=["/version", "/openapi/*"]))
    with api.use_key(created["spec"]["key"]) as client:
        assert client.client.get("/kubernetes/management/openapi/v2").status_code == 200
        assert client.send("GET", "apps").status_code == 403


@pytest.mark.parametrize(
    "rule",
    [
        {"resourceNames": ["one"]},
        {"nonResourceURLs": ["/a*/b"]},
        {"resources": [{"group": "", "resources": ["*", "configmaps"]}]},
    ],
)
def test_a_contradictory_rule_is_rejected(api: Api, rule: dict[str, Any]) -> None:
    response = api.send(
        "POST", "ownedaccesskeys", build_object("OwnedAccessKey", unique_name("key"), {"scope": build_rules(**rule)})
    )
    assert (response.status_code, "spec.scope.rules[0]" in response.json()["message"]) == (422, True)


def test_a_direct_token_has_a_scope_of_the_same_shape(api: Api, projects: tuple[str, str]) -> None:
    here, _ = projects
    scope = {"allowServiceCli": True, "projects": [{"project": here}]}
    scope |= {"virtualClusters": [{"project": here, "virtualCluster": "*"}]}
    token = build_object("DirectClusterEndpointToken", "", {"scope": scope})
    assert api.create("directclusterendpointtokens", token)["spec"]["scope"] == scope
    token["spec"]["scope"] = {"projects": [{}]}
    assert api.send("POST", "directclusterendpointtokens", token).status_code == 422
