"""The cost of RBAC decisions does not grow with the number of rules, roles and bindings."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.authz import rbac
from fairlead.authz import rbac as rbac_module
from fairlead.authz.rbac import DECISION_CACHE_SIZE, RULE_CACHE_SIZE, RbacAuthorizer, RoleRules, resource_patterns
from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import User
from tests.authz.roles import binding, build_rbac, path_request, resource_request, resource_rule, role, subject
from tests.harness.growth import count_work
from tests.harness.registry import RegistryFixture

BOB = User("bob", ("devs",))

RULES: dict[str, Callable[[int], list[Object]]] = {
    "a rule for each name": lambda n: [resource_rule("get", "apps", names=f"n{i}") for i in range(n)],
    "a rule for each verb": lambda n: [resource_rule(f"v{i}", "apps", names="x") for i in range(n)],
    "a rule for each group": lambda n: [resource_rule("get", "apps", groups=f"g{i}") for i in range(n)],
    "all names in one rule": lambda n: [resource_rule("get", "apps", names=" ".join(f"n{i}" for i in range(n)))],
    "paths": lambda n: [{"verbs": ["get"], "nonResourceURLs": [f"/p{i}/*" for i in range(n)]}],
    "a rule for each path": lambda n: [{"verbs": ["get"], "nonResourceURLs": [f"/p{i}*"]} for i in range(n)],
}
REQUESTS = [
    resource_request("get", "apps", "n7"),
    resource_request("get", "apps", "other"),
    resource_request("get", "apps/status", "n7"),
    resource_request("v7", "apps", "x"),
    resource_request("list", "apps"),
    path_request("get", "/p7/x"),
    path_request("get", "/other"),
]


# Path rules are checked role by role: objects in lists have no path.
CASES = [
    (name, one_role_per_rule)
    for name in RULES
    for one_role_per_rule in (False, True)
    if not (one_role_per_rule and "path" in name)
]


@pytest.mark.parametrize(("name", "one_role_per_rule"), CASES)
def test_the_cost_of_a_request_does_not_grow_with_the_number_of_rules(name: str, one_role_per_rule: bool) -> None:
    def prepare_requests(size: int) -> Callable[[], object]:
        rules = RULES[name](size)
        roles = (
            [role(each, name=f"r{i}") for i, each in enumerate(rules)]
            if one_role_per_rule
            else [role(*rules, name="r0")]
        )
        bindings = [
            binding(subject("User", "bob"), name=each["metadata"]["name"], role_name=each["metadata"]["name"])
            for each in roles
        ]
        rbac = build_rbac(cluster_roles=roles, cluster_role_bindings=bindings)

        def send_requests() -> None:
            for target in REQUESTS[:5] if one_role_per_rule else REQUESTS:
                rbac(BOB, target)

        send_requests()
        return send_requests

    assert count_work(prepare_requests(800)) <= 2 * count_work(prepare_requests(50))


def test_the_reason_names_the_first_role_that_allows_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index gives the same reasons as without it."""
    rules = [
        resource_rule("get", "apps", names="a b"),
        resource_rule("get list", "apps"),
        resource_rule("get", "apps", names="a c"),
    ]
    roles = [role(each, name=f"r{i}") for i, each in enumerate(rules)]
    bindings = [binding(subject("Group", "devs"), name=f"b{i}", role_name=f"r{i}") for i in (2, 0, 1)]
    targets = [
        resource_request(verb, "apps", name) for verb in ("get", "list", "watch") for name in ("", "a", "b", "c", "d")
    ]
    expected = [build_rbac(cluster_roles=roles, cluster_role_bindings=bindings)(BOB, target) for target in targets]
    monkeypatch.setattr(rbac_module, "MAX_UNCACHED_ROLES", 0)
    assert [
        build_rbac(cluster_roles=roles, cluster_role_bindings=bindings)(BOB, target) for target in targets
    ] == expected
    assert len({each.reason for each in expected if each}) == 2


def test_the_decision_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac_module, "MAX_UNCACHED_ROLES", 0)
    role_rules = RoleRules([resource_rule("*", "*", names="a"), {"verbs": ["*"], "nonResourceURLs": ["/x"]}])
    rbac = build_rbac([], [role(resource_rule("*", "*", names="a"))], [], [binding(subject("User", "bob"))])
    for index in range(3 * RULE_CACHE_SIZE):
        target = resource_request("get", f"r{index}", "a")
        assert role_rules.allows(target, resource_patterns(target)) and rbac(BOB, target)
        assert role_rules.allows(RequestInfo(f"v{index}", "/x"), ())
    assert len(role_rules._allowed_names) <= RULE_CACHE_SIZE and len(role_rules._paths_by_verb) <= RULE_CACHE_SIZE
    [grants] = rbac._snapshot.get().grants_of(BOB)._grants.values()
    assert len(grants._decisions) <= DECISION_CACHE_SIZE


async def test_a_changed_binding_does_not_cause_others_to_be_read_again(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request after a changed binding must not read all other bindings again."""
    read_bindings: list[str] = []
    subject_keys = rbac._subject_keys

    def record_read(namespace: str, each: Object) -> Iterator[tuple[int, rbac.SubjectKey]]:
        read_bindings.append(each["metadata"]["name"])
        return subject_keys(namespace, each)

    monkeypatch.setattr(rbac, "_subject_keys", record_read)
    authorizer = RbacAuthorizer.from_view(api.view)
    await api.create("ClusterRole", "r", rules=[resource_rule("get", "apps")])
    fields: dict[str, Any] = {"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject("Group", "devs")]}
    for number in range(30):
        await api.create("ClusterRoleBinding", f"b{number}", **fields)
    assert authorizer(BOB, resource_request("get", "apps")) and len(read_bindings) == 30
    read_bindings.clear()
    await api.create("ClusterRoleBinding", "a", **fields)
    decision = authorizer(BOB, resource_request("get", "apps"))
    assert decision is not None and 'ClusterRoleBinding "a"' in decision.reason
    await api.patch("ClusterRoleBinding", "a", lambda each: each.update(subjects=[subject("User", "eve")]))
    decision = authorizer(BOB, resource_request("get", "apps"))
    assert decision is not None and 'ClusterRoleBinding "b0"' in decision.reason
    assert set(read_bindings) == {"a"} and len(read_bindings) == 3


def test_many_bindings_to_one_role_are_one_grant() -> None:
    """Thousands of bindings to the same role are checked once; the reason names the first."""
    bindings = [binding(subject("Group", "devs"), name=f"b{number:03}", namespace="n") for number in range(200)]
    rbac = build_rbac([], [role(resource_rule("get", "apps"))], bindings, [])
    decision = rbac(BOB, resource_request("get", "apps", namespace="n"))
    assert decision is not None and 'RoleBinding "b000/n"' in decision.reason
    assert len(rbac._snapshot.get().grants_of(BOB).grants_in("n").grants) == 1
    assert rbac(BOB, resource_request("get", "apps", namespace="m")) is None
    assert rbac(BOB, resource_request("get", "apps")) is None
    assert list(rbac._snapshot.get().grants_of(BOB)._grants) == ["n"]
