"""The chain of rules: each in its place, the first refusal ends it, and no rule without a registry."""

from collections.abc import Callable

import pytest

from fairlead.admission import AdmissionChain, Rule, applies_to
from fairlead.core.errors import Forbidden, Invalid, Problem
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from tests.harness.registry import ADA, GADGET, RegistryFixture

CHANGE = Change("create", GADGET, ADA, None, {})


def rule(name: str, asked: list[str], act: Callable[[], None] = lambda: None) -> Rule:
    async def note(change: Change, registry: Registry) -> None:
        asked.append(name)
        act()

    return note


def refuse() -> None:
    raise Forbidden("not here")


async def test_the_rules_are_asked_in_order(api: RegistryFixture) -> None:
    asked: list[str] = []
    chain = AdmissionChain((rule("first", asked), rule("second", asked)))
    chain.bind_registry(api.registry)
    await chain(CHANGE)
    assert asked == ["first", "second"]


async def test_after_a_refusal_nobody_else_is_asked(api: RegistryFixture) -> None:
    asked: list[str] = []
    chain = AdmissionChain((rule("first", asked, refuse), rule("second", asked)))
    chain.bind_registry(api.registry)
    with pytest.raises(Forbidden, match="not here"):
        await chain(CHANGE)
    assert asked == ["first"]


async def test_a_chain_that_was_given_no_registry_refuses_to_guess() -> None:
    with pytest.raises(RuntimeError, match="before bind_registry"):
        await AdmissionChain(())(CHANGE)


async def test_a_rule_is_asked_about_what_concerns_it_alone(api: RegistryFixture) -> None:
    asked: list[str] = []
    deletes = applies_to(lambda kind, verb: verb == "delete")(rule("deletes", asked))
    gadgets = applies_to(lambda kind, verb: kind.plural == GADGET.plural)(rule("gadgets", asked))
    chain = AdmissionChain((deletes, rule("everything", asked), gadgets))
    chain.bind_registry(api.registry)
    await chain(CHANGE)
    await chain(Change("delete", GADGET, ADA, {}, None))
    await chain(Change("create", PROJECT, ADA, None, {}))
    assert asked == ["everything", "gadgets", "deletes", "everything", "gadgets", "everything"]


async def test_a_rule_outside_of_a_chain_also_knows_what_concerns_it(api: RegistryFixture) -> None:
    asked: list[str] = []
    deletes = applies_to(lambda kind, verb: verb == "delete")(rule("deletes", asked))
    await deletes(CHANGE, api.registry)
    assert asked == []
    await deletes(Change("delete", GADGET, ADA, {}, None), api.registry)
    assert asked == ["deletes"]


def fail() -> None:
    raise TypeError("unhashable type: 'dict'")


async def test_a_rule_that_fails_on_an_invalid_object_leaves_the_answer_to_the_schema(api: RegistryFixture) -> None:
    chain = AdmissionChain((rule("fails", [], fail),))
    chain.bind_registry(api.registry)
    problem = Problem.invalid("spec.name", {}, "must be a string")
    with pytest.raises(Invalid) as refused:
        await chain(Change("create", GADGET, ADA, None, {}, problems=[problem]))
    assert "spec.name" in refused.value.message
    with pytest.raises(TypeError):
        await chain(CHANGE)


async def test_a_refusal_comes_before_what_the_schema_says(api: RegistryFixture) -> None:
    chain = AdmissionChain((rule("refuses", [], refuse),))
    chain.bind_registry(api.registry)
    with pytest.raises(Forbidden):
        await chain(Change("create", GADGET, ADA, None, {}, problems=[Problem.invalid("spec", 1, "must be an object")]))
