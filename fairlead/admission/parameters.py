"""What an instance gives to its template must fit the template's parameters; otherwise nothing could be made of it.

Only what changes is looked at, and only against a template that is there: one that is missing, or has no such version,
may still come, and until then the instance's conditions say so.
"""

from typing import Any

from fairlead.admission.chain import Rule, concerning, is_one_of
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object, dig, name_of
from fairlead.core.user import CONTROLLER
from fairlead.kinds.parameters import given_values, undefined
from fairlead.kinds.resolution import TEMPLATES, Definition, Unresolved, definition_for, parameter_problems
from fairlead.registry.kind import Change
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry

_TYPES = {
    "spec.templateRef.name": str,
    "spec.templateRef.version": str,
    "spec.parameters": str,
    "spec.template": dict,
}


def parameters(api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        if change.subresource or change.user == CONTROLLER or not _is_news(change) or not _is_well_formed(change.obj):
            return
        definition = _definition(change.obj, registry, (api_group, TEMPLATES[kind.plural][0]))
        if definition is None:
            return
        if problems := parameter_problems(change.obj, definition):
            raise Invalid.of(kind.name, kind.group, name_of(change.obj), problems)
        _warn(change, definition)

    return rule


def _is_news(change: Change) -> bool:
    return change.old is None or _asked(change.old) != _asked(change.obj)


def _asked(instance: Object) -> tuple[Any, ...]:
    return dig(instance, "spec.templateRef"), dig(instance, "spec.template"), dig(instance, "spec.parameters")


def _is_well_formed(instance: Object) -> bool:
    """What is of the wrong type is the schema's to refuse, which happens after this."""
    found = ((dig(instance, path), type) for path, type in _TYPES.items())
    return all(value is None or isinstance(value, type) for value, type in found)


def _definition(instance: Object, registry: Registry, templates: tuple[str, str]) -> Definition | None:
    if not dig(instance, "spec.templateRef.name") and not dig(instance, "spec.template"):
        return None  # nothing reads the parameters, whatever they are
    entry = registry.resource(*templates).peek("", dig(instance, "spec.templateRef.name") or "")
    try:
        return definition_for(instance, decode(entry) if entry is not None else None)
    except Unresolved:
        return None


def _warn(change: Change, definition: Definition) -> None:
    """A misspelt parameter would otherwise be noticed much later, if at all."""
    if definition.parameters is None:
        return
    given, _ = given_values(dig(change.obj, "spec.parameters") or "")
    for variable in undefined(definition.parameters, given)[:10]:
        change.warnings.append(f"spec.parameters[{variable}] is not a parameter of the template and has no effect")
