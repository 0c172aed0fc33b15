"""Who may pass a gateway: the verb `use` on what it leads to, and the scope about what is asked behind it."""

from dataclasses import replace

import pytest

from fairlead.authz.authorizer import AuthorizerChain, administrators, forbidden_error, gateway_authorizer
from fairlead.authz.scope import ScopeNaming, build_scope_checks
from fairlead.core.call import MANAGEMENT, Decision, RequestInfo
from fairlead.core.scope import Scope, ScopeRule
from fairlead.core.user import User
from fairlead.server.api.routing import RouteConfig, route

GROUP, PREFIX = "management.service.sh", "service-p-"
ROOTS = RouteConfig("/kubernetes/management", GROUP, PREFIX)
NAMES = ScopeNaming(GROUP, PREFIX, {(GROUP, "clusters"): False, (GROUP, "spaceinstances"): True, ("", "secrets"): True})
ADA = User("ada", ("system:authenticated",))
CLUSTER, SPACE = "/kubernetes/cluster/c", "/kubernetes/project/p/space/s"


def asked(path: str, method: str = "GET") -> RequestInfo:
    return route(method, path, {}, ROOTS)


def permissions(*rights: tuple[str, str, str, str]) -> AuthorizerChain:
    """Somebody has just these rights: verb, resource, namespace, name, in the management API."""

    def rbac(user: User, target: RequestInfo) -> Decision | None:
        held = target.verb, target.resource, target.namespace, target.name
        return Decision(True, "held") if target.root == MANAGEMENT and held in rights else None

    def decide(user: User, target: RequestInfo) -> Decision:
        return made.authorize(user, target)

    made = AuthorizerChain((gateway_authorizer(decide), administrators, rbac), scope_checks=build_scope_checks(NAMES))
    return made


USE_CLUSTER, USE_SPACE = ("use", "clusters", "", "c"), ("use", "spaceinstances", "service-p-p", "s")


def test_who_may_use_it_gets_in_for_whatever_is_asked_behind() -> None:
    held = permissions(USE_CLUSTER)
    for path in ("", "/version", "/api/v1/nodes", "/api/v1/namespaces/n/pods/x/exec"):
        for method in ("GET", "POST", "DELETE"):
            assert held.authorize(ADA, asked(CLUSTER + path, method)).allowed


@pytest.mark.parametrize("verb", ["get", "list", "update", "create", "impersonate"])
def test_t14_get_alone_opens_no_gateway(verb: str) -> None:
    held = permissions((verb, *USE_CLUSTER[1:]), (verb, *USE_SPACE[1:]))
    for path in ("", "/api/v1/pods", "/api/v1/namespaces/n/pods/x/exec", "/api/v1/namespaces/n/pods/x/portforward"):
        assert not held.authorize(ADA, asked(CLUSTER + path)).allowed
        assert not held.authorize(ADA, asked(SPACE + path)).allowed


def test_a_right_here_is_no_right_there() -> None:
    """What somebody may read in the management API says nothing about a cluster, whatever it is called."""
    held = permissions(("get", "secrets", "n", "s"), ("list", "secrets", "", ""), ("list", "clusters", "", ""))
    assert not held.authorize(ADA, asked(f"{CLUSTER}/api/v1/namespaces/n/secrets/s")).allowed
    assert not held.authorize(ADA, asked(f"{CLUSTER}/api/v1/secrets")).allowed
    assert not held.authorize(ADA, asked(f"{CLUSTER}/apis/{GROUP}/v1/clusters")).allowed
    assert held.filter_for(ADA, asked(f"{CLUSTER}/apis/{GROUP}/v1/clusters")) is None


def test_one_entrance_opens_no_other() -> None:
    held = permissions(USE_SPACE)
    assert held.authorize(ADA, asked(SPACE)).allowed
    for other in (CLUSTER, "/kubernetes/project/p/space/t", "/kubernetes/project/q/space/s"):
        assert not held.authorize(ADA, asked(other)).allowed
    assert not held.authorize(ADA, asked("/kubernetes/project/p/virtualcluster/s")).allowed


def test_administrators_get_in_everywhere() -> None:
    assert permissions().authorize(User("root", ("system:masters",)), asked(CLUSTER)).allowed


@pytest.mark.parametrize(
    ("scope", "cluster", "space"),
    [
        (Scope(), False, False),
        (Scope(allow_cli=True), False, False),
        (Scope(clusters=("c",)), True, False),
        (Scope(clusters=("d",)), False, False),
        (Scope(projects=("p",)), False, True),
        (Scope(projects=("q",)), False, False),
        (Scope(spaces=(("p", "s"),)), False, True),
        (Scope(spaces=(("p", "*"),)), False, True),
        (Scope(spaces=(("p", "t"),)), False, False),
        (Scope(rules=(ScopeRule(verbs=("list",)),)), True, True),
        (Scope(rules=(ScopeRule(verbs=("get",)),)), False, False),
        (Scope(rules=(ScopeRule(cluster="c"),)), True, False),
        (Scope(rules=(ScopeRule(cluster="d"),)), False, False),
        (Scope(rules=(ScopeRule(targets=("Management",)),)), False, False),
    ],
)
def test_a_scope_lets_through_what_its_entries_name(scope: Scope, cluster: bool, space: bool) -> None:
    held, scoped = permissions(USE_CLUSTER, USE_SPACE), replace(ADA, scope=scope, key="k")
    assert held.authorize(scoped, asked(f"{CLUSTER}/api/v1/namespaces/n/pods")).allowed is cluster
    assert held.authorize(scoped, asked(f"{SPACE}/api/v1/namespaces/n/pods")).allowed is space


