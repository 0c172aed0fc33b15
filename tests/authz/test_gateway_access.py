"""Access through gateways: the verb `use` on the object behind the gateway, and the scope for the inner request."""

from dataclasses import replace

import pytest

from fairlead.authz.authorizer import AuthorizerChain, administrators, forbidden_error, gateway_authorizer
from fairlead.authz.scope import ScopeNaming, build_scope_checks
from fairlead.core.call import MANAGEMENT, Decision, RequestInfo
from fairlead.core.scope import Scope, ScopeRule
from fairlead.core.user import User
from fairlead.features.clusters import find_gateways
from fairlead.server.api.routing import RouteConfig, route

GROUP, PREFIX = "management.service.sh", "service-p-"
ROOTS = RouteConfig("/kubernetes/management", (find_gateways(GROUP, PREFIX),))
NAMES = ScopeNaming(GROUP, PREFIX, {(GROUP, "clusters"): False, (GROUP, "spaceinstances"): True, ("", "secrets"): True})
ADA = User("ada", ("system:authenticated",))
CLUSTER, SPACE = "/kubernetes/cluster/c", "/kubernetes/project/p/space/s"


def build_request(path: str, method: str = "GET") -> RequestInfo:
    return route(method, path, {}, ROOTS)


def build_chain(*permissions: tuple[str, str, str, str]) -> AuthorizerChain:
    """A chain that allows every user exactly these (verb, resource, namespace, name) in the management API."""

    def rbac(user: User, target: RequestInfo) -> Decision | None:
        request = target.verb, target.resource, target.namespace, target.name
        return Decision(True, "allowed by the test") if target.root == MANAGEMENT and request in permissions else None

    def decide(user: User, target: RequestInfo) -> Decision:
        return chain.authorize(user, target)

    chain = AuthorizerChain((gateway_authorizer(decide), administrators, rbac), scope_checks=build_scope_checks(NAMES))
    return chain


USE_CLUSTER, USE_SPACE = ("use", "clusters", "", "c"), ("use", "spaceinstances", "service-p-p", "s")


def test_the_verb_use_allows_every_request_through_the_gateway() -> None:
    chain = build_chain(USE_CLUSTER)
    for path in ("", "/version", "/api/v1/nodes", "/api/v1/namespaces/n/pods/x/exec"):
        for method in ("GET", "POST", "DELETE"):
            assert chain.authorize(ADA, build_request(CLUSTER + path, method)).allowed


@pytest.mark.parametrize("verb", ["get", "list", "update", "create", "impersonate"])
def test_t14_other_verbs_do_not_allow_the_gateway(verb: str) -> None:
    chain = build_chain((verb, *USE_CLUSTER[1:]), (verb, *USE_SPACE[1:]))
    for path in ("", "/api/v1/pods", "/api/v1/namespaces/n/pods/x/exec", "/api/v1/namespaces/n/pods/x/portforward"):
        assert not chain.authorize(ADA, build_request(CLUSTER + path)).allowed
        assert not chain.authorize(ADA, build_request(SPACE + path)).allowed


def test_management_permissions_do_not_apply_behind_a_gateway() -> None:
    """A permission in the management API does not apply in a cluster, even for resources of the same name."""
    chain = build_chain(("get", "secrets", "n", "s"), ("list", "secrets", "", ""), ("list", "clusters", "", ""))
    assert not chain.authorize(ADA, build_request(f"{CLUSTER}/api/v1/namespaces/n/secrets/s")).allowed
    assert not chain.authorize(ADA, build_request(f"{CLUSTER}/api/v1/secrets")).allowed
    assert not chain.authorize(ADA, build_request(f"{CLUSTER}/apis/{GROUP}/v1/clusters")).allowed
    assert chain.filter_for(ADA, build_request(f"{CLUSTER}/apis/{GROUP}/v1/clusters")) is None


def test_permission_for_one_gateway_allows_no_other() -> None:
    chain = build_chain(USE_SPACE)
    assert chain.authorize(ADA, build_request(SPACE)).allowed
    for other in (CLUSTER, "/kubernetes/project/p/space/t", "/kubernetes/project/q/space/s"):
        assert not chain.authorize(ADA, build_request(other)).allowed
    assert not chain.authorize(ADA, build_request("/kubernetes/project/p/virtualcluster/s")).allowed


def test_administrators_may_use_every_gateway() -> None:
    assert build_chain().authorize(User("root", ("system:masters",)), build_request(CLUSTER)).allowed


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
def test_a_scope_allows_the_gateways_of_its_entries(scope: Scope, cluster: bool, space: bool) -> None:
    chain, scoped = build_chain(USE_CLUSTER, USE_SPACE), replace(ADA, scope=scope, key="k")
    assert chain.authorize(scoped, build_request(f"{CLUSTER}/api/v1/namespaces/n/pods")).allowed is cluster
    assert chain.authorize(scoped, build_request(f"{SPACE}/api/v1/namespaces/n/pods")).allowed is space


