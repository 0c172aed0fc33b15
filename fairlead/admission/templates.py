"""What an instance gives to its template must fit the template's parameters; otherwise nothing could be made of it.

Only what changes is looked at, and only against a template that is there: one that is missing, or has no such version,
may still come, and until then the instance's conditions say so.
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


# DOC-MERGED admission/templates_in_use
# A template that instances are made from cannot be deleted: they could not be brought up to date any more.


INSTANCES = {templates: plural for plural, (templates, _) in TEMPLATES.items()}
NAMED = 10
"""How many of those who use a template are named."""


def templates_in_use(may: May, api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb == "delete" and is_one_of(kind, api_group, *INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        plural, name = INSTANCES[kind.plural], name_of(change.obj)
        entries = registry.view.entries(api_group, plural)
        users = [entry.key for entry in entries if entry.fields.get("spec.templateRef.name") == name]
        if users:
            why = f"{_list(users, change.user, may)} made from it; delete them or give them another template first"
            raise Conflict.of(kind.plural, kind.group, name, why)

    return rule


def _list(keys: list[Key], user: User, may: May) -> str:
    """Who uses it, as far as the asker may see them, and how many others do."""
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


# DOC-MERGED admission/template_trust
# Marks templates that administrators have written, and takes the mark off when others change what they make.
#
# Objects and charts of a marked template are made with the credential that is stored for a cluster. So the mark is given
# by administrators only: a template that one of them creates has it, and any other gets it when one of them sets the
# annotation. Changing a template of somebody else is not vouching for the rest of it. Nobody else can set the mark, and
# whoever else changes a definition loses it for the template, with a warning.


TRUSTED_TEMPLATES = ("spacetemplates", "virtualclustertemplates")


def template_trust(api_group: str) -> Rule:
    """The rule, for the API group that this server uses."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, *TRUSTED_TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER or change.new is None:
            return
        before, asked = _mark(change.old), _mark(change.new)
        if change.user.holds_everything:
            mark = asked or before or (TRUE if change.old is None else "")
        else:
            mark = _after_others(change, before, asked)
        _set_mark(change.new, mark)

    return rule


def _after_others(change: Change, before: str, asked: str) -> str:
    """The mark of a template that somebody has written who is no administrator."""
    if asked not in ("", before):
        change.warnings.append(
            f"metadata.annotations[{TRUST_ANNOTATION}]: only administrators set this mark; it stays as it was"
        )
    is_same = all(dig(change.old, f"spec.{each}") == dig(change.new, f"spec.{each}") for each in DEFINITIONS)
    if change.old is not None and is_same:
        return before
    if before == TRUE:
        change.warnings.append(
            "this template was an administrator's and is not any more: what it makes in clusters has from now on no "
            f"more rights than the owner of an instance; an administrator can annotate it with {TRUST_ANNOTATION}=true"
        )
    return FALSE


def _mark(template: Object | None) -> str:
    annotations = metadata(template).get("annotations") if template is not None else None
    found = annotations.get(TRUST_ANNOTATION) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""


def _set_mark(template: Object, mark: str) -> None:
    """What is no map is refused later, by the rules of metadata."""
    meta = metadata(template)
    annotations = meta.get("annotations") or {}
    if not isinstance(annotations, dict) or annotations.get(TRUST_ANNOTATION, "") == mark:
        return
    kept = {key: value for key, value in annotations.items() if key != TRUST_ANNOTATION}
    meta["annotations"] = {**kept, TRUST_ANNOTATION: mark} if mark else kept
    if not meta["annotations"]:
        del meta["annotations"]
