"""What a scope lets through, seen from outside: the key is an administrator's, so only its scope refuses anything."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.specification.api import PREFIX, Api, body, fresh, virtual_clusters, workspaces

Codes = Callable[..., list[int]]


@pytest.fixture(scope="module")
def projects(api: Api) -> tuple[str, str]:
    """Two projects with a virtual cluster and a space called `one` and `two` in each."""
    names = api.project(), api.project()
    for project in names:
        for name in ("one", "two"):
            api.make(virtual_clusters(project), body("VirtualClusterInstance", name, {"template": {}}))
            api.make(spaces(project), body("SpaceInstance", name, {"template": {}}))
    return names


@pytest.fixture(scope="module")
def codes(api: Api) -> Codes:
    def asked(scope: dict[str, Any], *paths: str) -> list[int]:
        """What a key with the scope is answered for each path."""
        with api.holding(api.key(scope=scope)["spec"]["key"]) as holder:
            return [holder.send("GET", path).status_code for path in paths]

    return asked


def spaces(project: str) -> str:
    return f"namespaces/{PREFIX}{project}/spaceinstances"


def test_a_scope_of_projects_opens_these_projects(projects: tuple[str, str], codes: Codes) -> None:
    here, there = projects
    paths = (workspaces(here), workspaces(there))
    assert codes({"projects": [{"project": here}]}, *paths) == [200, 403]
    assert codes({"projects": [{"project": "*"}]}, *paths) == [200, 200]


def test_a_scope_of_spaces_opens_these_spaces(projects: tuple[str, str], codes: Codes) -> None:
    here, there = projects
    paths = [f"{spaces(here)}/one", f"{spaces(here)}/two", f"{spaces(there)}/one", f"{virtual_clusters(here)}/one"]
    assert codes({"spaces": [{"project": here, "space": "one"}]}, *paths) == [200, 403, 403, 403]
    assert codes({"spaces": [{"project": here, "space": "*"}]}, *paths) == [200, 200, 403, 403]


def test_a_scope_of_virtual_clusters_opens_these_virtual_clusters(projects: tuple[str, str], codes: Codes) -> None:
    here, there = projects
    of = virtual_clusters
    paths = [f"{of(here)}/one", f"{of(here)}/two", f"{of(there)}/one", f"{spaces(here)}/one"]
    assert codes({"virtualClusters": [{"project": here, "virtualCluster": "one"}]}, *paths) == [200, 403, 403, 403]
    assert codes({"virtualClusters": [{"project": here, "virtualCluster": "*"}]}, *paths) == [200, 200, 403, 403]


def test_the_command_line_tool_may_read_but_not_write(api: Api, projects: tuple[str, str], codes: Codes) -> None:
    here, _ = projects
    scope = {"projects": [{"project": here}]}
    assert codes(scope, "clusters") == [403]
    scope["allowServiceCli"] = True  # type: ignore[assignment]
    with api.holding(api.key(scope=scope)["spec"]["key"]) as holder:
        assert holder.send("GET", "clusters").status_code == 200
        assert holder.send("POST", "clusters", body("Cluster", fresh())).status_code == 403


def rules(**rule: Any) -> dict[str, Any]:
    return {"rules": [rule]}


def test_deprecated_rules_still_decide(projects: tuple[str, str], codes: Codes) -> None:
    here, there = projects
    ours = [{"group": "management.service.sh", "resources": ["apps"]}]
    assert codes(rules(verbs=["list"], resources=ours), "apps", "apps/x", "clusters") == [200, 403, 403]
    namespaced = rules(namespaces=[f"{PREFIX}{here}"])
    assert codes(namespaced, workspaces(here), workspaces(there), "apps") == [200, 403, 403]
    assert codes(rules(namespaces=[""]), "apps", workspaces(here)) == [200, 403]
    named = rules(resources=ours, resourceNames=["mine"])
    assert codes(named, "apps/mine", "apps/other") == [404, 403]
    assert codes(rules(requestTargets=["Management"]), "apps") == [200]
    assert codes(rules(cluster="berlin"), "apps") == [403]
    assert codes(rules(virtualClusters=[{"name": "", "namespace": ""}]), "apps") == [403]


def test_rules_about_paths_open_these_paths_only(api: Api) -> None:
    made = api.key(scope=rules(nonResourceURLs=["/version", "/openapi/*"]))
    with api.holding(made["spec"]["key"]) as holder:
        assert holder.client.get("/kubernetes/management/openapi/v2").status_code == 200
        assert holder.send("GET", "apps").status_code == 403


@pytest.mark.parametrize(
    "rule",
    [
        {"resourceNames": ["one"]},
        {"nonResourceURLs": ["/a*/b"]},
        {"resources": [{"group": "", "resources": ["*", "configmaps"]}]},
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(api: Api, rule: dict[str, Any]) -> None:
    refused = api.send("POST", "ownedaccesskeys", body("OwnedAccessKey", fresh("key"), {"scope": rules(**rule)}))
    assert (refused.status_code, "spec.scope.rules[0]" in refused.json()["message"]) == (422, True)


def test_a_direct_token_has_a_scope_of_the_same_shape(api: Api, projects: tuple[str, str]) -> None:
    here, _ = projects
    scope = {"allowServiceCli": True, "projects": [{"project": here}]}
    scope |= {"virtualClusters": [{"project": here, "virtualCluster": "*"}]}
    token = body("DirectClusterEndpointToken", "", {"scope": scope})
    assert api.make("directclusterendpointtokens", token)["spec"]["scope"] == scope
    token["spec"]["scope"] = {"projects": [{}]}
    assert api.send("POST", "directclusterendpointtokens", token).status_code == 422
