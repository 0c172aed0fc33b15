"""The deprecated rules of scopes, on the management API and behind gateways."""

from dataclasses import replace

import pytest

from fairlead.authz.scope import gateway_target
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import MANAGEMENT, Decision, RequestInfo
from fairlead.core.scope import Scope
from tests.authz.scope.decisions import ADA, core, inside, ours, refusal, resources, rule, through
from tests.authz.scope.strategies import GROUP

CONFIGMAP = core("get", "configmaps", "default", "one")
STATUS = core("get", "configmaps", "default", "one", "status")


@pytest.mark.parametrize(
    ("scope", "target", "expected"),
    [
        (rule(), CONFIGMAP, True),
        (rule(verbs=("list",)), CONFIGMAP, False),
        (rule(verbs=("*",)), CONFIGMAP, True),
        (rule(resources=resources("configmaps")), CONFIGMAP, True),
        (rule(resources=resources("configmaps")), STATUS, False),
        (rule(resources=resources("configmaps", group=GROUP)), CONFIGMAP, False),
        (rule(resources=resources()), STATUS, True),
        (rule(resources=resources("*")), STATUS, True),
        (rule(resources=resources("configmaps/*")), STATUS, True),
        (rule(resources=resources("configmaps/*")), CONFIGMAP, False),
        (rule(resources=resources("*/status")), STATUS, True),
        (rule(resources=resources("*/status")), CONFIGMAP, False),
        (rule(resources=resources("configmaps/status")), STATUS, True),
        (rule(resources=resources("config*")), CONFIGMAP, False),
        (rule(resources=resources(group="*")), CONFIGMAP, False),
        (rule(resources=resources("configmaps"), object_names=("one",)), CONFIGMAP, True),
        (rule(resources=resources("configmaps"), object_names=("two",)), CONFIGMAP, False),
        (rule(resources=resources("configmaps"), object_names=("*",)), CONFIGMAP, False),
        (rule(resources=resources("configmaps", objects=("one",))), CONFIGMAP, True),
        (rule(resources=resources("configmaps", objects=("two",))), CONFIGMAP, False),
        (rule(resources=resources("configmaps", objects=("one",)), object_names=("two",)), CONFIGMAP, False),
        (
            rule(resources=resources("configmaps"), object_names=("one",)),
            core("create", "configmaps", "default"),
            False,
        ),
        (rule(namespaces=("default",)), CONFIGMAP, True),
        (rule(namespaces=("other", "")), CONFIGMAP, False),
        (rule(namespaces=("*",)), CONFIGMAP, False),
        (rule(namespaces=("",)), core("list", "configmaps"), False),
        (rule(namespaces=("",)), ours("list", "projects"), True),
        (rule(namespaces=("",)), ours("create", "projects"), True),
        (rule(namespaces=("",)), RequestInfo("list", "/x", MANAGEMENT, "example.com", "v1", "things"), False),
        (rule(namespaces=("",)), core("get", "namespaces", "x", "x"), True),
        (rule(namespaces=("x",)), core("get", "namespaces", "x", "x"), True),
        (rule(namespaces=("x",)), core("list", "namespaces"), False),
        (rule(targets=("Management",)), CONFIGMAP, True),
        (rule(targets=("Cluster",)), CONFIGMAP, False),
        (rule(targets=("Bogus",)), CONFIGMAP, False),
        (rule(cluster="berlin"), CONFIGMAP, False),
        (rule(virtual_clusters=(("", ""),)), CONFIGMAP, False),
        (rule(paths=("*",)), CONFIGMAP, False),
        (rule(verbs=("get",)), replace(CONFIGMAP, verb="list"), False),
        (rule(verbs=("get",)), replace(CONFIGMAP, verb="watch"), False),
        (rule(verbs=("list",)), replace(CONFIGMAP, verb="list"), True),
        (rule(verbs=("list",)), replace(CONFIGMAP, verb="watch"), False),
        (rule(verbs=("watch",)), replace(CONFIGMAP, verb="watch"), True),
        (rule(verbs=("get",)), core("watch", "configmaps", "default"), False),
    ],
)
def test_a_rule_matches_in_all_of_its_dimensions(scope: Scope, target: RequestInfo, expected: bool) -> None:
    assert inside(scope, target) is expected


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
def test_a_path_matches_step_by_step(paths: tuple[str, ...], path: str, expected: bool, root: str) -> None:
    assert inside(rule(paths=paths), RequestInfo("get", path, root)) is expected


def test_the_platform_s_own_paths_are_no_target_of_a_rule() -> None:
    assert inside(rule(paths=("/metrics",), targets=("Management",)), RequestInfo("get", "/metrics", MANAGEMENT))
    assert not inside(rule(paths=("/metrics",), targets=("Management",)), RequestInfo("get", "/metrics"))
    assert not inside(rule(), RequestInfo("get", "/metrics", "elsewhere"))


