"""Scopes with very many rules, names and paths: checked, compared and asked without comparing all with all."""

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
from tests.authz.scope.decisions import ADA, core
from tests.authz.scope.strategies import ENTRANCES, NAMES, TARGETS, few, pairs, resources, rules
from tests.harness.growth import assert_linear, words, work

exact = settings(max_examples=150, deadline=None)
many_rules = st.lists(rules, max_size=40).map(tuple)
resource_names = st.sampled_from(
    ("a", "b", "c", "a/x", "a/y", "b/x", "c/z", "a/*", "b/*", "*/x", "*/y", "*/z", "*", "d", "d/x")
)

# --- the same answers as the plainest way ---


@given(pairs)
@settings(exact, max_examples=400)
def test_t4_what_covers_what_is_exact(pair: tuple[Scope, Scope]) -> None:
    outer, inner = pair
    assert is_superset(outer, inner) is model.covers(outer, inner)


@given(many_rules, few(rules, 3))
@exact
def test_t4_what_many_rules_cover_is_exact(wide: tuple[ScopeRule, ...], narrow: tuple[ScopeRule, ...]) -> None:
    outer = Scope(rules=tuple(rule for rule in wide if rule.verbs and rule.resources))
    for inner in (Scope(rules=narrow), Scope(rules=wide[:5])):
        assert is_superset(outer, inner) is model.covers(outer, inner)


@given(few(resources, 6), few(resources, 3), st.sampled_from([(), ("dev",), ("dev", "web")]))
@exact
def test_t4_what_the_resources_of_one_rule_cover_is_exact(
    wide: tuple[ScopeResources, ...], narrow: tuple[ScopeResources, ...], objects: tuple[str, ...]
) -> None:
    outer = Scope(rules=(ScopeRule(resources=wide, object_names=objects[:1]),))
    inner = Scope(rules=(ScopeRule(resources=narrow, object_names=objects),))
    assert is_superset(outer, inner) is model.covers(outer, inner)


@given(many_rules)
@exact
def test_what_rules_allow_is_exact(many: tuple[ScopeRule, ...]) -> None:
    scope = Scope(rules=many)
    index = {
        root: RuleIndex(
            compile_rule(rule)
            for rule in many
            if model.is_target(rule, root) and not rule.cluster and not rule.virtual_clusters
        )
        for root in (MANAGEMENT, "")
    }
    for target in TARGETS:
        if target.root in index:
            quick = index[target.root].allows(target, NAMES.matching_namespaces(target))
            assert quick is model.ruled(scope, target, NAMES), target


@given(many_rules)
@exact
def test_what_rules_allow_behind_gateways_is_exact(many: tuple[ScopeRule, ...]) -> None:
    boundary = CompiledScope(Scope(rules=many), NAMES)
    for entrance, inner in product(ENTRANCES, TARGETS[:200:4]):
        behind = [rule for rule in many if model.for_entrance(rule, entrance)]
        places = NAMES.matching_namespaces(replace(inner, root=entrance.root))
        expected = any(model.matches(rule, inner, places) for rule in behind)
        assert boundary.allows_gateway(entrance, inner) is (expected or (bool(behind) and is_basic_request(inner)))


rectangles = st.builds(
    ScopeRule,
    object_names=st.lists(st.sampled_from("abcdefgh"), min_size=1).map(tuple),
    namespaces=st.lists(st.sampled_from("uvwxyz"), min_size=1).map(tuple),
)


@given(st.lists(rectangles, max_size=300), st.randoms(use_true_random=False))
@settings(exact, max_examples=40)
def test_names_in_namespaces_are_exact_however_many_rules_have_them(many: list[ScopeRule], random: Random) -> None:
    index = RuleIndex(map(compile_rule, many))
    for place, name in product("uvwxyzq", "abcdefghq"):
        target = core("get", "configmaps", place, name)
        assert index.allows(target, (place,)) is any(model.matches(rule, target, (place,)) for rule in many)


@given(
    st.lists(st.sampled_from(("*", "/*", "/a", "/a/", "/a/*", "/a/b/*", "/ab/*", "/a/b", "/a*", "/", "/a/../b", ""))),
    st.sampled_from(("/", "/a", "/a/b", "/a/b/c", "/ab", "/ab/c", "/abc", "/a/../b", "/a//b", "/a*", "/b", "*", "")),
)
@settings(exact, max_examples=500)
def test_paths_are_matched_exactly(patterns: list[str], path: str) -> None:
    made = PathPatterns(patterns)
    assert made.matches(path) is any(model.path_matches(each, path) for each in patterns)
    wide, narrow = ScopeRule(paths=tuple(patterns)), ScopeRule(paths=(path,))
    if patterns:
        assert made.covers(path) is model.rule_covers(wide, narrow)


