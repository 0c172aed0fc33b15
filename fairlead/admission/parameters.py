"""What an instance gives to its template must fit the template's parameters; otherwise nothing could be made of it.

Only what changes is looked at, and only against a template that is there: one that is missing, or has no such version,
may still come, and until then the instance's conditions say so.
"""

from typing import Any

from fairlead.admission.chain import Rule, concerning, is_one_of
from fairlead.core.errors import Invalid, Problem
from fairlead.core.objects import Object, dig, name_of
from fairlead.core.user import CONTROLLER
from fairlead.kinds.parameters import given_values, undefined
from fairlead.kinds.password_parameters import (
    PASSWORD,
    PLACEHOLDER,
    SECRETS,
    conceal_annotation,
    hide_passwords,
    lost_placeholders,
    secrets_of,
)
from fairlead.kinds.resolution import (
    TEMPLATES,
    Definition,
    Unresolved,
    definition_for,
    misled_passwords,
    parameter_problems,
)
from fairlead.registry.kind import Change
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry

_TYPES = {
    "spec": dict,
    "spec.templateRef.name": str,
    "spec.templateRef.version": str,
    "spec.parameters": str,
    "spec.template": dict,
    f"spec.{SECRETS}": dict,
}


def parameters(api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        if change.subresource or change.user == CONTROLLER or not _is_news(change) or not _is_well_formed(change.obj):
            return
        _drop_secrets_of_another_template(change)
        definition = _definition(change.obj, registry, (api_group, TEMPLATES[kind.plural][0]))
        kept = _kept_passwords(change)
        if definition is not None and definition.parameters is not None:
            hidden = hide_passwords(change.spec, definition.parameters, secrets_of(change.old))
            change.obj["spec"] = hidden if hidden is not None else change.spec
        conceal_annotation(change.obj)
        if lost := _lost_passwords(change, definition):
            raise Invalid.of(kind.name, kind.group, name_of(change.obj), lost)
        if misled := _misled_passwords(change, definition, kept):
            raise Invalid.of(kind.name, kind.group, name_of(change.obj), misled)
        if definition is None:
            return
        if problems := parameter_problems(change.obj, definition):
            raise Invalid.of(kind.name, kind.group, name_of(change.obj), problems)
        _warn(change, definition)

    return rule


def _drop_secrets_of_another_template(change: Change) -> None:
    """What was given to one template is not for another to render: its author may be somebody else."""
    before, after = (dig(each, "spec.templateRef.name") or "" for each in (change.old or {}, change.obj))
    if change.old is None or before == after or not secrets_of(change.obj):
        return
    old = secrets_of(change.old)
    sent = {name: value for name, value in secrets_of(change.obj).items() if old.get(name) != value}
    change.obj["spec"] = {**change.spec, SECRETS: sent}


def _kept_passwords(change: Change) -> frozenset[str]:
    """The hidden parameters that the text has a placeholder for: whoever sends it need not know them."""
    known = secrets_of(change.old)
    given, _ = given_values(change.spec.get("parameters") or "") if known else ({}, ())
    return frozenset(name for name, value in given.items() if name in known and value == PLACEHOLDER)


def _misled_passwords(change: Change, definition: Definition | None, kept: frozenset[str]) -> list[Problem]:
    found = misled_passwords(change.old or {}, change.obj, definition, kept)
    why = "must be sent again because {} changed: a value that nobody can read is not sent to another place"
    return [Problem.required(f"spec.parameters[{name}]", why.format(field)) for name, field in sorted(found.items())]


def _lost_passwords(change: Change, definition: Definition | None) -> list[Problem]:
    """Placeholders that stand for nothing. Elsewhere the text is a value like any other."""
    defined = (definition.parameters or ()) if definition is not None else ()
    secret = {each.get("variable") for each in defined if each.get("type") == PASSWORD} | {*secrets_of(change.old)}
    why = (
        f"must be sent: {PLACEHOLDER} stands for a value that was given before, and there is none; a value that was "
        "given to another template does not count"
    )
    lost = (each for each in lost_placeholders(change.spec) if each in secret)
    return [Problem.required(f"spec.parameters[{each}]", why) for each in lost]


def _is_news(change: Change) -> bool:
    return change.old is None or _asked(change.old) != _asked(change.obj)


def _asked(instance: Object) -> tuple[Any, ...]:
    return tuple(dig(instance, f"spec.{name}") for name in ("templateRef", "template", "parameters", SECRETS))


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
