"""Properties of all scopes, tested with Hypothesis."""

import re
from dataclasses import fields, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.authz.scope import is_superset
from fairlead.core.call import RequestInfo
from fairlead.core.scope import Scope
from tests.authz.scope.decisions import (
    ADA,
    WEB,
    check_gateway,
    check_scope,
    find_entry,
    is_filtered,
    is_in_scope,
    overlaps_scope,
)
from tests.authz.scope.strategies import GATEWAYS, NAMES, RESOURCE_TARGETS, TARGETS, pairs, scopes
from tests.harness.properties import at_least

property_settings = settings(max_examples=at_least(30), deadline=None)


def requests_in_scope(scope: Scope | None) -> set[RequestInfo]:
    user = replace(ADA, scope=scope)
    return {target for target in TARGETS if check_scope(user, target) is None}


def filtered_requests(scope: Scope | None) -> set[RequestInfo]:
    user = replace(ADA, scope=scope)
    return {target for target in TARGETS if overlaps_scope(user, target)}


def union(one: Scope, other: Scope) -> Scope:
    names = [each.name for each in fields(Scope) if each.name != "allow_cli"]
    added = {name: getattr(one, name) + getattr(other, name) for name in names}
    return Scope(allow_cli=one.allow_cli or other.allow_cli, **added)


def test_without_a_scope_everything_is_in_scope() -> None:
    assert requests_in_scope(None) == filtered_requests(None) == set(TARGETS)


@given(scopes)
@property_settings
def test_t2_a_scope_never_grants_a_permission(scope: Scope) -> None:
    user = replace(ADA, scope=scope)
    decisions = [check_scope(user, target) for target in TARGETS]
    assert not any(decision is not None and decision.allowed for decision in decisions)


@given(scopes, scopes)
@property_settings
def test_another_entry_never_removes_a_permission(scope: Scope, other: Scope) -> None:
    combined = union(scope, other)
    assert requests_in_scope(scope) <= requests_in_scope(combined)
    assert filtered_requests(scope) <= filtered_requests(combined)


@given(pairs)
@settings(property_settings, max_examples=at_least(60))
def test_t4_a_covering_scope_allows_what_the_covered_scope_allows(pair: tuple[Scope, Scope]) -> None:
    outer, inner = pair
    if is_superset(outer, inner):
        assert requests_in_scope(inner) <= requests_in_scope(outer)
        assert filtered_requests(inner) <= filtered_requests(outer)


@given(scopes, st.randoms(use_true_random=False))
@property_settings
def test_t4_a_scope_covers_itself_and_every_subset_of_it(scope: Scope, random: Random) -> None:
    names = [each.name for each in fields(Scope) if each.name != "allow_cli"]
    kept = {name: tuple(each for each in getattr(scope, name) if random.random() < 0.5) for name in names}
    subset = Scope(allow_cli=scope.allow_cli and random.random() < 0.5, **kept)
    assert is_superset(scope, scope) and is_superset(scope, subset)
    assert requests_in_scope(subset) <= requests_in_scope(scope)


@given(scopes)
@property_settings
def test_a_gateway_in_scope_allows_every_inner_request(scope: Scope) -> None:
    user = replace(ADA, scope=scope)
    for gateway in GATEWAYS:
        for inner in RESOURCE_TARGETS[:50]:
            if is_in_scope(scope, replace(gateway, verb=inner.verb)):
                assert check_gateway(user, gateway, inner) is None


@given(scopes)
@property_settings
def test_an_object_that_can_be_listed_by_name_is_in_the_list(scope: Scope) -> None:
    """An object that a key may list is never missing because the whole list is denied."""
    for target in filter(None, (as_get_request(each) for each in RESOURCE_TARGETS)):
        for verb in ("list", "watch"):
            all_namespaces = replace(target, verb=verb, name="", namespace="")
            if is_in_scope(scope, replace(target, verb=verb)):
                assert is_in_scope(scope, all_namespaces) or is_filtered(scope, all_namespaces)


@given(scopes)
@property_settings
def test_rules_without_the_verb_list_or_watch_allow_no_list_or_watch(scope: Scope) -> None:
    """Whichever names, namespaces and resources rules have: `get` is not `list`, and `list` is not `watch`."""
    for verb in ("list", "watch"):
        kept = tuple(rule for rule in scope.rules if rule.verbs and not {verb, "*"} & set(rule.verbs))
        rule_scope, discovery = Scope(rules=kept), ("apiextensions.k8s.io", "customresourcedefinitions")
        for target in RESOURCE_TARGETS:
            request = replace(target, verb=verb)
            if (request.group, request.resource) != discovery:
                assert not is_in_scope(rule_scope, request) and not is_filtered(rule_scope, request)


def as_get_request(target: RequestInfo) -> RequestInfo | None:
    """The target as a get of an object that could exist, or None."""
    request = replace(target, verb="get", subresource="")
    if (request.group, request.resource) == ("", "namespaces"):
        return replace(request, namespace=request.name) if request.name else None
    namespaced = NAMES.namespaced.get((request.group, request.resource))
    return request if request.name and namespaced is not None and bool(request.namespace) == namespaced else None


@given(scopes)
@property_settings
def test_an_entry_is_named_for_every_allowed_request(scope: Scope) -> None:
    user = replace(ADA, scope=scope)
    for target in TARGETS[::8]:
        assert bool(find_entry(user, target)) == is_in_scope(scope, target)


@given(scopes)
@property_settings
def test_the_entry_that_a_denial_suggests_allows_the_request(scope: Scope) -> None:
    for target in TARGETS[::8]:
        decision = check_scope(replace(ADA, scope=scope), target)
        if decision is not None:
            assert_entry_helps(scope, target, decision.reason)


def assert_entry_helps(scope: Scope, target: RequestInfo, reason: str) -> None:
    project = re.search('project "([^"]*)"', reason)
    needed_entries = {
        "an entry for project": Scope(projects=(project[1] if project else "", "another")),
        "an entry for a project": Scope(projects=("another",)),
        "an entry for cluster": Scope(clusters=(target.name,)),
        "an entry for a cluster": Scope(clusters=("another",)),
        "an entry of any kind": WEB,
        "needs allowServiceCli": Scope(allow_cli=True),
    }
    needed = next((needed for text, needed in needed_entries.items() if text in reason), None)
    if needed is None:
        assert "only a rule could allow it" in reason or "cannot impersonate" in reason
        assert not is_in_scope(ALL_ENTRIES_BUT_RULES, target)
    else:
        extended = union(scope, needed)
        assert is_in_scope(extended, target) or is_filtered(extended, target)


ALL_ENTRIES_BUT_RULES = Scope(True, ("web", "lab", "p-web"), (("web", "dev"),), (("lab", "qa"),), ("berlin", "web"))
