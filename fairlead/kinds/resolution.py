"""What an instance is made from: the template's definition, in the version that the instance asks for, with its values.

Pure. Admission refuses with it what could never be resolved; the instance controller writes down what came of it.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.core.errors import Problem
from fairlead.core.objects import Object, dig, name_of
from fairlead.kinds.parameters import checked_values, given_values
from fairlead.kinds.password_parameters import secrets_of, with_secrets
from fairlead.kinds.rendering import RenderingError, led_elsewhere, rendered, steered_credential
from fairlead.kinds.shared import CHART_CONTENT
from fairlead.kinds.versions import NEWEST, best_match, newest, parse_pattern

TEMPLATES: Mapping[str, tuple[str, str]] = {
    "devpodworkspaceinstances": ("devpodworkspacetemplates", "instance"),
    "spaceinstances": ("spacetemplates", "space"),
    "virtualclusterinstances": ("virtualclustertemplates", "virtualCluster"),
}
"""By plural of an instance: the plural of its templates, and the field of its status for the rendered one."""


class Unresolved(Exception):
    """Why an instance cannot be made from its template: one word for programs, and a sentence for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Definition:
    """What to make. `parameters` is None for what is written out in place: there is nobody to say what is allowed."""

    template: Object
    parameters: Sequence[Object] | None
    version: str = ""
    newest: str = ""
    """The template's newest version, if it has versions."""


def definition_for(instance: Object, template: Object | None) -> Definition:
    """The definition that the instance asks for. `template` is what its templateRef names. Raises Unresolved."""
    name = dig(instance, "spec.templateRef.name")
    if not name:
        return Definition(dig(instance, "spec.template") or {}, None)
    if template is None:
        raise Unresolved("TemplateNotFound", f'there is no template "{name}"; create it, or name another')
    wanted = dig(instance, "spec.templateRef.version") or ""
    pattern = parse_pattern(wanted)
    if wanted and pattern is None:
        why = f'version "{wanted}" is not three parts, each a number or x, such as 1.2.x; mend spec.templateRef.version'
        raise Unresolved("VersionError", why)
    versions = dig(template, "spec.versions") or ()
    last = newest(_versions(versions)) or ""
    if pattern is None or (wanted == NEWEST and not versions):
        return _as_it_stands(template, last)
    found = best_match(pattern, _versions(versions))
    if found is None:
        raise Unresolved("VersionNotFound", _no_version(template, wanted, last))
    entry = next(each for each in versions if each.get("version") == found)
    return Definition(entry.get("template") or {}, entry.get("parameters") or (), found, last)


def _versions(entries: Sequence[Object]) -> list[str]:
    return [each.get("version") or "" for each in entries]


def _as_it_stands(template: Object, last: str) -> Definition:
    spec = template.get("spec") or {}
    if last and not spec.get("template"):
        why = f'template "{name_of(template)}" has versions only; set spec.templateRef.version to {NEWEST} or {last}'
        raise Unresolved("VersionNotFound", why)
    return Definition(spec.get("template") or {}, spec.get("parameters") or (), "", "")


def _no_version(template: Object, wanted: str, last: str) -> str:
    there = f"its newest is {last}" if last else "it has no versions"
    return f'template "{name_of(template)}" has no version {wanted}: {there}'


def parameter_problems(instance: Object, definition: Definition) -> Sequence[Problem]:
    return _values(instance, definition)[1]


def _values(instance: Object, definition: Definition) -> tuple[Mapping[str, str], Sequence[Problem]]:
    written, problems = given_values(dig(instance, "spec.parameters") or "")
    given = with_secrets(written, secrets_of(instance))
    if definition.parameters is None:
        return {variable: _as_written(value) for variable, value in given.items()}, problems
    values, faults = checked_values(definition.parameters, given, written)
    return values, [*problems, *faults]


def _as_written(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def made(instance: Object, definition: Definition) -> Object:
    """The definition rendered with the instance's values. Raises Unresolved."""
    values, problems = _values(instance, definition)
    if problems:
        raise Unresolved("ErrorSyncingParameters", "; ".join(str(each) for each in problems[:10]))
    try:
        result = rendered(definition.template, values, raw=definition.parameters is None)
    except RenderingError as error:
        raise Unresolved("ErrorRenderingTemplate", f"the template cannot be rendered: {error}") from None
    if steered := steered_credential(definition.template, result, CHART_CONTENT):
        why = (
            f"{steered} comes from parameters, and a password stands beside it that whoever sets them cannot read: "
            "have the address and user written out in the template, or the password made a parameter, too"
        )
        raise Unresolved("ErrorRenderingTemplate", f"the template cannot be rendered: {why}")
    return result


def misled_passwords(
    before: Object, after: Object, definition: Definition | None, kept: Collection[str]
) -> Mapping[str, str]:
    """The hidden parameters of `kept` that other values would send elsewhere, each with the field that changes.

    Whoever changes those values has never seen them. What cannot be rendered could lead anywhere.
    """
    values = [given_values(dig(each, "spec.parameters") or "")[0] for each in (before, after)]
    if not kept or values[0] == values[1]:
        return {}
    if definition is None:
        return dict.fromkeys(kept, "spec.parameters")
    try:
        rendered_before = made(before, definition)
    except Unresolved:
        return dict.fromkeys(kept, "spec.parameters")
    try:
        rendered_after = made(after, definition)
    except Unresolved:
        return {}  # nothing is made of it, and what comes after it is compared with it
    return dict(led_elsewhere(definition.template, rendered_before, rendered_after, kept, CHART_CONTENT))


def fingerprint(instance: Object, visible: Definition) -> str:
    """What the instance asks for, and what its definition says: of that, what everybody may see, not its passwords."""
    asked = [dig(instance, "spec.templateRef.name") or "", dig(instance, "spec.templateRef.version") or ""]
    return f"{_digest(asked)}-{_digest([visible.version, visible.template, list(visible.parameters or ())])}"


def asks_alike(one: str, other: str) -> bool:
    """Whether two fingerprints are of instances that ask for the same template in the same way."""
    return one.partition("-")[0] == other.partition("-")[0]


def follows(instance: Object) -> bool:
    """Whether changes of the template are taken over as they come: with a version, and when it is written in place."""
    return not dig(instance, "spec.templateRef.name") or bool(dig(instance, "spec.templateRef.version"))


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:24]
