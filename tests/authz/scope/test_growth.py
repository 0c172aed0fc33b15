"""Scopes with many rules, names and paths: validation, comparison and decisions scale with their size."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.authz.scope import is_superset, matching_entry
from fairlead.authz.scope.compiled import CompiledScope
from fairlead.authz.scope.gateway_requests import is_basic_request
from fairlead.authz.scope.rules import EXTENT_CACHE_SIZE, PathPatterns, RuleIndex, compile_rule, resource_patterns
from fairlead.authz.scope.subset import COMPARISON_BUDGET
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import Scope, ScopeResources, ScopeRule, ScopeTooLarge
from fairlead.kinds.access.scope import scope_problems
from tests.authz.scope import model
from tests.authz.scope.decisions import ADA, core_request
from tests.authz.scope.strategies import GATEWAYS, NAMES, TARGETS, pairs, resources, rules, tuples_of
from tests.harness.growth import assert_linear, build_words, count_work
from tests.harness.properties import at_least

model_settings = settings(max_examples=at_least(60), deadline=None)
many_rules = st.lists(rules, max_size=40).map(tuple)
resource_names = st.sampled_from(
    ("a", "b", "c", "a/x", "a/y", "b/x", "c/z", "a/*", "b/*", "*/x", "*/y", "*/z", "*", "d", "d/x")
)

# --- agreement with the simple model ---


@given(pairs)
@settings(model_settings, max_examples=at_least(120))
def test_t4_coverage_of_scopes_agrees_with_the_model(pair: tuple[Scope, Scope]) -> None:
    outer, inner = pair
    assert is_superset(outer, inner) is model.scope_covers(outer, inner)


@given(many_rules, tuples_of(rules, 3))
@model_settings
def test_t4_coverage_by_many_rules_agrees_with_the_model(
    wide: tuple[ScopeRule, ...], narrow: tuple[ScopeRule, ...]
) -> None:
    outer = Scope(rules=tuple(rule for rule in wide if rule.verbs and rule.resources))
    for inner in (Scope(rules=narrow), Scope(rules=wide[:5])):
        assert is_superset(outer, inner) is model.scope_covers(outer, inner)


@given(tuples_of(resources, 6), tuples_of(resources, 3), st.sampled_from([(), ("dev",), ("dev", "web")]))
@model_settings
def test_t4_coverage_by_the_resources_of_one_rule_agrees_with_the_model(
    wide: tuple[ScopeResources, ...], narrow: tuple[ScopeResources, ...], objects: tuple[str, ...]
) -> None:
    outer = Scope(rules=(ScopeRule(resources=wide, object_names=objects[:1]),))
    inner = Scope(rules=(ScopeRule(resources=narrow, object_names=objects),))
    assert is_superset(outer, inner) is model.scope_covers(outer, inner)


@given(many_rules)
@model_settings
def test_decisions_of_rules_agree_with_the_model(rule_list: tuple[ScopeRule, ...]) -> None:
    scope = Scope(rules=rule_list)
    index = {
        root: RuleIndex(
            compile_rule(rule)
            for rule in rule_list
            if model.is_target(rule, root) and not rule.cluster and not rule.virtual_clusters
        )
        for root in (MANAGEMENT, "")
    }
    for target in TARGETS:
        if target.root in index:
            allowed = index[target.root].allows(target, NAMES.matching_namespaces(target))
            assert allowed is model.rules_allow(scope, target, NAMES), target


@given(many_rules)
@model_settings
def test_decisions_of_rules_behind_gateways_agree_with_the_model(rule_list: tuple[ScopeRule, ...]) -> None:
    compiled = CompiledScope(Scope(rules=rule_list), NAMES)
    for gateway, inner in product(GATEWAYS, TARGETS[:200:4]):
        gateway_rules = [rule for rule in rule_list if model.applies_to_gateway(rule, gateway)]
        namespaces = NAMES.matching_namespaces(replace(inner, root=gateway.root))
        expected = any(model.rule_matches(rule, inner, namespaces) for rule in gateway_rules)
        assert compiled.allows_gateway(gateway, inner) is (
            expected or (bool(gateway_rules) and is_basic_request(inner))
        )


name_and_namespace_rules = st.builds(
    ScopeRule,
    object_names=st.lists(st.sampled_from("abcdefgh"), min_size=1).map(tuple),
    namespaces=st.lists(st.sampled_from("uvwxyz"), min_size=1).map(tuple),
)


@given(st.lists(name_and_namespace_rules, max_size=300), st.randoms(use_true_random=False))
@settings(model_settings, max_examples=at_least(20))
def test_rules_for_names_in_namespaces_agree_with_the_model(rule_list: list[ScopeRule], random: Random) -> None:
    index = RuleIndex(map(compile_rule, rule_list))
    for namespace, name in product("uvwxyzq", "abcdefghq"):
        target = core_request("get", "configmaps", namespace, name)
        assert index.allows(target, (namespace,)) is any(
            model.rule_matches(rule, target, (namespace,)) for rule in rule_list
        )


@given(
    st.lists(st.sampled_from(("*", "/*", "/a", "/a/", "/a/*", "/a/b/*", "/ab/*", "/a/b", "/a*", "/", "/a/../b", ""))),
    st.sampled_from(("/", "/a", "/a/b", "/a/b/c", "/ab", "/ab/c", "/abc", "/a/../b", "/a//b", "/a*", "/b", "*", "")),
)
@settings(model_settings, max_examples=at_least(120))
def test_path_patterns_agree_with_the_model(patterns: list[str], path: str) -> None:
    compiled = PathPatterns(patterns)
    assert compiled.matches(path) is any(model.path_matches(each, path) for each in patterns)
    wide, narrow = ScopeRule(paths=tuple(patterns)), ScopeRule(paths=(path,))
    if patterns:
        assert compiled.covers(path) is model.rule_covers(wide, narrow)


@given(st.lists(resource_names, max_size=12))
@settings(model_settings, max_examples=at_least(120))
def test_overlapping_names_agree_with_the_model(names: list[str]) -> None:
    problems = list(scope_problems({"rules": [{"resources": [{"resources": names}]}]}, "scope"))
    expected = [
        index for index, name in enumerate(names) if any(model.names_overlap(name, other) for other in names[:index])
    ]
    assert [problem.field for problem in problems] == [f"scope.rules[0].resources[0].resources[{i}]" for i in expected]


# --- growth ---

Shape = Callable[[int], Any]
LISTS: dict[str, Shape] = {
    "resources": lambda n: {"resources": [{"resources": build_words("r", n)}]},
    "entries": lambda n: {"resources": [{"resources": [each]} for each in build_words("r", n)]},
    "subresources": lambda n: {"resources": [{"resources": [f"{each}/s" for each in build_words("r", n)]}]},
    "duplicates": lambda n: {"resources": [{"resources": ["r"] * n}]},
    "overlapping wildcards": lambda n: {
        "resources": [
            {
                "resources": [
                    *(f"{each}/*" for each in build_words("r", n)),
                    *(f"*/{each}" for each in build_words("s", n)),
                ]
            }
        ]
    },
    "behind a wildcard": lambda n: {"resources": [{"resources": ["*", *build_words("r", n)]}]},
    "groups": lambda n: {"resources": [{"group": each, "resources": ["*"]} for each in build_words("g", n)]},
    "names of objects": lambda n: {"resources": [{"resources": ["r"]}], "resourceNames": build_words("o", n)},
    "paths": lambda n: {"nonResourceURLs": [f"/{each}/*" for each in build_words("p", n)]},
    "verbs": lambda n: {"verbs": build_words("v", n)},
    "namespaces": lambda n: {"namespaces": build_words("n", n)},
    "virtual clusters": lambda n: {"virtualClusters": [{"name": each} for each in build_words("c", n)]},
}


def as_single_rule(shape: Shape) -> Shape:
    return lambda n: {"rules": [shape(n)]}


SCOPES: dict[str, Shape] = {
    **{name: as_single_rule(shape) for name, shape in LISTS.items()},
    "rules with a name each": lambda n: {
        "rules": [{"verbs": ["get"], "resources": [{"resources": [each]}]} for each in build_words("r", n)]
    },
    "rules with a path each": lambda n: {"rules": [{"nonResourceURLs": [f"/{each}"]} for each in build_words("p", n)]},
    "rules with a verb each": lambda n: {"rules": [{"verbs": [each]} for each in build_words("v", n)]},
    "rules with a namespace each": lambda n: {
        "rules": [{"namespaces": [each], "resources": [{"resources": ["r"]}]} for each in build_words("n", n)]
    },
    "rules with a cluster each": lambda n: {"rules": [{"cluster": each} for each in build_words("c", n)]},
    "projects": lambda n: {"projects": [{"project": each} for each in build_words("p", n)]},
    "spaces": lambda n: {"spaces": [{"project": each, "space": "x"} for each in build_words("p", n)]},
    "virtual clusters of projects": lambda n: {
        "virtualClusters": [{"project": "x", "virtualCluster": each} for each in build_words("p", n)]
    },
    "clusters": lambda n: {"clusters": [{"cluster": each} for each in build_words("c", n)]},
}
each_scope = pytest.mark.parametrize("shape", SCOPES.values(), ids=SCOPES.keys())


def parse_scope(document: Any) -> Scope:
    scope = Scope.parse(document)
    assert scope is not None
    return scope


@each_scope
def test_validating_a_scope_takes_linear_time(shape: Shape) -> None:
    def prepare(size: int) -> Callable[[], object]:
        document = shape(size)
        return lambda: list(scope_problems(document, "spec.scope"))

    assert_linear(prepare)


@each_scope
def test_comparing_scopes_takes_linear_time(shape: Shape) -> None:
    """With a scope that is nearly the same, so that no rule matches by equality."""

    def prepare(size: int) -> Callable[[], object]:
        outer, inner = parse_scope(shape(size)), parse_scope(shape(size))
        narrowed = replace(inner, rules=tuple(replace(rule, targets=("Management",)) for rule in inner.rules))
        assert is_superset(outer, narrowed)
        return lambda: is_superset(outer, narrowed)

    assert_linear(prepare)


@each_scope
def test_the_cost_of_a_request_does_not_grow_with_the_scope(shape: Shape) -> None:
    targets = [
        core_request("get", "r1", "n1", "o1"),
        core_request("get", "r1", "n1", "o1", "s"),
        core_request("v1", "x", "n1", "x"),
        RequestInfo("get", "/p1/x", MANAGEMENT),
        RequestInfo("get", "/apis/x", MANAGEMENT),
    ]

    def prepare(size: int) -> Callable[[], object]:
        compiled = CompiledScope(parse_scope(shape(size)), NAMES)

        def send_requests() -> None:
            for target in targets:
                compiled.allows(ADA, target)
            for gateway in GATEWAYS[:4]:
                compiled.allows_gateway(gateway, core_request("get", "r1", "n1", "o1"))

        send_requests()
        return send_requests

    small, large = count_work(prepare(100)), count_work(prepare(1600))
    assert large <= 2 * small, f"16 times the scope took {large / small:.1f} times the work"


def test_the_cost_of_a_listed_object_does_not_grow_with_rules_for_its_name() -> None:
    """Half of the rules have the namespace and other names, half the name and other namespaces."""

    def prepare(size: int) -> Callable[[], object]:
        namespaces, names = tuple(build_words("n", 8)), tuple(build_words("o", 8))
        same_namespaces = [ScopeRule(namespaces=namespaces, object_names=(each,)) for each in build_words("x", size)]
        same_names = [ScopeRule(namespaces=(each,), object_names=names) for each in build_words("y", size)]
        index = RuleIndex(map(compile_rule, [*same_namespaces, *same_names]))
        objects = [
            core_request("list", "configmaps", namespace, name) for namespace, name in product(namespaces, names)
        ]

        def send_requests() -> None:
            assert not any(index.allows(target, (target.namespace,)) for target in objects)

        send_requests()
        return send_requests

    assert count_work(prepare(2000)) <= 2 * count_work(prepare(200))


def test_finding_the_matching_entry_takes_linear_time() -> None:
    find_entry = matching_entry(NAMES)

    def prepare(size: int) -> Callable[[], object]:
        projects = tuple(f"p{index}" for index in range(size))
        user = replace(ADA, scope=Scope(projects=projects))
        target = core_request("get", "configmaps", f"p-p{size - 1}", "x")
        assert find_entry(user, target) == f"projects[{size - 1}]"
        return lambda: find_entry(user, target)

    assert_linear(prepare)


def test_of_many_entries_that_allow_together_some_are_named() -> None:
    projects = tuple(f"p{index}" for index in range(100))
    user = replace(ADA, scope=Scope(projects=projects))
    target = RequestInfo(
        "create", "/x", MANAGEMENT, NAMES.api_group, "v1", "projects", "migratevirtualclusterinstance", "", "p7"
    )
    entries = matching_entry(NAMES)(user, target)
    assert entries.startswith("projects[0] and projects[1]") and entries.endswith(" more")


# --- comparisons without an index ---


def overlapping_scopes(size: int) -> tuple[Scope, Scope]:
    """Rules that share their verbs with many others and are covered only by the last of them."""
    verbs = [f"v{index}" for index in range(40)]
    random = Random(7)
    wide = tuple(ScopeRule(tuple(random.sample(verbs, 20)), paths=("/*",)) for _ in range(size))
    wide += (ScopeRule(tuple(verbs), paths=("/*",)),)
    narrow = tuple(ScopeRule(tuple(random.sample(verbs, 10)), paths=(f"/{index}",)) for index in range(size))
    return Scope(rules=wide), Scope(rules=narrow)


def test_a_pairwise_comparison_of_large_scopes_exceeds_the_budget() -> None:
    assert is_superset(*overlapping_scopes(20))
    with pytest.raises(ScopeTooLarge):
        is_superset(*overlapping_scopes(4 * int(COMPARISON_BUDGET**0.5)))


def test_equal_rules_never_exceed_the_budget() -> None:
    outer, _ = overlapping_scopes(4 * int(COMPARISON_BUDGET**0.5))
    assert is_superset(outer, outer) and is_superset(outer, replace(outer, rules=outer.rules[::-1]))


def test_the_caches_of_the_rule_index_are_bounded() -> None:
    index = RuleIndex([compile_rule(ScopeRule(object_names=("a",)))])
    for number in range(3 * EXTENT_CACHE_SIZE):
        assert index.allows(core_request("get", f"r{number}", "", "a"), ("",))
        assert not index.allows(RequestInfo(f"verb{number}", "/x"), ())
    assert len(index._extents) <= EXTENT_CACHE_SIZE and len(index._patterns) <= EXTENT_CACHE_SIZE


def test_a_resource_has_few_patterns() -> None:
    assert len(list(resource_patterns(core_request("get", "configmaps", subresource="status")))) == 4
