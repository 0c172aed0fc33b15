"""Admission of templates and of the parameters that instances pass to them.

- `check_parameters` validates the parameters of an instance and moves passwords out of the readable text. It only
  checks what changes, and only if the template exists: a missing template or version is reported in the instance's
  conditions.
- `prevent_deletion_while_used` rejects deleting a template that instances use: they could no longer be updated.
- `mark_trusted_templates` maintains the annotation `service.sh/trusted`. Objects and charts of a trusted template are
  deployed with the stored credential of the cluster, so only administrators make a template trusted: by creating it, or
  by setting the annotation. When another user changes the definition, the template loses the annotation, with a
  warning.
"""

from typing import Any

from fairlead.admission import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Conflict, Invalid, Problem
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER, User
from fairlead.domain.parameters import given_values, undefined
from fairlead.domain.password_parameters import (
    PASSWORD,
    PLACEHOLDER,
    SECRETS,
    conceal_annotation,
    hide_passwords,
    lost_placeholders,
    secrets_of,
)
from fairlead.domain.template_resolution import (
    TEMPLATES,
    Definition,
    Unresolved,
    definition_for,
    misled_passwords,
    parameter_problems,
)
from fairlead.kinds.instances.templates import DEFINITIONS, FALSE, TRUE, TRUST_ANNOTATION
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key

_TYPES = {
    "spec": dict,
    "spec.templateRef.name": str,
    "spec.templateRef.version": str,
    "spec.parameters": str,
    "spec.template": dict,
    f"spec.{SECRETS}": dict,
}


def parameters(api_group: str) -> Rule:
    """Validates the parameters of an instance and hides its password parameters."""

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
    """Drops stored passwords when the template changes: the author of the new template must not receive them."""
    before, after = (dig(each, "spec.templateRef.name") or "" for each in (change.old or {}, change.obj))
    if change.old is None or before == after or not secrets_of(change.obj):
        return
    old = secrets_of(change.old)
    sent = {name: value for name, value in secrets_of(change.obj).items() if old.get(name) != value}
    change.obj["spec"] = {**change.spec, SECRETS: sent}


def _kept_passwords(change: Change) -> frozenset[str]:
    """The password parameters sent as the placeholder: the requester may not know their values."""
    known = secrets_of(change.old)
    given, _ = given_values(change.spec.get("parameters") or "") if known else ({}, ())
    return frozenset(name for name, value in given.items() if name in known and value == PLACEHOLDER)


def _misled_passwords(change: Change, definition: Definition | None, kept: frozenset[str]) -> list[Problem]:
    found = misled_passwords(change.old or {}, change.obj, definition, kept)
    why = "must be sent again because {} changed: a hidden value is never sent to a different destination"
    return [Problem.required(f"spec.parameters[{name}]", why.format(field)) for name, field in sorted(found.items())]


def _lost_passwords(change: Change, definition: Definition | None) -> list[Problem]:
    """Placeholders in password parameters without a stored value. In other parameters the text is an ordinary value."""
    defined = (definition.parameters or ()) if definition is not None else ()
    secret = {each.get("variable") for each in defined if each.get("type") == PASSWORD} | {*secrets_of(change.old)}
    why = (
        f"must be sent: {PLACEHOLDER} stands for a stored value, and there is none; a value that was sent to another "
        "template does not count"
    )
    lost = (each for each in lost_placeholders(change.spec) if each in secret)
    return [Problem.required(f"spec.parameters[{each}]", why) for each in lost]


def _is_news(change: Change) -> bool:
    return change.old is None or _asked(change.old) != _asked(change.obj)


def _asked(instance: Object) -> tuple[Any, ...]:
    return tuple(dig(instance, f"spec.{name}") for name in ("templateRef", "template", "parameters", SECRETS))


def _is_well_formed(instance: Object) -> bool:
    """Whether the fields have the right types. Schema validation, which runs later, rejects the others."""
    found = ((dig(instance, path), type) for path, type in _TYPES.items())
    return all(value is None or isinstance(value, type) for value, type in found)