@given(st.lists(resource_names, max_size=12))
@settings(exact, max_examples=400)
def test_names_that_overlap_are_found_exactly(names: list[str]) -> None:
    problems = list(scope_problems({"rules": [{"resources": [{"resources": names}]}]}, "scope"))
    expected = [index for index, name in enumerate(names) if any(model.overlap(name, other) for other in names[:index])]
    assert [problem.field for problem in problems] == [f"scope.rules[0].resources[0].resources[{i}]" for i in expected]


# --- how work grows ---

Shape = Callable[[int], Any]
LISTS: dict[str, Shape] = {
    "resources": lambda n: {"resources": [{"resources": words("r", n)}]},
    "entries": lambda n: {"resources": [{"resources": [each]} for each in words("r", n)]},
    "subresources": lambda n: {"resources": [{"resources": [f"{each}/s" for each in words("r", n)]}]},
    "the same": lambda n: {"resources": [{"resources": ["r"] * n}]},
    "overlapping wildcards": lambda n: {
        "resources": [
            {"resources": [*(f"{each}/*" for each in words("r", n)), *(f"*/{each}" for each in words("s", n))]}
        ]
    },
    "behind a wildcard": lambda n: {"resources": [{"resources": ["*", *words("r", n)]}]},
    "groups": lambda n: {"resources": [{"group": each, "resources": ["*"]} for each in words("g", n)]},
    "names of objects": lambda n: {"resources": [{"resources": ["r"]}], "resourceNames": words("o", n)},
    "paths": lambda n: {"nonResourceURLs": [f"/{each}/*" for each in words("p", n)]},
    "verbs": lambda n: {"verbs": words("v", n)},
    "namespaces": lambda n: {"namespaces": words("n", n)},
    "virtual clusters": lambda n: {"virtualClusters": [{"name": each} for each in words("c", n)]},
}


def in_one_rule(shape: Shape) -> Shape:
    return lambda n: {"rules": [shape(n)]}


SCOPES: dict[str, Shape] = {
    **{name: in_one_rule(shape) for name, shape in LISTS.items()},
    "rules with a name each": lambda n: {
        "rules": [{"verbs": ["get"], "resources": [{"resources": [each]}]} for each in words("r", n)]
    },
    "rules with a path each": lambda n: {"rules": [{"nonResourceURLs": [f"/{each}"]} for each in words("p", n)]},
    "rules with a verb each": lambda n: {"rules": [{"verbs": [each]} for each in words("v", n)]},
    "rules with a namespace each": lambda n: {
        "rules": [{"namespaces": [each], "resources": [{"resources": ["r"]}]} for each in words("n", n)]
    },
    "rules with a cluster each": lambda n: {"rules": [{"cluster": each} for each in words("c", n)]},
    "projects": lambda n: {"projects": [{"project": each} for each in words("p", n)]},
    "spaces": lambda n: {"spaces": [{"project": each, "space": "x"} for each in words("p", n)]},
    "virtual clusters of projects": lambda n: {
        "virtualClusters": [{"project": "x", "virtualCluster": each} for each in words("p", n)]
    },
    "clusters": lambda n: {"clusters": [{"cluster": each} for each in words("c", n)]},
}
each_scope = pytest.mark.parametrize("shape", SCOPES.values(), ids=SCOPES.keys())


def scope_of(made: Any) -> Scope:
    scope = Scope.parse(made)
    assert scope is not None
    return scope


@each_scope
def test_the_check_of_a_scope_grows_with_its_size(shape: Shape) -> None:
    def make(size: int) -> Callable[[], object]:
        made = shape(size)
        return lambda: list(scope_problems(made, "spec.scope"))

    assert_linear(make)


@each_scope
def test_the_comparison_of_scopes_grows_with_their_size(shape: Shape) -> None:
    """With another one that is nearly the same, so that nothing is decided by finding the very same rule."""

    def make(size: int) -> Callable[[], object]:
        outer, inner = scope_of(shape(size)), scope_of(shape(size))
        narrowed = replace(inner, rules=tuple(replace(rule, targets=("Management",)) for rule in inner.rules))
        assert is_superset(outer, narrowed)
        return lambda: is_superset(outer, narrowed)

    assert_linear(make)


