"""Resolves an instance's template: picks the version, validates the parameters, and renders the template.

Pure. Admission rejects instances that cannot be resolved; the instance controller stores the result.

Rendering replaces `{{ parameters.image.tag }}` with the value of that parameter. Nothing is executed: there are no
conditions, loops or functions, and values are not rendered again. `{{ parameters.name | quote }}` inserts a quoted
string, which is a single value in YAML and JSON. Other braces, such as those of charts, are kept.

Some fields of a template are YAML that is parsed later. The user who sets a value is not the author of the template, so
in these fields a value can only become a scalar or part of one. It cannot add fields or objects.

Versions of templates are three numbers such as `1.4.0`. Instances request a version or a pattern such as `1.4.x`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.core import yaml
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, dig, name_of
from fairlead.core.validators import names_a_place
from fairlead.domain.parameters import checked_values, given_values
from fairlead.domain.password_parameters import secrets_of, with_secrets
from fairlead.kinds.fields import CHART_CONTENT

RENDERED_LIMIT = 1024 * 1024
"""Maximum characters of all strings of a rendered template together."""

_placeholder = re.compile(
    r"\{\{[ \t]{0,20}parameters\.([A-Za-z0-9_.-]{1,253})[ \t]{0,20}(\|[ \t]{0,20}quote[ \t]{0,20})?\}\}", re.ASCII
)


_document = re.compile(r"^---(?=\s|$)", re.MULTILINE)
YAML_TEXTS = frozenset({"objects", "values", "parameters"})
"""Fields of templates, at any path, whose text is YAML."""

PASSWORD = "password"


class RenderingError(Exception):
    """A template that cannot be rendered; the message says why."""


class _Budget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = RENDERED_LIMIT

    def spend(self, text: str) -> str:
        self.left -= len(text)
        if self.left < 0:
            raise RenderingError(f"the rendered template would have more than {RENDERED_LIMIT} characters")
        return text


def rendered(template: Object, values: Mapping[str, str], *, raw: bool = False) -> Object:
    """A copy of the template with the values inserted. Raises RenderingError.

    With `raw`, values are inserted into YAML unescaped, for users who also wrote the template.
    """
    yaml_texts = frozenset() if raw else YAML_TEXTS
    result: Object = _rendered(template, values, _Budget(), yaml_texts)
    return result


def _rendered(value: Any, values: Mapping[str, str], budget: _Budget, yaml_texts: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _filled_yaml(name, each, values, budget)
            if name in yaml_texts and isinstance(each, str)
            else _rendered(each, values, budget, yaml_texts)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_rendered(each, values, budget, yaml_texts) for each in value]
    return _filled(value, values, budget) if isinstance(value, str) else value


def _filled_yaml(name: str, text: str, values: Mapping[str, str], budget: _Budget) -> str:
    """Renders a YAML text: parses it with a marker in place of each placeholder, and then replaces the markers in
    scalars."""
    if not _placeholder.search(text):
        return budget.spend(text)
    _filled(text, values, _Budget())  # raises if a parameter is not defined, or the result is too long
    word = "parameter"
    while word in text:
        word += "x"
    variables: list[str] = []

    def add_marker(found: re.Match[str]) -> str:
        variables.append(found[1])
        return f'"{word}{len(variables) - 1}q"' if found[2] else f"{word}{len(variables) - 1}p"

    marked = _placeholder.sub(add_marker, text)
    words = re.compile(rf'"{word}(?P<quoted>[0-9]+)q"|{word}(?P<number>[0-9]+)(?P<sort>[pq])')

    def fill(scalar: str) -> str:
        return words.sub(lambda found: budget.spend(_value_of(found, scalar, variables, values)), scalar)

    documents = [_read_filled(name, each, fill) for each in _document.split(marked)]
    kept = [yaml.encode(each).decode() for each in documents if each is not None]
    return budget.spend("---\n".join(kept))


def _value_of(found: re.Match[str], scalar: str, variables: list[str], values: Mapping[str, str]) -> str:
    """The value for a marker. `quote` matters only inside a longer scalar; a scalar of its own needs no quotes."""
    value = values[variables[int(found["quoted"] or found["number"])]]
    if found["quoted"]:
        return json.dumps(value, ensure_ascii=False)
    is_inside = found["sort"] == "q" and found[0] != scalar
    return json.dumps(value, ensure_ascii=False)[1:-1] if is_inside else value


def _read_filled(name: str, text: str, fill: Callable[[str], str]) -> Any:
    try:
        value, duplicates = yaml.decode(text.encode(), fill)
    except yaml.Malformed as error:
        reason = f"its {name} is not valid YAML with a scalar in place of each parameter: {error}"
        raise RenderingError(f"{reason}; fix the template") from None
    if duplicates:
        raise RenderingError(f"a value makes {duplicates[0]} in its {name} occur twice; set another value")
    return value


def _filled(text: str, values: Mapping[str, str], budget: _Budget) -> str:
    """Renders a plain text piece by piece, so that one that grows too large is rejected early."""
    pieces: list[str] = []
    end = 0
    for found in _placeholder.finditer(text):
        variable = found[1]
        if variable not in values:
            raise RenderingError(f"it uses parameters.{variable}, which it does not define; fix the template")
        value = json.dumps(values[variable], ensure_ascii=False) if found[2] else values[variable]
        pieces += (budget.spend(text[end : found.start()]), budget.spend(value))
        end = found.end()
    pieces.append(budget.spend(text[end:]))
    return "".join(pieces)


def led_elsewhere(
    template: Any, before: Any, after: Any, kept: Collection[str], free: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The passwords of `kept` that changed values would send to another destination, each with the sibling field that
    changes.

    `before` and `after` are the template as rendered with the old and the new values.
    """
    if isinstance(template, list):
        for each in zip(template, before, after, strict=True):
            yield from led_elsewhere(*each, kept, free)
    elif isinstance(template, dict):
        found = _placeholder.fullmatch(str(template.get(PASSWORD) or ""))
        for name, value in template.items():
            was, now = before[name], after[name]
            is_place = name not in free or names_a_place(name, was) or names_a_place(name, now)
            if found is not None and found[1] in kept and name != PASSWORD and is_place and was != now:
                yield found[1], name
            yield from led_elsewhere(value, was, now, kept, free)