def test_a_scope_grants_no_permission() -> None:
    scoped = replace(ADA, scope=Scope(clusters=("c",)), key="k")
    assert not build_chain().authorize(scoped, build_request(CLUSTER)).allowed


def test_t14_a_read_only_key_cannot_exec_attach_forward_or_proxy() -> None:
    rule = ScopeRule(verbs=("get", "list", "watch"), targets=("Cluster",))
    scoped, chain = replace(ADA, scope=Scope(rules=(rule,)), key="k"), build_chain(USE_CLUSTER)
    assert chain.authorize(scoped, build_request(f"{CLUSTER}/api/v1/namespaces/n/pods/x/log")).allowed
    for path in ("namespaces/n/pods/x/exec", "namespaces/n/pods/x/attach", "namespaces/n/pods/x/portforward"):
        assert not chain.authorize(scoped, build_request(f"{CLUSTER}/api/v1/{path}")).allowed
    for path in ("nodes/n/proxy/run/a", "namespaces/n/services/s/proxy/", "namespaces/n/pods/p/proxy"):
        assert not chain.authorize(scoped, build_request(f"{CLUSTER}/api/v1/{path}")).allowed


def test_the_deprecated_watch_paths_do_not_bypass_a_rule() -> None:
    rule = ScopeRule(verbs=("get", "watch"), namespaces=("",))
    scoped = replace(ADA, scope=Scope(rules=(rule,)), key="k")
    chain = build_chain(USE_CLUSTER)
    assert chain.authorize(scoped, build_request(f"{CLUSTER}/api/v1/nodes/n")).allowed
    assert not chain.authorize(scoped, build_request(f"{CLUSTER}/api/v1/watch/namespaces/n/secrets")).allowed


RULE_FOR_X = ScopeRule(verbs=("get", "list"), namespaces=("x",), cluster="c")


def test_a_rule_for_a_cluster_allows_discovery_and_self_reviews_there() -> None:
    chain, scoped = build_chain(USE_CLUSTER, USE_SPACE), replace(ADA, scope=Scope(rules=(RULE_FOR_X,)), key="ci")
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for path in ("/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/version", "/healthz"):
        assert chain.authorize(scoped, build_request(CLUSTER + path)).allowed
        assert chain.authorize(scoped, build_request(CLUSTER + path, "HEAD")).allowed
        assert not chain.authorize(scoped, build_request(CLUSTER + path, "POST")).allowed
        assert not chain.authorize(scoped, build_request(SPACE + path)).allowed
    assert chain.authorize(scoped, build_request(CLUSTER + review, "POST")).allowed
    assert not chain.authorize(scoped, build_request(SPACE + review, "POST")).allowed
    other_paths = (
        "/metrics",
        "/healthz/etcd",
        "/logs/x",
        "/api/../metrics",
        "/apis//x",
        "/api/v1/nodes",
        "/apis/apps/v1/x",
    )
    for path in other_paths:
        assert not chain.authorize(scoped, build_request(CLUSTER + path)).allowed, path
    group = "/apis/authorization.k8s.io/v1"
    for path in (f"{review}/x", f"{group}/subjectaccessreviews", f"{group}/namespaces/x/localsubjectaccessreviews"):
        assert not chain.authorize(scoped, build_request(CLUSTER + path, "POST")).allowed, path


@pytest.mark.parametrize(
    ("path", "method", "prefix", "reason"),
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
def test_a_denied_inner_request_gets_the_message_of_kubernetes(
    path: str, method: str, prefix: str, reason: str
) -> None:
    scoped = replace(ADA, scope=Scope(rules=(RULE_FOR_X,)), key="ci")
    target = build_request(CLUSTER + path, method)
    message = forbidden_error(scoped, target, build_chain(USE_CLUSTER).authorize(scoped, target)).message
    assert message.startswith(prefix) and reason in message


def test_a_scope_without_the_gateway_is_denied_for_the_gateway() -> None:
    scoped, target = (
        replace(ADA, scope=Scope(rules=(RULE_FOR_X,)), key="ci"),
        build_request(f"{SPACE}/api/v1/namespaces/x/pods"),
    )
    message = forbidden_error(scoped, target, build_chain(USE_SPACE).authorize(scoped, target)).message
    assert 'User "ada" cannot use resource "spaceinstances"' in message
    assert 'outside the scope of access key "ci"' in message
