"""The admission chain: rules run in order, the first rejection ends it, and it needs a registry."""

from collections.abc import Callable

import pytest

from fairlead.admission import AdmissionChain, Rule, applies_to
from fairlead.core.errors import Forbidden, Invalid, Problem
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from tests.harness.registry import ADA, GADGET, RegistryFixture

CHANGE = Change("create", GADGET, ADA, None, {})


def recording_rule(name: str, calls: list[str], action: Callable[[], None] = lambda: None) -> Rule:
    async def record(change: Change, registry: Registry) -> None:
        calls.append(name)
        action()

    return record


def reject() -> None:
    raise Forbidden("not here")


async def test_the_rules_run_in_order(api: RegistryFixture) -> None:
    calls: list[str] = []
    chain = AdmissionChain()
    chain.bind(api.registry, (recording_rule("first", calls), recording_rule("second", calls)))
    await chain(CHANGE)
    assert calls == ["first", "second"]


async def test_no_rule_runs_after_a_rejection(api: RegistryFixture) -> None:
    calls: list[str] = []
    chain = AdmissionChain()
    chain.bind(api.registry, (recording_rule("first", calls, reject), recording_rule("second", calls)))
    with pytest.raises(Forbidden, match="not here"):
        await chain(CHANGE)
    assert calls == ["first"]


async def test_a_chain_without_a_registry_raises() -> None:
    with pytest.raises(RuntimeError, match="before bind"):
        await AdmissionChain()(CHANGE)


async def test_a_rule_runs_only_for_the_kinds_and_verbs_that_it_applies_to(api: RegistryFixture) -> None:
    calls: list[str] = []
    deletes = applies_to(lambda kind, verb: verb == "delete")(recording_rule("deletes", calls))
    gadgets = applies_to(lambda kind, verb: kind.plural == GADGET.plural)(recording_rule("gadgets", calls))
    chain = AdmissionChain()
    chain.bind(api.registry, (deletes, recording_rule("everything", calls), gadgets))
    await chain(CHANGE)
    await chain(Change("delete", GADGET, ADA, {}, None))
    await chain(Change("create", PROJECT, ADA, None, {}))
    assert calls == ["everything", "gadgets", "deletes", "everything", "gadgets", "everything"]


async def test_a_rule_outside_of_a_chain_ignores_other_changes_too(api: RegistryFixture) -> None:
    calls: list[str] = []
    deletes = applies_to(lambda kind, verb: verb == "delete")(recording_rule("deletes", calls))
    await deletes(CHANGE, api.registry)
    assert calls == []
    await deletes(Change("delete", GADGET, ADA, {}, None), api.registry)
    assert calls == ["deletes"]


def raise_type_error() -> None:
    raise TypeError("unhashable type: 'dict'")


async def test_a_rule_that_fails_on_an_invalid_object_yields_to_the_schema_errors(api: RegistryFixture) -> None:
    chain = AdmissionChain()
    chain.bind(api.registry, (recording_rule("fails", [], raise_type_error),))
    problem = Problem.invalid("spec.name", {}, "must be a string")
    with pytest.raises(Invalid) as error:
        await chain(Change("create", GADGET, ADA, None, {}, problems=[problem]))
    assert "spec.name" in error.value.message
    with pytest.raises(TypeError):
        await chain(CHANGE)


async def test_a_rejection_takes_precedence_over_schema_errors(api: RegistryFixture) -> None:
    chain = AdmissionChain()
    chain.bind(api.registry, (recording_rule("rejects", [], reject),))
    with pytest.raises(Forbidden):
        await chain(Change("create", GADGET, ADA, None, {}, problems=[Problem.invalid("spec", 1, "must be an object")]))