def _refers_to_secret(template: Object, made: Object) -> bool:
    """Whether the template itself references the secret with the password, so that it does not come from parameters."""
    reference = template.get(f"{PASSWORD}Ref")
    return bool(dig(reference, "projectSecretRef.name")) and reference == made[f"{PASSWORD}Ref"]


def steered_credential(template: Any, made: Any, free: Collection[str], at: str = "") -> str:
    """The field through which parameters determine where a password of the template is sent; empty if there is none.

    Users who set the parameters cannot read that password. A password that is itself a parameter is their own, and may
    be sent anywhere. `safe_siblings` are the sibling fields of a password that do not matter, unless they contain an
    address.
    """
    if isinstance(template, list):
        pairs = enumerate(zip(template, made, strict=True))
        found = (steered_credential(*each, free, f"{at}[{index}]") for index, each in pairs)
        return next(filter(None, found), "")
    if not isinstance(template, dict):
        return ""
    own = template.get(PASSWORD)
    has_own = isinstance(own, str) and bool(own) and not _placeholder.fullmatch(own)
    if has_own or _refers_to_secret(template, made):
        for name, value in template.items():
            is_place = name not in free or names_a_place(name, value) or names_a_place(name, made[name])
            if is_place and value != made[name]:
                return f"{at}.{name}".lstrip(".")
    found = (steered_credential(value, made[name], free, f"{at}.{name}") for name, value in template.items())
    return next(filter(None, found), "")


Version = tuple[int, int, int]
Pattern = tuple[int | None, int | None, int | None]
"""A version with None for each `x`."""

NEWEST = "x.x.x"
"""The pattern for the newest version."""

_PART = "([0-9]{1,9})"
_version = re.compile(rf"{_PART}\.{_PART}\.{_PART}", re.ASCII)
_WILD = "([0-9]{1,9}|x)"
_pattern = re.compile(rf"{_WILD}\.{_WILD}\.{_WILD}", re.ASCII)


def parse_version(text: str) -> Version | None:
    """The three numbers, or None if the text is not a version."""
    found = _version.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def parse_pattern(text: str) -> Pattern | None:
    """The three parts, or None if the text is not a pattern. Only a lower case `x` is a wildcard."""
    found = _pattern.fullmatch(text)
    return (_part(found[1]), _part(found[2]), _part(found[3])) if found else None


def _part(text: str) -> int | None:
    return None if text == "x" else int(text)