def test_a_scope_gives_no_right() -> None:
    scoped = replace(ADA, scope=Scope(clusters=("c",)), key="k")
    assert not permissions().authorize(scoped, asked(CLUSTER)).allowed


def test_t14_a_key_that_only_reads_opens_no_way_into_pods_and_nodes() -> None:
    rule = ScopeRule(verbs=("get", "list", "watch"), targets=("Cluster",))
    scoped, held = replace(ADA, scope=Scope(rules=(rule,)), key="k"), permissions(USE_CLUSTER)
    assert held.authorize(scoped, asked(f"{CLUSTER}/api/v1/namespaces/n/pods/x/log")).allowed
    for path in ("namespaces/n/pods/x/exec", "namespaces/n/pods/x/attach", "namespaces/n/pods/x/portforward"):
        assert not held.authorize(scoped, asked(f"{CLUSTER}/api/v1/{path}")).allowed
    for path in ("nodes/n/proxy/run/a", "namespaces/n/services/s/proxy/", "namespaces/n/pods/p/proxy"):
        assert not held.authorize(scoped, asked(f"{CLUSTER}/api/v1/{path}")).allowed


def test_an_old_way_to_watch_is_no_way_around_a_rule() -> None:
    rule = ScopeRule(verbs=("get", "watch"), namespaces=("",))
    scoped = replace(ADA, scope=Scope(rules=(rule,)), key="k")
    held = permissions(USE_CLUSTER)
    assert held.authorize(scoped, asked(f"{CLUSTER}/api/v1/nodes/n")).allowed
    assert not held.authorize(scoped, asked(f"{CLUSTER}/api/v1/watch/namespaces/n/secrets")).allowed


PODS_OF_X = ScopeRule(verbs=("get", "list"), namespaces=("x",), cluster="c")


def test_a_rule_for_a_cluster_brings_discovery_and_questions_about_oneself_there() -> None:
    held, scoped = permissions(USE_CLUSTER, USE_SPACE), replace(ADA, scope=Scope(rules=(PODS_OF_X,)), key="ci")
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for path in ("/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/version", "/healthz"):
        assert held.authorize(scoped, asked(CLUSTER + path)).allowed
        assert held.authorize(scoped, asked(CLUSTER + path, "HEAD")).allowed
        assert not held.authorize(scoped, asked(CLUSTER + path, "POST")).allowed
        assert not held.authorize(scoped, asked(SPACE + path)).allowed
    assert held.authorize(scoped, asked(CLUSTER + review, "POST")).allowed
    assert not held.authorize(scoped, asked(SPACE + review, "POST")).allowed
    others = ("/metrics", "/healthz/etcd", "/logs/x", "/api/../metrics", "/apis//x", "/api/v1/nodes", "/apis/apps/v1/x")
    for path in others:
        assert not held.authorize(scoped, asked(CLUSTER + path)).allowed, path
    group = "/apis/authorization.k8s.io/v1"
    for path in (f"{review}/x", f"{group}/subjectaccessreviews", f"{group}/namespaces/x/localsubjectaccessreviews"):
        assert not held.authorize(scoped, asked(CLUSTER + path, "POST")).allowed, path


@pytest.mark.parametrize(
    ("path", "method", "told", "why"),
    [
        (
            "/api/v1/namespaces/x/pods/p",
            "DELETE",
            'pods "p" is forbidden: User "ada" cannot delete resource "pods" in API group "" in the namespace "x": ',
            'the scope of access key "ci" does not allow "delete" on "pods" in namespace "x" of cluster "c": it needs '
            'an entry for cluster "c", or a rule that allows this',
        ),
        (
            "/apis/apps/v1/deployments",
            "GET",
            'deployments.apps is forbidden: User "ada" cannot list resource "deployments" in API group "apps" at the '
            "cluster scope: ",
            'the scope of access key "ci" does not allow "list" on "deployments.apps" at the cluster scope of cluster',
        ),
        (
            "/apis/apps/v1/namespaces/y/deployments/d/scale",
            "GET",
            'deployments.apps "d" is forbidden: User "ada" cannot get resource "deployments/scale"',
            'does not allow "get" on "deployments.apps/scale" in namespace "y" of cluster "c"',
        ),
        (
            "/metrics",
            "GET",
            'forbidden: User "ada" cannot get path "/metrics": ',
            'the scope of access key "ci" does not allow "get" on path "/metrics" of cluster "c"',
        ),
    ],
)
def test_a_scope_refuses_in_kubernetes_words_what_is_asked_behind(path: str, method: str, told: str, why: str) -> None:
    scoped = replace(ADA, scope=Scope(rules=(PODS_OF_X,)), key="ci")
    target = asked(CLUSTER + path, method)
    message = forbidden_error(scoped, target, permissions(USE_CLUSTER).authorize(scoped, target)).message
    assert message.startswith(told) and why in message


def test_a_scope_that_does_not_reach_a_gateway_says_so_of_the_gateway() -> None:
    scoped, target = replace(ADA, scope=Scope(rules=(PODS_OF_X,)), key="ci"), asked(f"{SPACE}/api/v1/namespaces/x/pods")
    message = forbidden_error(scoped, target, permissions(USE_SPACE).authorize(scoped, target)).message
    assert 'User "ada" cannot use resource "spaceinstances"' in message
    assert 'outside the scope of access key "ci"' in message
