"""What holds for all scopes, whatever is in them."""

import re
from dataclasses import fields, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.authz.scope import is_superset
from fairlead.core.call import RequestInfo
from fairlead.core.scope import Scope
from tests.authz.scope.decisions import ADA, WEB, entry, inside, through, touched, touching, within
from tests.authz.scope.strategies import ENTRANCES, NAMES, RESOURCE_TARGETS, TARGETS, pairs, scopes

laws = settings(max_examples=30, deadline=None)


def insides(scope: Scope | None) -> set[RequestInfo]:
    user = replace(ADA, scope=scope)
    return {target for target in TARGETS if within(user, target) is None}


def toucheds(scope: Scope | None) -> set[RequestInfo]:
    user = replace(ADA, scope=scope)
    return {target for target in TARGETS if touching(user, target)}


def union(one: Scope, other: Scope) -> Scope:
    names = [each.name for each in fields(Scope) if each.name != "allow_cli"]
    added = {name: getattr(one, name) + getattr(other, name) for name in names}
    return Scope(allow_cli=one.allow_cli or other.allow_cli, **added)


def test_without_a_scope_there_is_no_opinion() -> None:
    assert insides(None) == toucheds(None) == set(TARGETS)


@given(scopes)
@laws
def test_t2_a_scope_never_gives_a_right(scope: Scope) -> None:
    user = replace(ADA, scope=scope)
    decisions = [within(user, target) for target in TARGETS]
    assert not any(decision is not None and decision.allowed for decision in decisions)


@given(scopes, scopes)
@laws
def test_another_entry_never_takes_a_right_away(scope: Scope, more: Scope) -> None:
    both = union(scope, more)
    assert insides(scope) <= insides(both)
    assert toucheds(scope) <= toucheds(both)


@given(pairs)
@settings(laws, max_examples=120)
def test_t4_what_a_covered_scope_allows_the_covering_one_allows_too(pair: tuple[Scope, Scope]) -> None:
    outer, inner = pair
    if is_superset(outer, inner):
        assert insides(inner) <= insides(outer)
        assert toucheds(inner) <= toucheds(outer)


@given(scopes, st.randoms(use_true_random=False))
@laws
def test_t4_a_scope_covers_itself_and_every_part_of_it(scope: Scope, random: Random) -> None:
    names = [each.name for each in fields(Scope) if each.name != "allow_cli"]
    kept = {name: tuple(each for each in getattr(scope, name) if random.random() < 0.5) for name in names}
    part = Scope(allow_cli=scope.allow_cli and random.random() < 0.5, **kept)
    assert is_superset(scope, scope) and is_superset(scope, part)
    assert insides(part) <= insides(scope)


@given(scopes)
@laws
def test_who_may_enter_a_gateway_for_everything_may_for_each_thing(scope: Scope) -> None:
    user = replace(ADA, scope=scope)
    for entrance in ENTRANCES:
        for inner in RESOURCE_TARGETS[:50]:
            if inside(scope, replace(entrance, verb=inner.verb)):
                assert through(user, entrance, inner) is None


@given(scopes)
@laws
def test_what_can_be_listed_by_name_shows_in_a_list(scope: Scope) -> None:
    """Nothing that a key may list is missing from its lists because these are refused."""
    for target in filter(None, (existing(each) for each in RESOURCE_TARGETS)):
        for verb in ("list", "watch"):
            everywhere = replace(target, verb=verb, name="", namespace="")
            if inside(scope, replace(target, verb=verb)):
                assert inside(scope, everywhere) or touched(scope, everywhere)


@given(scopes)
@laws
def test_rules_without_the_verb_of_a_list_open_none(scope: Scope) -> None:
    """Whatever rules say about names, namespaces and resources: `get` is not `list`, and `list` is not `watch`."""
    for verb in ("list", "watch"):
        kept = tuple(rule for rule in scope.rules if rule.verbs and not {verb, "*"} & set(rule.verbs))
        ruled, discovery = Scope(rules=kept), ("apiextensions.k8s.io", "customresourcedefinitions")
        for target in RESOURCE_TARGETS:
            asked = replace(target, verb=verb)
            if (asked.group, asked.resource) != discovery:
                assert not inside(ruled, asked) and not touched(ruled, asked)


def existing(target: RequestInfo) -> RequestInfo | None:
    """The target as a get of an object that there could be."""
    got = replace(target, verb="get", subresource="")
    if (got.group, got.resource) == ("", "namespaces"):
        return replace(got, namespace=got.name) if got.name else None
    namespaced = NAMES.namespaced.get((got.group, got.resource))
    return got if got.name and namespaced is not None and bool(got.namespace) == namespaced else None


@given(scopes)
@laws
def test_the_entry_that_allows_is_named(scope: Scope) -> None:
    user = replace(ADA, scope=scope)
    for target in TARGETS[::8]:
        assert bool(entry(user, target)) == inside(scope, target)


@given(scopes)
@laws
def test_a_refusal_is_right_about_the_entry_that_it_takes(scope: Scope) -> None:
    for target in TARGETS[::8]:
        decision = within(replace(ADA, scope=scope), target)
        if decision is not None:
            assert_cured(scope, target, decision.reason)


def assert_cured(scope: Scope, target: RequestInfo, reason: str) -> None:
    project = re.search('project "([^"]*)"', reason)
    cures = {
        "an entry for project": Scope(projects=(project[1] if project else "", "another")),
        "an entry for a project": Scope(projects=("another",)),
        "an entry for cluster": Scope(clusters=(target.name,)),
        "an entry for a cluster": Scope(clusters=("another",)),
        "an entry of any kind": WEB,
        "needs allowServiceCli": Scope(allow_cli=True),
    }
    cure = next((cure for words, cure in cures.items() if words in reason), None)
    if cure is None:
        assert "only a rule could allow it" in reason or "cannot impersonate" in reason
        assert not inside(EVERYTHING_BUT_RULES, target)
    else:
        cured = union(scope, cure)
        assert inside(cured, target) or touched(cured, target)


EVERYTHING_BUT_RULES = Scope(True, ("web", "lab", "p-web"), (("web", "dev"),), (("lab", "qa"),), ("berlin", "web"))