def matches(pattern: Pattern, version: Version) -> bool:
    return all(wanted is None or wanted == part for wanted, part in zip(pattern, version, strict=True))


def best_match(pattern: Pattern, texts: Iterable[str]) -> str | None:
    """The newest version that matches the pattern, as written. Invalid versions are ignored."""
    found = [(version, text) for text in texts if (version := parse_version(text)) and matches(pattern, version)]
    return max(found)[1] if found else None


def newest(texts: Iterable[str]) -> str | None:
    return best_match((None, None, None), texts)


TEMPLATES: Mapping[str, tuple[str, str]] = {
    "devpodworkspaceinstances": ("devpodworkspacetemplates", "instance"),
    "spaceinstances": ("spacetemplates", "space"),
    "virtualclusterinstances": ("virtualclustertemplates", "virtualCluster"),
}
"""By plural of an instance: the plural of its templates, and the status field with the rendered template."""


class Unresolved(Exception):
    """An instance cannot be created from its template: a reason for programs, and a message for users."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Definition:
    """The template to render. `parameters` is None for a template inside the instance, which defines no parameters."""

    template: Object
    parameters: Sequence[Object] | None
    version: str = ""
    newest: str = ""
    """The newest version of the template, if it has versions."""


def definition_for(instance: Object, template: Object | None) -> Definition:
    """The definition that the instance requests. `template` is what templateRef names. Raises ResolutionError."""
    name = dig(instance, "spec.templateRef.name")
    if not name:
        return Definition(dig(instance, "spec.template") or {}, None)
    if template is None:
        raise Unresolved("TemplateNotFound", f'there is no template "{name}"; create it, or name another')
    wanted = dig(instance, "spec.templateRef.version") or ""
    pattern = parse_pattern(wanted)
    if wanted and pattern is None:
        message = f'version "{wanted}" must be three parts, each a number or x, such as 1.2.x'
        raise Unresolved("VersionError", f"{message}; fix spec.templateRef.version")
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
        reason = f'template "{name_of(template)}" has versions only; set spec.templateRef.version to {NEWEST} or {last}'
        raise Unresolved("VersionNotFound", reason)
    return Definition(spec.get("template") or {}, spec.get("parameters") or (), "", "")


def _no_version(template: Object, wanted: str, last: str) -> str:
    available = f"its newest is {last}" if last else "it has no versions"
    return f'template "{name_of(template)}" has no version {wanted}: {available}'


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
    """The definition rendered with the instance's values. Raises ResolutionError."""
    values, problems = _values(instance, definition)
    if problems:
        raise Unresolved("ErrorSyncingParameters", "; ".join(str(each) for each in problems[:10]))
    try:
        result = rendered(definition.template, values, raw=definition.parameters is None)
    except RenderingError as error:
        raise Unresolved("ErrorRenderingTemplate", f"the template cannot be rendered: {error}") from None
    if field := steered_credential(definition.template, result, CHART_CONTENT):
        reason = (
            f"{field} comes from parameters and would redirect a password that users of the template cannot read: "
            "set the address and user in the template, or make the password a parameter, too"
        )
        raise Unresolved("ErrorRenderingTemplate", f"the template cannot be rendered: {reason}")
    return result


def misled_passwords(
    before: Object, after: Object, definition: Definition | None, kept: Collection[str]
) -> Mapping[str, str]:
    """The hidden parameters of `kept` that changed values would send to another destination, each with the changed
    field.

    The user who changes the values cannot read them. If the old values cannot be rendered, all of them count.
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
        return {}  # it is not deployed, and the next update is compared with it
    return dict(led_elsewhere(definition.template, rendered_before, rendered_after, kept, CHART_CONTENT))


def fingerprint(instance: Object, visible: Definition) -> str:
    """A digest of the template reference and of the public part of the definition, without its passwords."""
    reference = [dig(instance, "spec.templateRef.name") or "", dig(instance, "spec.templateRef.version") or ""]
    return f"{_digest(reference)}-{_digest([visible.version, visible.template, list(visible.parameters or ())])}"


def asks_alike(one: str, other: str) -> bool:
    """Whether two fingerprints are of instances with the same template reference."""
    return one.partition("-")[0] == other.partition("-")[0]


def follows(instance: Object) -> bool:
    """Whether template changes are applied automatically: with a version in the reference, or an inline template."""
    return not dig(instance, "spec.templateRef.name") or bool(dig(instance, "spec.templateRef.version"))


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:24]
