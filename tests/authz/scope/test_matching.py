"""The deprecated rules of scopes, for the management API and behind gateways."""

from dataclasses import replace

import pytest

from fairlead.authz.scope import gateway_target
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import MANAGEMENT, Decision, RequestInfo
from fairlead.core.scope import Scope
from tests.authz.scope.decisions import (
    ADA,
    check_gateway,
    core_request,
    denial_reason,
    is_in_scope,
    management_request,
    resources,
    scope_with_rule,
)
from tests.authz.scope.strategies import GROUP

CONFIGMAP = core_request("get", "configmaps", "default", "one")
STATUS = core_request("get", "configmaps", "default", "one", "status")


@pytest.mark.parametrize(
    ("scope", "target", "expected"),
    [
        (scope_with_rule(), CONFIGMAP, True),
        (scope_with_rule(verbs=("list",)), CONFIGMAP, False),
        (scope_with_rule(verbs=("*",)), CONFIGMAP, True),
        (scope_with_rule(resources=resources("configmaps")), CONFIGMAP, True),
        (scope_with_rule(resources=resources("configmaps")), STATUS, False),
        (scope_with_rule(resources=resources("configmaps", group=GROUP)), CONFIGMAP, False),
        (scope_with_rule(resources=resources()), STATUS, True),
        (scope_with_rule(resources=resources("*")), STATUS, True),
        (scope_with_rule(resources=resources("configmaps/*")), STATUS, True),
        (scope_with_rule(resources=resources("configmaps/*")), CONFIGMAP, False),
        (scope_with_rule(resources=resources("*/status")), STATUS, True),
        (scope_with_rule(resources=resources("*/status")), CONFIGMAP, False),
        (scope_with_rule(resources=resources("configmaps/status")), STATUS, True),
        (scope_with_rule(resources=resources("config*")), CONFIGMAP, False),
        (scope_with_rule(resources=resources(group="*")), CONFIGMAP, False),
        (scope_with_rule(resources=resources("configmaps"), object_names=("one",)), CONFIGMAP, True),
        (scope_with_rule(resources=resources("configmaps"), object_names=("two",)), CONFIGMAP, False),
        (scope_with_rule(resources=resources("configmaps"), object_names=("*",)), CONFIGMAP, False),
        (scope_with_rule(resources=resources("configmaps", objects=("one",))), CONFIGMAP, True),
        (scope_with_rule(resources=resources("configmaps", objects=("two",))), CONFIGMAP, False),
        (scope_with_rule(resources=resources("configmaps", objects=("one",)), object_names=("two",)), CONFIGMAP, False),
        (
            scope_with_rule(resources=resources("configmaps"), object_names=("one",)),
            core_request("create", "configmaps", "default"),
            False,
        ),
        (scope_with_rule(namespaces=("default",)), CONFIGMAP, True),
        (scope_with_rule(namespaces=("other", "")), CONFIGMAP, False),
        (scope_with_rule(namespaces=("*",)), CONFIGMAP, False),
        (scope_with_rule(namespaces=("",)), core_request("list", "configmaps"), False),
        (scope_with_rule(namespaces=("",)), management_request("list", "projects"), True),
        (scope_with_rule(namespaces=("",)), management_request("create", "projects"), True),
        (
            scope_with_rule(namespaces=("",)),
            RequestInfo("list", "/x", MANAGEMENT, "example.com", "v1", "things"),
            False,
        ),
        (scope_with_rule(namespaces=("",)), core_request("get", "namespaces", "x", "x"), True),
        (scope_with_rule(namespaces=("x",)), core_request("get", "namespaces", "x", "x"), True),
        (scope_with_rule(namespaces=("x",)), core_request("list", "namespaces"), False),
        (scope_with_rule(targets=("Management",)), CONFIGMAP, True),
        (scope_with_rule(targets=("Cluster",)), CONFIGMAP, False),
        (scope_with_rule(targets=("Bogus",)), CONFIGMAP, False),
        (scope_with_rule(cluster="berlin"), CONFIGMAP, False),
        (scope_with_rule(virtual_clusters=(("", ""),)), CONFIGMAP, False),
        (scope_with_rule(paths=("*",)), CONFIGMAP, False),
        (scope_with_rule(verbs=("get",)), replace(CONFIGMAP, verb="list"), False),
        (scope_with_rule(verbs=("get",)), replace(CONFIGMAP, verb="watch"), False),
        (scope_with_rule(verbs=("list",)), replace(CONFIGMAP, verb="list"), True),
        (scope_with_rule(verbs=("list",)), replace(CONFIGMAP, verb="watch"), False),
        (scope_with_rule(verbs=("watch",)), replace(CONFIGMAP, verb="watch"), True),
        (scope_with_rule(verbs=("get",)), core_request("watch", "configmaps", "default"), False),
    ],
)
def test_a_rule_matches_if_all_of_its_fields_match(scope: Scope, target: RequestInfo, expected: bool) -> None:
    assert is_in_scope(scope, target) is expected


