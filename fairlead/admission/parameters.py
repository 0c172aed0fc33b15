"""Parameters of instances: they must be valid for the template or App, and passwords are not stored in readable text.

- `parse_large_parameters` parses large ones before the other rules need them, in a thread: parsing the largest takes
  some twenty milliseconds, in which the event loop would serve nothing else. `parse_values` remembers the result.
- `check_parameters` is the rule for instances of templates. It only checks what changes, and only if the template
  exists: a missing template or version is reported in the instance's conditions.
- `check_values` is the check itself; `apps.py` uses it for AppInstances.

The author of a template receives the passwords of its instances. So when an instance changes to another template, its
stored passwords are dropped, and have to be sent again. An AppInstance cannot change to another App.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fairlead.admission import Rule, applies_to, has_valid_types, invalid, is_resource
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, get_path
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.parameters import find_undefined, is_large, parse_values
from fairlead.domain.password_parameters import (
    PASSWORD_TYPE,
    PLACEHOLDER,
    SECRETS_FIELD,
    dangling_placeholders,
    hidden_values,
    hide_passwords,
    redact_last_applied,
)
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    find_definition,
    find_redirected_passwords,
    parameter_problems,
)
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

_FIELD_TYPES = {
    "spec": dict,
    "spec.templateRef.name": str,
    "spec.templateRef.version": str,
    "spec.parameters": str,
    "spec.template": dict,
    f"spec.{SECRETS_FIELD}": dict,
}


def parse_large_parameters(api_group: str) -> Rule:
    """Must be before all rules that read parameters."""
    plurals = (APP_INSTANCE.plural, *TEMPLATE_INSTANCES)

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *plurals))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource:
            return
        for each in (change.old, change.new):
            text = get_path(each, "spec.parameters")
            if isinstance(text, str) and is_large(text):
                await asyncio.to_thread(parse_values, text)

    return rule


def check_parameters(api_group: str) -> Rule:
    """Validates the parameters of an instance of a template and hides its password parameters."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *TEMPLATE_INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        if (
            change.subresource
            or change.user == CONTROLLER_USER
            or not _parameters_changed(change)
            or not has_valid_types(change.obj, _FIELD_TYPES)
        ):
            return
        _drop_secrets_of_another_template(change)
        templates = (api_group, TEMPLATE_INSTANCES[change.kind.plural].templates)
        definition = _find_definition(change.obj, registry, templates)
        check_values(change, definition, parameter_problems)
        if definition is not None:
            _warn_undefined_parameters(change, definition)

    return rule


def check_values(
    change: Change,
    definition: TemplateDefinition | None,
    find_problems: Callable[[Object, TemplateDefinition], Sequence[Problem]],
) -> None:
    """Validates the parameters of an instance and moves passwords out of the readable text. Raises Invalid.

    `definition` is that of the template or App, None if it does not exist.
    """
    placeholders = _placeholder_parameters(change)
    if definition is not None and definition.parameters is not None:
        hidden = hide_passwords(change.spec, definition.parameters, hidden_values(change.old))
        change.obj["spec"] = hidden if hidden is not None else change.spec
    redact_last_applied(change.obj)
    problems = [
        *_missing_password_problems(change, definition),
        *_redirected_password_problems(change, definition, placeholders),
    ]
    if not problems and definition is not None:
        problems = [*find_problems(change.obj, definition)]
    if problems:
        raise invalid(change, *problems)


def _drop_secrets_of_another_template(change: Change) -> None:
    """Drops stored passwords when the template changes: the author of the new template must not receive them."""
    before = get_path(change.old or {}, "spec.templateRef.name") or ""
    after = get_path(change.obj, "spec.templateRef.name") or ""
    if change.old is None or before == after or not hidden_values(change.obj):
        return
    old = hidden_values(change.old)
    sent = {name: value for name, value in hidden_values(change.obj).items() if old.get(name) != value}
    change.obj["spec"] = {**change.spec, SECRETS_FIELD: sent}


def _placeholder_parameters(change: Change) -> frozenset[str]:
    """The password parameters sent as the placeholder: the requester may not know their values."""
    known = hidden_values(change.old)
    values, _ = parse_values(change.spec.get("parameters") or "") if known else ({}, ())
    return frozenset(name for name, value in values.items() if name in known and value == PLACEHOLDER)


def _redirected_password_problems(
    change: Change, definition: TemplateDefinition | None, placeholders: frozenset[str]
) -> list[Problem]:
    found = find_redirected_passwords(change.old or {}, change.obj, definition, placeholders)
    why = "must be sent again because {} changed: a hidden value is never sent to a different destination"
    return [Problem.required(f"spec.parameters[{name}]", why.format(field)) for name, field in sorted(found.items())]


def _missing_password_problems(change: Change, definition: TemplateDefinition | None) -> list[Problem]:
    """Placeholders in password parameters without a stored value. In other parameters the text is an ordinary value."""
    defined = (definition.parameters or ()) if definition is not None else ()
    secret = {each.get("variable") for each in defined if each.get("type") == PASSWORD_TYPE}
    secret |= {*hidden_values(change.old)}
    why = (
        f"must be sent: {PLACEHOLDER} stands for a stored value, and there is none; a value that was sent to another "
        "template or app does not count"
    )
    lost = (each for each in dangling_placeholders(change.spec) if each in secret)
    return [Problem.required(f"spec.parameters[{each}]", why) for each in lost]


def _parameters_changed(change: Change) -> bool:
    return change.old is None or _parameter_inputs(change.old) != _parameter_inputs(change.obj)


def _parameter_inputs(instance: Object) -> tuple[Any, ...]:
    return tuple(
        get_path(instance, f"spec.{name}") for name in ("templateRef", "template", "parameters", SECRETS_FIELD)
    )


def _find_definition(instance: Object, registry: Registry, templates: tuple[str, str]) -> TemplateDefinition | None:
    if not get_path(instance, "spec.templateRef.name") and not get_path(instance, "spec.template"):
        return None  # the parameters are not used
    entry = registry.resource(*templates).get_cached("", get_path(instance, "spec.templateRef.name") or "")
    try:
        return find_definition(instance, decode(entry) if entry is not None else None)
    except ResolutionError:
        return None


def _warn_undefined_parameters(change: Change, definition: TemplateDefinition) -> None:
    """Warns about parameters that the template does not define, such as misspelt ones."""
    if definition.parameters is None:
        return
    values, _ = parse_values(get_path(change.obj, "spec.parameters") or "")
    for variable in find_undefined(definition.parameters, values)[:10]:
        change.warnings.append(f"spec.parameters[{variable}] is not a parameter of the template and has no effect")