@pytest.mark.parametrize("parts", [{"namespaces": ("",)}, {"object_names": ("x",)}, {"resources": resources()}])
def test_a_rule_about_resources_allows_no_paths(parts: dict[str, object]) -> None:
    assert not inside(rule(**parts), RequestInfo("get", "/metrics", MANAGEMENT))
    assert not inside(rule(paths=("/metrics",), **parts), RequestInfo("get", "/metrics", MANAGEMENT))


def test_t19_no_rule_lets_anybody_act_as_somebody_else() -> None:
    target = RequestInfo("impersonate", "", MANAGEMENT, "", "v1", "users", name="admin")
    assert not inside(rule(), target)
    assert "cannot impersonate" in refusal(rule(), target)


# --- gateways ---


BERLIN = gateway_target(CLUSTER, "berlin")
DEV = gateway_target(SPACE, "dev", "p-web")
CI = gateway_target(VIRTUAL_CLUSTER, "ci", "p-web")
POD = RequestInfo("get", "/api/v1/namespaces/default/pods/x", "", "", "v1", "pods", "", "default", "x")
NODE = RequestInfo("get", "/api/v1/nodes/x", "", "", "v1", "nodes", "", "", "x")
HEALTH = RequestInfo("get", "/healthz")


@pytest.mark.parametrize(
    ("scope", "entrance", "inner", "expected"),
    [
        (rule(), BERLIN, POD, True),
        (rule(cluster="berlin"), BERLIN, POD, True),
        (rule(cluster="oslo"), BERLIN, POD, False),
        (rule(cluster="berlin"), CI, POD, False),
        (rule(targets=("Management",)), BERLIN, POD, False),
        (rule(targets=("Cluster",)), BERLIN, POD, True),
        (rule(targets=("ProjectSpace",)), DEV, POD, True),
        (rule(targets=("ProjectVirtualCluster",)), CI, POD, True),
        (rule(targets=("VirtualCluster",)), CI, POD, True),
        (rule(targets=("VirtualCluster",)), DEV, POD, False),
        (rule(virtual_clusters=(("ci", ""),)), CI, POD, True),
        (rule(virtual_clusters=(("", "p-web"),)), CI, POD, True),
        (rule(virtual_clusters=(("ci", "p-lab"),)), CI, POD, False),
        (rule(virtual_clusters=(("", ""),)), DEV, POD, False),
        (rule(virtual_clusters=(("", ""),), cluster="berlin"), BERLIN, POD, False),
        (rule(verbs=("get",), resources=resources("pods"), namespaces=("default",)), BERLIN, POD, True),
        (rule(verbs=("get",), resources=resources("pods"), namespaces=("kube-system",)), BERLIN, POD, False),
        (rule(namespaces=("",)), BERLIN, NODE, True),
        (rule(namespaces=("",)), BERLIN, replace(NODE, verb="list", name=""), False),
        (rule(namespaces=("",)), BERLIN, POD, False),
        (rule(paths=("/healthz",)), BERLIN, HEALTH, True),
        (rule(paths=("/livez",)), BERLIN, replace(HEALTH, path="/metrics"), False),
    ],
)
def test_behind_a_gateway_rules_look_at_both_requests(
    scope: Scope, entrance: RequestInfo, inner: RequestInfo, expected: bool
) -> None:
    assert (through(replace(ADA, scope=scope), entrance, inner) is None) is expected


def test_a_gateway_is_entered_for_everything_only_where_everything_behind_it_is_inside() -> None:
    assert inside(Scope(clusters=("berlin",)), BERLIN)
    assert inside(rule(cluster="berlin"), BERLIN)
    assert not inside(rule(cluster="berlin", verbs=("get",)), BERLIN)
    assert not inside(rule(cluster="berlin", namespaces=("default",)), BERLIN)
    assert not inside(rule(cluster="berlin", resources=resources("pods")), BERLIN)


def test_a_refusal_at_a_gateway_names_the_entry_that_it_takes() -> None:
    decision = through(replace(ADA, scope=Scope()), CI, POD)
    words = 'outside the scope of access key "ci", which is empty: it needs '
    assert decision == Decision(False, words + 'an entry for project "web" or its virtual cluster "ci"')


@pytest.mark.parametrize(
    ("root", "name", "namespace"),
    [(CLUSTER, "", ""), (CLUSTER, "berlin", "p-web"), (SPACE, "dev", ""), (SPACE, "", "p-web"), (MANAGEMENT, "x", "")],
)
def test_what_is_no_entrance_is_refused(root: str, name: str, namespace: str) -> None:
    with pytest.raises(ValueError, match="not a gateway"):
        gateway_target(root, name, namespace)