def _definition(instance: Object, registry: Registry, templates: tuple[str, str]) -> Definition | None:
    if not dig(instance, "spec.templateRef.name") and not dig(instance, "spec.template"):
        return None  # the parameters are not used
    entry = registry.resource(*templates).peek("", dig(instance, "spec.templateRef.name") or "")
    try:
        return definition_for(instance, decode(entry) if entry is not None else None)
    except Unresolved:
        return None


def _warn(change: Change, definition: Definition) -> None:
    """Warns about parameters that the template does not define, such as misspelt ones."""
    if definition.parameters is None:
        return
    given, _ = given_values(dig(change.obj, "spec.parameters") or "")
    for variable in undefined(definition.parameters, given)[:10]:
        change.warnings.append(f"spec.parameters[{variable}] is not a parameter of the template and has no effect")


INSTANCES = {templates: plural for plural, (templates, _) in TEMPLATES.items()}
NAMED = 10
"""How many instances an error message names."""


def templates_in_use(may: May, api_group: str) -> Rule:
    """Rejects deleting a template while instances use it."""

    @concerning(lambda kind, verb: verb == "delete" and is_one_of(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        plural, name = INSTANCES[kind.plural], name_of(change.obj)
        entries = registry.view.entries(api_group, plural)
        users = [entry.key for entry in entries if entry.fields.get("spec.templateRef.name") == name]
        if users:
            why = f"{_list(users, change.user, may)} using it; delete them or switch them to another template first"
            raise Conflict.of(kind.plural, kind.group, name, why)

    return rule


def _list(keys: list[Key], user: User, may: May) -> str:
    """Names the instances that the requester may read, and counts the others."""
    named: list[str] = []
    for group, plural, namespace, name in keys:
        if len(named) == NAMED:
            break
        if may(user, Target("get", "", "", group, "v1", plural, "", namespace, name)).allowed:
            named.append(f"{namespace}/{name}")
    others = len(keys) - len(named)
    plural = keys[0][1]
    if not named:
        return f"{others} of the {plural} {'is' if others == 1 else 'are'}"
    rest = f" and {others} more" if others else ""
    return f"the {plural} {', '.join(named)}{rest} {'is' if len(keys) == 1 else 'are'}"


TRUSTED_TEMPLATES = ("spacetemplates", "virtualclustertemplates")


def template_trust(api_group: str) -> Rule:
    """Sets, keeps or removes the annotation of trusted templates.

    An administrator's update alone does not make a template trusted: it does not vouch for the rest of the definition.
    """

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *TRUSTED_TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER or change.new is None:
            return
        before, requested = _mark(change.old), _mark(change.new)
        if change.user.holds_everything:
            value = requested or before or (TRUE if change.old is None else "")
        else:
            value = _after_others(change, before, requested)
        _set_mark(change.new, value)

    return rule


def _after_others(change: Change, before: str, asked: str) -> str:
    """The annotation's value after a write by a requester who is not an administrator."""
    if asked not in ("", before):
        change.warnings.append(
            f"metadata.annotations[{TRUST_ANNOTATION}]: only administrators may set this; it was left unchanged"
        )
    is_same = all(dig(change.old, f"spec.{each}") == dig(change.new, f"spec.{each}") for each in DEFINITIONS)
    if change.old is not None and is_same:
        return before
    if before == TRUE:
        change.warnings.append(
            "this template is no longer trusted: what it deploys to clusters now has only the permissions of the "
            f"instance's owner; an administrator can annotate it with {TRUST_ANNOTATION}=true"
        )
    return FALSE


def _mark(template: Object | None) -> str:
    annotations = metadata(template).get("annotations") if template is not None else None
    found = annotations.get(TRUST_ANNOTATION) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""


def _set_mark(template: Object, mark: str) -> None:
    """Sets or removes the annotation. Validation of metadata rejects annotations that are not a map."""
    meta = metadata(template)
    annotations = meta.get("annotations") or {}
    if not isinstance(annotations, dict) or annotations.get(TRUST_ANNOTATION, "") == mark:
        return
    others = {key: value for key, value in annotations.items() if key != TRUST_ANNOTATION}
    meta["annotations"] = {**others, TRUST_ANNOTATION: mark} if mark else others
    if not meta["annotations"]:
        del meta["annotations"]