@pytest.mark.parametrize(
    ("paths", "path", "expected"),
    [
        (("/metrics",), "/metrics", True),
        (("/metrics",), "/metrics/", True),
        (("/metrics/",), "/metrics", True),
        (("/metrics",), "/metrics/x", False),
        (("/logs/*",), "/logs/a", True),
        (("/logs/*",), "/logs/a/b", True),
        (("/logs/*",), "/logs", False),
        (("/logs/*",), "/logs/", False),
        (("/logs/*",), "/logsx", False),
        (("/logs/*",), "/logs/../metrics", False),
        (("/logs/*",), "/logs//metrics", False),
        (("/logs/*",), "/logs/%2e%2e/metrics", False),
        (("/lo*",), "/logs", False),
        (("*",), "/logs", True),
        (("/*",), "/logs", True),
    ],
)
@pytest.mark.parametrize("root", [MANAGEMENT, ""])
def test_a_path_matches_by_segments(paths: tuple[str, ...], path: str, expected: bool, root: str) -> None:
    assert is_in_scope(scope_with_rule(paths=paths), RequestInfo("get", path, root)) is expected


def test_platform_paths_are_not_a_request_target_of_rules() -> None:
    assert is_in_scope(
        scope_with_rule(paths=("/metrics",), targets=("Management",)), RequestInfo("get", "/metrics", MANAGEMENT)
    )
    assert not is_in_scope(
        scope_with_rule(paths=("/metrics",), targets=("Management",)), RequestInfo("get", "/metrics")
    )
    assert not is_in_scope(scope_with_rule(), RequestInfo("get", "/metrics", "elsewhere"))


@pytest.mark.parametrize("fields", [{"namespaces": ("",)}, {"object_names": ("x",)}, {"resources": resources()}])
def test_a_rule_for_resources_allows_no_paths(fields: dict[str, object]) -> None:
    assert not is_in_scope(scope_with_rule(**fields), RequestInfo("get", "/metrics", MANAGEMENT))
    assert not is_in_scope(scope_with_rule(paths=("/metrics",), **fields), RequestInfo("get", "/metrics", MANAGEMENT))


def test_t19_no_rule_allows_impersonation() -> None:
    target = RequestInfo("impersonate", "", MANAGEMENT, "", "v1", "users", name="admin")
    assert not is_in_scope(scope_with_rule(), target)
    assert "cannot impersonate" in denial_reason(scope_with_rule(), target)


# --- gateways ---


BERLIN = gateway_target(CLUSTER, "berlin")
DEV = gateway_target(SPACE, "dev", "p-web")
CI = gateway_target(VIRTUAL_CLUSTER, "ci", "p-web")
POD = RequestInfo("get", "/api/v1/namespaces/default/pods/x", "", "", "v1", "pods", "", "default", "x")
NODE = RequestInfo("get", "/api/v1/nodes/x", "", "", "v1", "nodes", "", "", "x")
HEALTH = RequestInfo("get", "/healthz")