@each_scope
def test_a_request_costs_the_same_however_large_the_scope_is(shape: Shape) -> None:
    targets = [
        core("get", "r1", "n1", "o1"),
        core("get", "r1", "n1", "o1", "s"),
        core("v1", "x", "n1", "x"),
        RequestInfo("get", "/p1/x", MANAGEMENT),
        RequestInfo("get", "/apis/x", MANAGEMENT),
    ]

    def make(size: int) -> Callable[[], object]:
        boundary = CompiledScope(scope_of(shape(size)), NAMES)

        def ask() -> None:
            for target in targets:
                boundary.allows(ADA, target)
            for entrance in ENTRANCES[:4]:
                boundary.allows_gateway(entrance, core("get", "r1", "n1", "o1"))

        ask()
        return ask

    small, large = work(make(100)), work(make(1600))
    assert large <= 2 * small, f"16 times the scope took {large / small:.1f} times the work"


def test_an_object_of_a_list_costs_the_same_however_many_rules_share_its_name_or_namespace() -> None:
    """Half of the rules have its namespace and other names, half its name and other namespaces."""

    def make(size: int) -> Callable[[], object]:
        places, names = tuple(words("n", 8)), tuple(words("o", 8))
        near = [ScopeRule(namespaces=places, object_names=(each,)) for each in words("x", size)]
        far = [ScopeRule(namespaces=(each,), object_names=names) for each in words("y", size)]
        index = RuleIndex(map(compile_rule, [*near, *far]))
        objects = [core("list", "configmaps", place, name) for place, name in product(places, names)]

        def ask() -> None:
            assert not any(index.allows(target, (target.namespace,)) for target in objects)

        ask()
        return ask

    assert work(make(2000)) <= 2 * work(make(200))


def test_the_entry_that_allows_is_found_without_trying_each() -> None:
    find = matching_entry(NAMES)

    def make(size: int) -> Callable[[], object]:
        projects = tuple(f"p{index}" for index in range(size))
        user = replace(ADA, scope=Scope(projects=projects))
        target = core("get", "configmaps", f"p-p{size - 1}", "x")
        assert find(user, target) == f"projects[{size - 1}]"
        return lambda: find(user, target)

    assert_linear(make)


def test_what_takes_many_entries_together_names_some_of_them() -> None:
    projects = tuple(f"p{index}" for index in range(100))
    user = replace(ADA, scope=Scope(projects=projects))
    target = RequestInfo(
        "create", "/x", MANAGEMENT, NAMES.api_group, "v1", "projects", "migratevirtualclusterinstance", "", "p7"
    )
    found = matching_entry(NAMES)(user, target)
    assert found.startswith("projects[0] and projects[1]") and found.endswith(" more")


# --- what has no quick answer ---


def entangled(size: int) -> tuple[Scope, Scope]:
    """Rules that share all of their words with very many others, and are only in the last of them."""
    verbs = [f"v{index}" for index in range(40)]
    subsets = Random(7)
    wide = tuple(ScopeRule(tuple(subsets.sample(verbs, 20)), paths=("/*",)) for _ in range(size))
    wide += (ScopeRule(tuple(verbs), paths=("/*",)),)
    narrow = tuple(ScopeRule(tuple(subsets.sample(verbs, 10)), paths=(f"/{index}",)) for index in range(size))
    return Scope(rules=wide), Scope(rules=narrow)


def test_scopes_that_can_only_be_compared_pair_by_pair_are_not_compared_to_the_end() -> None:
    assert is_superset(*entangled(20))
    with pytest.raises(ScopeTooLarge):
        is_superset(*entangled(4 * int(COMPARISON_BUDGET**0.5)))


def test_the_same_rules_are_never_too_many() -> None:
    outer, _ = entangled(4 * int(COMPARISON_BUDGET**0.5))
    assert is_superset(outer, outer) and is_superset(outer, replace(outer, rules=outer.rules[::-1]))


def test_what_is_kept_of_requests_is_bounded() -> None:
    index = RuleIndex([compile_rule(ScopeRule(object_names=("a",)))])
    for number in range(3 * EXTENT_CACHE_SIZE):
        assert index.allows(core("get", f"r{number}", "", "a"), ("",))
        assert not index.allows(RequestInfo(f"verb{number}", "/x"), ())
    assert len(index._extents) <= EXTENT_CACHE_SIZE and len(index._patterns) <= EXTENT_CACHE_SIZE


def test_the_ways_to_write_a_resource_are_few() -> None:
    assert len(list(resource_patterns(core("get", "configmaps", sub="status")))) == 4
