"""What an instance is made from: the template's definition, in the version that the instance asks for, with its values.

Pure. Admission refuses with it what could never be resolved; the instance controller writes down what came of it.
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

# DOC-MERGED kinds/rendering
# Values put into the texts of a template: `{{ parameters.image.tag }}` becomes the value of that parameter.
#
# Nothing is executed: there are no conditions, loops or functions, and what a value contains is not looked at again.
# `{{ parameters.name | quote }}` puts the value in as a quoted text, which is one value in YAML and JSON whatever it
# contains. Other braces, such as those of charts, stay as they are.
#
# Some texts of a template are YAML that is read later. Whoever gives a value is not the one who wrote the template, so
# there a value stays what it takes the place of: one value, or a part of a text. It cannot add fields or objects.


RENDERED_LIMIT = 1024 * 1024
"""Characters that all texts of a rendered template may have together."""

_placeholder = re.compile(
    r"\{\{[ \t]{0,20}parameters\.([A-Za-z0-9_.-]{1,253})[ \t]{0,20}(\|[ \t]{0,20}quote[ \t]{0,20})?\}\}", re.ASCII
)


_document = re.compile(r"^---(?=\s|$)", re.MULTILINE)
YAML_TEXTS = frozenset({"objects", "values", "parameters"})
"""Fields of templates whose text is YAML, wherever they stand."""

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
    """A copy of the template with the values in it. With `raw`, values are put into YAML as they are: for whoever gives
    them and has written the template, too. Raises RenderingError."""
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
    """The text with a word in place of each placeholder is read first, and values take the places of the words then."""
    if not _placeholder.search(text):
        return budget.spend(text)
    _filled(text, values, _Budget())  # says which parameter is missing, and that it all gets too long
    word = "parameter"
    while word in text:
        word += "x"
    variables: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        variables.append(found[1])
        return f'"{word}{len(variables) - 1}q"' if found[2] else f"{word}{len(variables) - 1}p"

    marked = _placeholder.sub(stand_in, text)
    words = re.compile(rf'"{word}(?P<quoted>[0-9]+)q"|{word}(?P<number>[0-9]+)(?P<sort>[pq])')

    def fill(scalar: str) -> str:
        return words.sub(lambda found: budget.spend(_value_of(found, scalar, variables, values)), scalar)

    documents = [_read_filled(name, each, fill) for each in _document.split(marked)]
    kept = [yaml.encode(each).decode() for each in documents if each is not None]
    return budget.spend("---\n".join(kept))


def _value_of(found: re.Match[str], scalar: str, variables: list[str], values: Mapping[str, str]) -> str:
    """Inside of a longer text, `quote` means what it says; a scalar of its own needs no quotes any more."""
    value = values[variables[int(found["quoted"] or found["number"])]]
    if found["quoted"]:
        return json.dumps(value, ensure_ascii=False)
    is_inside = found["sort"] == "q" and found[0] != scalar
    return json.dumps(value, ensure_ascii=False)[1:-1] if is_inside else value


def _read_filled(name: str, text: str, fill: Callable[[str], str]) -> Any:
    try:
        value, duplicates = yaml.decode(text.encode(), fill)
    except yaml.Malformed as error:
        why = f"its {name} is no YAML with a single value in place of each parameter: {error}"
        raise RenderingError(f"{why}; have the template mended") from None
    if duplicates:
        raise RenderingError(f"a value makes {duplicates[0]} in its {name} occur twice; give another value")
    return value


def _filled(text: str, values: Mapping[str, str], budget: _Budget) -> str:
    """Piece by piece, so that a text which grows too much is given up before it is there."""
    pieces: list[str] = []
    end = 0
    for found in _placeholder.finditer(text):
        variable = found[1]
        if variable not in values:
            raise RenderingError(f"it uses parameters.{variable}, which it does not define; have the template mended")
        value = json.dumps(values[variable], ensure_ascii=False) if found[2] else values[variable]
        pieces += (budget.spend(text[end : found.start()]), budget.spend(value))
        end = found.end()
    pieces.append(budget.spend(text[end:]))
    return "".join(pieces)


def led_elsewhere(
    template: Any, before: Any, after: Any, kept: Collection[str], free: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The parameters of `kept` that are passwords in the template, each with a field beside it that says where it is
    sent to and that other values have changed. `before` and `after` are the template as rendered with each."""
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
    """Whether the template itself says which secret the password is in: that is not of whoever sets parameters."""
    reference = template.get(f"{PASSWORD}Ref")
    return bool(dig(reference, "projectSecretRef.name")) and reference == made[f"{PASSWORD}Ref"]


def steered_credential(template: Any, made: Any, free: Collection[str], at: str = "") -> str:
    """The field by which parameters would say where a password of the template's own is sent to; empty if none does.

    Whoever fills in the parameters has never seen that password. One that is a parameter itself is theirs, and may go
    anywhere. `free` are the fields beside a password that do not matter, unless they name a place.
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


# DOC-MERGED kinds/versions
# Versions of templates: three numbers such as `1.4.0`, and patterns of them in which a part may be `x`.
#
# Pure. Templates are checked with it, admission and the instance controller find with it what an instance is made from.


Version = tuple[int, int, int]
Pattern = tuple[int | None, int | None, int | None]
"""A version with None for each `x`."""

NEWEST = "x.x.x"
"""The pattern of whoever always wants the newest."""

_PART = "([0-9]{1,9})"
_version = re.compile(rf"{_PART}\.{_PART}\.{_PART}", re.ASCII)
_WILD = "([0-9]{1,9}|x)"
_pattern = re.compile(rf"{_WILD}\.{_WILD}\.{_WILD}", re.ASCII)


def parse_version(text: str) -> Version | None:
    """The three numbers, or None if the text is no version."""
    found = _version.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def parse_pattern(text: str) -> Pattern | None:
    """The same for a pattern. Only a lower case `x` stands for any number."""
    found = _pattern.fullmatch(text)
    return (_part(found[1]), _part(found[2]), _part(found[3])) if found else None


def _part(text: str) -> int | None:
    return None if text == "x" else int(text)


def matches(pattern: Pattern, version: Version) -> bool:
    return all(wanted is None or wanted == part for wanted, part in zip(pattern, version, strict=True))


def best_match(pattern: Pattern, texts: Iterable[str]) -> str | None:
    """The newest of these versions that fits the pattern, as it is written there. What is no version fits nothing."""
    found = [(version, text) for text in texts if (version := parse_version(text)) and matches(pattern, version)]
    return max(found)[1] if found else None


def newest(texts: Iterable[str]) -> str | None:
    return best_match((None, None, None), texts)


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