@pytest.mark.parametrize(
    ("scope", "gateway", "inner", "expected"),
    [
        (scope_with_rule(), BERLIN, POD, True),
        (scope_with_rule(cluster="berlin"), BERLIN, POD, True),
        (scope_with_rule(cluster="oslo"), BERLIN, POD, False),
        (scope_with_rule(cluster="berlin"), CI, POD, False),
        (scope_with_rule(targets=("Management",)), BERLIN, POD, False),
        (scope_with_rule(targets=("Cluster",)), BERLIN, POD, True),
        (scope_with_rule(targets=("ProjectSpace",)), DEV, POD, True),
        (scope_with_rule(targets=("ProjectVirtualCluster",)), CI, POD, True),
        (scope_with_rule(targets=("VirtualCluster",)), CI, POD, True),
        (scope_with_rule(targets=("VirtualCluster",)), DEV, POD, False),
        (scope_with_rule(virtual_clusters=(("ci", ""),)), CI, POD, True),
        (scope_with_rule(virtual_clusters=(("", "p-web"),)), CI, POD, True),
        (scope_with_rule(virtual_clusters=(("ci", "p-lab"),)), CI, POD, False),
        (scope_with_rule(virtual_clusters=(("", ""),)), DEV, POD, False),
        (scope_with_rule(virtual_clusters=(("", ""),), cluster="berlin"), BERLIN, POD, False),
        (scope_with_rule(verbs=("get",), resources=resources("pods"), namespaces=("default",)), BERLIN, POD, True),
        (scope_with_rule(verbs=("get",), resources=resources("pods"), namespaces=("kube-system",)), BERLIN, POD, False),
        (scope_with_rule(namespaces=("",)), BERLIN, NODE, True),
        (scope_with_rule(namespaces=("",)), BERLIN, replace(NODE, verb="list", name=""), False),
        (scope_with_rule(namespaces=("",)), BERLIN, POD, False),
        (scope_with_rule(paths=("/healthz",)), BERLIN, HEALTH, True),
        (scope_with_rule(paths=("/livez",)), BERLIN, replace(HEALTH, path="/metrics"), False),
    ],
)
def test_behind_a_gateway_rules_match_the_gateway_and_the_inner_request(
    scope: Scope, gateway: RequestInfo, inner: RequestInfo, expected: bool
) -> None:
    assert (check_gateway(replace(ADA, scope=scope), gateway, inner) is None) is expected


def test_a_gateway_is_in_scope_only_if_all_inner_requests_are() -> None:
    assert is_in_scope(Scope(clusters=("berlin",)), BERLIN)
    assert is_in_scope(scope_with_rule(cluster="berlin"), BERLIN)
    assert not is_in_scope(scope_with_rule(cluster="berlin", verbs=("get",)), BERLIN)
    assert not is_in_scope(scope_with_rule(cluster="berlin", namespaces=("default",)), BERLIN)
    assert not is_in_scope(scope_with_rule(cluster="berlin", resources=resources("pods")), BERLIN)


def test_a_denial_at_a_gateway_says_which_entry_is_needed() -> None:
    decision = check_gateway(replace(ADA, scope=Scope()), CI, POD)
    prefix = 'outside the scope of access key "ci", which is empty: it needs '
    reason = prefix + 'an entry for project "web" or its virtual cluster "ci"'
    assert decision == Decision(False, reason, is_about_scope=True)


@pytest.mark.parametrize(
    ("root", "name", "namespace"),
    [(CLUSTER, "", ""), (CLUSTER, "berlin", "p-web"), (SPACE, "dev", ""), (SPACE, "", "p-web"), (MANAGEMENT, "x", "")],
)
def test_an_invalid_gateway_raises(root: str, name: str, namespace: str) -> None:
    with pytest.raises(ValueError, match="not a gateway"):
        gateway_target(root, name, namespace)
