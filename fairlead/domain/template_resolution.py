"""Resolves an instance's template: picks the version, validates the parameters, and renders the template.

Pure. Admission rejects instances that cannot be resolved; the instance controller stores the result.

Rendering replaces `{{ parameters.image.tag }}` with the value of that parameter, and in the templates of spaces and
virtual clusters `{{ name }}`, `{{ namespace }}`, `{{ project }}` and `{{ owner }}` with what the instance has. Nothing
is executed: there are no conditions, loops or functions, and values are not rendered again. `{{ parameters.name | quote
}}` inserts a quoted string, which is a single value in YAML and JSON. Other braces, such as those of charts, are kept.

Some fields of a template are YAML that is parsed later. The user who sets a value is not the author of the template, so
in these fields a value can only become a scalar or part of one. It cannot add fields or objects.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.core import yaml
from fairlead.core.errors import Problem
from fairlead.core.json import encode_sorted
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.validators import is_registry_address
from fairlead.domain.parameters import check_values, parse_values
from fairlead.domain.password_parameters import fill_placeholders, hidden_values
from fairlead.domain.template_versions import NEWEST_PATTERN, best_match, newest_version, parse_pattern

CHART_FIELDS_WITHOUT_PASSWORD = ("name", "version", "values", "wait", "timeout", "releaseName", "releaseNamespace")
"""Fields beside a chart's password that do not affect where the password is sent."""
MAX_RENDERED_LENGTH = 1024 * 1024
"""Maximum characters of all strings of a rendered template together."""

NAME, NAMESPACE, PROJECT, OWNER = "name", "namespace", "project", "owner"
"""Placeholders for what an instance has: its own name, its namespace in the cluster, its project, and the name of the
user or team that owns it."""
_PARAMETER_PREFIX = "parameters."
_PARAMETER = r"parameters\.[A-Za-z0-9_.-]{1,253}"


def _compile_placeholder(variables: str) -> re.Pattern[str]:
    space = r"[ \t]{0,20}"
    return re.compile(
        rf"\{{\{{{space}(?P<variable>{variables}){space}(?P<quote>\|{space}quote{space})?\}}\}}", re.ASCII
    )


_parameter_placeholder = _compile_placeholder(_PARAMETER)
_placeholder = _compile_placeholder("|".join((_PARAMETER, NAME, NAMESPACE, PROJECT, OWNER)))
_document_separator = re.compile(r"^---(?=\s|$)", re.MULTILINE)
YAML_FIELDS = frozenset({"objects", "values", "parameters"})
"""Fields of templates, at any path, whose text is YAML."""

PASSWORD_FIELD = "password"


def has_placeholder(text: str) -> bool:
    """Whether a text contains a placeholder, for a parameter or for what the instance has."""
    return _placeholder.search(text) is not None


def find_parameters(text: str) -> set[str]:
    """The parameters that a text of a template uses."""
    return {_parameter_name(found) for found in _parameter_placeholder.finditer(text)}


def _parameter_name(found: re.Match[str]) -> str:
    return found["variable"].removeprefix(_PARAMETER_PREFIX)


def whole_parameter(text: str) -> str:
    """The parameter whose value is the whole text; empty if there is more to it, or no parameter."""
    found = _parameter_placeholder.fullmatch(text)
    return _parameter_name(found) if found is not None and not found["quote"] else ""


def instance_values(instance: Object, project: str, namespace: str) -> Mapping[str, str]:
    """The values of the placeholders for what an instance has. Those that are not known yet are left out."""
    known = {
        NAME: name_of(instance),
        NAMESPACE: namespace,
        PROJECT: project,
        OWNER: get_path(instance, "spec.owner.user") or get_path(instance, "spec.owner.team") or "",
    }
    return {name: value for name, value in known.items() if value}


class RenderingError(Exception):
    """A template that cannot be rendered; the message says why."""


class _LengthBudget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_RENDERED_LENGTH

    def spend(self, text: str) -> str:
        self.left -= len(text)
        if self.left < 0:
            raise RenderingError(f"the result would have more than {MAX_RENDERED_LENGTH} characters")
        return text


@dataclass(frozen=True, slots=True)
class _Renderer:
    """`values` by the names in the placeholders that `pattern` finds, such as `parameters.image.tag`."""

    pattern: re.Pattern[str]
    values: Mapping[str, str]
    yaml_fields: Collection[str]
    budget: _LengthBudget

    def render(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: self._render_yaml(name, each)
                if name in self.yaml_fields and isinstance(each, str)
                else self.render(each)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self.render(each) for each in value]
        return self._render_text(value, self.budget) if isinstance(value, str) else value

    def _render_yaml(self, name: str, text: str) -> str:
        """Renders a YAML text: parses it with a marker in place of each placeholder, and then replaces the markers in
        scalars."""
        if not self.pattern.search(text):
            return self.budget.spend(text)
        self._render_text(text, _LengthBudget())  # raises if a value is not defined, or the result is too long
        word = "parameter"
        while word in text:
            word += "x"
        variables: list[str] = []

        def add_marker(found: re.Match[str]) -> str:
            variables.append(found["variable"])
            return f'"{word}{len(variables) - 1}q"' if found["quote"] else f"{word}{len(variables) - 1}p"

        marked = self.pattern.sub(add_marker, text)
        words = re.compile(rf'"{word}(?P<quoted>[0-9]+)q"|{word}(?P<number>[0-9]+)(?P<sort>[pq])')

        def fill(scalar: str) -> str:
            return words.sub(lambda found: self.budget.spend(self._marker_value(found, scalar, variables)), scalar)

        documents = [_parse_and_fill(name, each, fill) for each in _document_separator.split(marked)]
        rendered = [yaml.encode(each).decode() for each in documents if each is not None]
        return self.budget.spend("---\n".join(rendered))

    def _marker_value(self, found: re.Match[str], scalar: str, variables: Sequence[str]) -> str:
        """The value for a marker. `quote` matters only inside a longer scalar; a scalar of its own needs no quotes."""
        value = self.values[variables[int(found["quoted"] or found["number"])]]
        if found["quoted"]:
            return json.dumps(value, ensure_ascii=False)
        is_inside = found["sort"] == "q" and found[0] != scalar
        return json.dumps(value, ensure_ascii=False)[1:-1] if is_inside else value

    def _render_text(self, text: str, budget: _LengthBudget) -> str:
        """Renders a plain text piece by piece, so that one that grows too large is rejected early."""
        pieces: list[str] = []
        end = 0
        for found in self.pattern.finditer(text):
            value = self.values.get(found["variable"])
            if value is None:
                raise RenderingError(_describe_missing(found["variable"]))
            pieces.append(budget.spend(text[end : found.start()]))
            pieces.append(budget.spend(json.dumps(value, ensure_ascii=False) if found["quote"] else value))
            end = found.end()
        pieces.append(budget.spend(text[end:]))
        return "".join(pieces)


def _describe_missing(variable: str) -> str:
    if variable.startswith(_PARAMETER_PREFIX):
        return f"it uses {variable}, which it does not define; define it there"
    advice = {
        NAMESPACE: "check the project's spec.namespacePattern",
        PROJECT: "create the instance in a project",
        OWNER: "set spec.owner of the instance",
    }
    return (
        f"it uses {{{{ {variable} }}}}, which the instance does not have; {advice.get(variable, 'name the instance')}"
    )


def render_template(
    template: Object, parameters: Mapping[str, str], instance: Mapping[str, str] | None = None, *, raw: bool = False
) -> Object:
    """A copy of the template with the values inserted. Raises RenderingError.

    `instance` are the `instance_values`; without it, placeholders for them are kept like other braces. With `raw`,
    values are inserted into YAML unescaped, for users who also wrote the template.
    """
    renderer = _Renderer(
        pattern=_parameter_placeholder if instance is None else _placeholder,
        values={**{f"{_PARAMETER_PREFIX}{name}": value for name, value in parameters.items()}, **(instance or {})},
        yaml_fields=frozenset() if raw else YAML_FIELDS,
        budget=_LengthBudget(),
    )
    result: Object = renderer.render(template)
    return result


def _parse_and_fill(name: str, text: str, fill: Callable[[str], str]) -> Any:
    try:
        value, duplicates = yaml.decode(text.encode(), fill)
    except yaml.Malformed as error:
        reason = f"its {name} is not valid YAML with a scalar in place of each parameter: {error}"
        raise RenderingError(f"{reason}; fix it there") from None
    if duplicates:
        raise RenderingError(f"a value makes {duplicates[0]} in its {name} occur twice; set another value")
    return value


def redirected_passwords(
    template: Any, before: Any, after: Any, unchanged: Collection[str], safe_siblings: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The passwords in `unchanged` that changed values would send to another destination, each with the sibling field
    that changes.

    `before` and `after` are the template as rendered with the old and the new values.
    """
    if isinstance(template, list):
        for each in zip(template, before, after, strict=True):
            yield from redirected_passwords(*each, unchanged, safe_siblings)
    elif isinstance(template, dict):
        variable = _password_parameter(template)
        for name, value in template.items():
            was, now = before[name], after[name]
            is_place = name not in safe_siblings or is_registry_address(name, was) or is_registry_address(name, now)
            if variable in unchanged and name != PASSWORD_FIELD and is_place and was != now:
                yield variable, name
            yield from redirected_passwords(value, was, now, unchanged, safe_siblings)


def _password_parameter(chart: Object) -> str:
    """The parameter that is the password of a chart; empty if there is none."""
    found = _parameter_placeholder.fullmatch(str(chart.get(PASSWORD_FIELD) or ""))
    return _parameter_name(found) if found is not None else ""


def _refers_to_secret(template: Object, result: Object) -> bool:
    """Whether the template itself references the secret with the password, so that it does not come from parameters."""
    reference = template.get(f"{PASSWORD_FIELD}Ref")
    return bool(get_path(reference, "projectSecretRef.name")) and reference == result[f"{PASSWORD_FIELD}Ref"]


def redirected_credential(template: Any, result: Any, safe_siblings: Collection[str], path: str = "") -> str:
    """The field through which parameters, or the name or owner of an instance, determine where a password of the
    template is sent; empty if there is none.

    Users who set these cannot read that password. A password that is itself a parameter is their own, and may
    be sent anywhere. `safe_siblings` are the sibling fields of a password that do not matter, unless they contain an
    address.
    """
    if isinstance(template, list):
        pairs = enumerate(zip(template, result, strict=True))
        found = (redirected_credential(*each, safe_siblings, f"{path}[{index}]") for index, each in pairs)
        return next(filter(None, found), "")
    if not isinstance(template, dict):
        return ""
    own = template.get(PASSWORD_FIELD)
    has_own = isinstance(own, str) and bool(own) and not _password_parameter(template)
    if has_own or _refers_to_secret(template, result):
        for name, value in template.items():
            is_place = (
                name not in safe_siblings or is_registry_address(name, value) or is_registry_address(name, result[name])
            )
            if is_place and value != result[name]:
                return f"{path}.{name}".lstrip(".")
    found = (
        redirected_credential(value, result[name], safe_siblings, f"{path}.{name}") for name, value in template.items()
    )
    return next(filter(None, found), "")


class ResolutionError(Exception):
    """An instance cannot be created from its template: a reason for programs, and a message for users."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class DefinitionSource:
    """What has definitions, for messages: the word for it, and the field of instances that refers to it."""

    noun: str
    reference: str


TEMPLATE = DefinitionSource("template", "spec.templateRef")


@dataclass(frozen=True, slots=True)
class TemplateDefinition:
    """The template to render. `parameters` is None for a template inside the instance, which defines no parameters."""

    template: Object
    parameters: Sequence[Object] | None
    version: str = ""
    newest_version: str = ""
    """The newest version of the template, if it has versions."""
    source: DefinitionSource = TEMPLATE


def find_definition(instance: Object, template: Object | None) -> TemplateDefinition:
    """The definition that the instance requests. `template` is what templateRef names. Raises ResolutionError."""
    name = get_path(instance, "spec.templateRef.name")
    if not name:
        return TemplateDefinition(get_path(instance, "spec.template") or {}, None)
    if template is None:
        raise ResolutionError("TemplateNotFound", f'there is no template "{name}"; create it, or name another')
    return find_version(instance, template, TEMPLATE)


def find_version(instance: Object, template: Object, source: DefinitionSource) -> TemplateDefinition:
    """The version that the instance requests. Raises ResolutionError."""
    wanted = get_path(instance, f"{source.reference}.version") or ""
    pattern = parse_pattern(wanted)
    if wanted and pattern is None:
        message = f'version "{wanted}" must be three parts, each a number or x, such as 1.2.x'
        raise ResolutionError("VersionError", f"{message}; fix {source.reference}.version")
    versions = get_path(template, "spec.versions") or ()
    last = newest_version(_version_texts(versions)) or ""
    if pattern is None or (wanted == NEWEST_PATTERN and not versions):
        return _unversioned_definition(template, last, source)
    found = best_match(pattern, _version_texts(versions))
    if found is None:
        available = f"its newest is {last}" if last else "it has no versions"
        message = f'{source.noun} "{name_of(template)}" has no version {wanted}: {available}'
        raise ResolutionError("VersionNotFound", message)
    entry = next(each for each in versions if each.get("version") == found)
    return TemplateDefinition(entry.get("template") or {}, entry.get("parameters") or (), found, last, source)


def _version_texts(entries: Sequence[Object]) -> list[str]:
    return [each.get("version") or "" for each in entries]


def _unversioned_definition(template: Object, last: str, source: DefinitionSource) -> TemplateDefinition:
    spec = template.get("spec") or {}
    if last and not spec.get("template"):
        problem = f'{source.noun} "{name_of(template)}" has versions only'
        advice = f"set {source.reference}.version to {NEWEST_PATTERN} or {last}"
        raise ResolutionError("VersionNotFound", f"{problem}; {advice}")
    return TemplateDefinition(spec.get("template") or {}, spec.get("parameters") or (), source=source)


def parameter_problems(instance: Object, definition: TemplateDefinition) -> Sequence[Problem]:
    return resolve_values(instance, definition)[1]


def resolve_values(instance: Object, definition: TemplateDefinition) -> tuple[Mapping[str, str], Sequence[Problem]]:
    """The values of the parameters, also of those with a default one, and the problems with them."""
    written, problems = parse_values(get_path(instance, "spec.parameters") or "")
    given = fill_placeholders(written, hidden_values(instance))
    if definition.parameters is None:
        return {variable: _literal_text(value) for variable, value in given.items()}, problems
    values, faults = check_values(definition.parameters, given, written)
    return values, [*problems, *faults]


def _literal_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def render_definition(instance: Object, definition: TemplateDefinition, own: Mapping[str, str] | None = None) -> Object:
    """The definition rendered with the instance's parameters, and with `own`, its `instance_values`, if it can have
    placeholders for them. Raises ResolutionError."""
    values, problems = resolve_values(instance, definition)
    if problems:
        raise ResolutionError("ErrorSyncingParameters", "; ".join(str(each) for each in problems[:10]))
    noun = definition.source.noun
    try:
        result = render_template(definition.template, values, own, raw=definition.parameters is None)
    except RenderingError as error:
        raise ResolutionError("ErrorRenderingTemplate", f"the {noun} cannot be rendered: {error}") from None
    if field := redirected_credential(definition.template, result, CHART_FIELDS_WITHOUT_PASSWORD):
        reason = (
            f"{field} comes from placeholders and would redirect a password that users of the {noun} cannot read: "
            f"set the address and user in the {noun}, or make the password a parameter, too"
        )
        raise ResolutionError("ErrorRenderingTemplate", f"the {noun} cannot be rendered: {reason}")
    return result


def find_redirected_passwords(
    before: Object, after: Object, definition: TemplateDefinition | None, unchanged: Collection[str]
) -> Mapping[str, str]:
    """The hidden parameters in `unchanged` that changed values would send to another destination, each with the changed
    field.

    The user who changes the values cannot read them. If the old values cannot be rendered, all of them count.
    """
    values = [parse_values(get_path(each, "spec.parameters") or "")[0] for each in (before, after)]
    has_other_owner = get_path(before, "spec.owner") != get_path(after, "spec.owner")
    if not unchanged or (values[0] == values[1] and (definition is None or not has_other_owner)):
        return {}
    if definition is None:
        return dict.fromkeys(unchanged, "spec.parameters")
    try:
        rendered_before = render_definition(before, definition, _comparable_values(before))
    except ResolutionError:
        return dict.fromkeys(unchanged, "spec.parameters")
    try:
        rendered_after = render_definition(after, definition, _comparable_values(after))
    except ResolutionError:
        return {}  # it is not deployed, and the next update is compared with it
    return dict(
        redirected_passwords(
            definition.template, rendered_before, rendered_after, unchanged, CHART_FIELDS_WITHOUT_PASSWORD
        )
    )


def _comparable_values(instance: Object) -> Mapping[str, str]:
    """For a comparison of two versions of an instance: an update changes neither its project nor its namespace."""
    return instance_values(instance, project="project", namespace="namespace")


def fingerprint(instance: Object, visible: TemplateDefinition) -> str:
    """A digest of the template reference and of the public part of the definition, without its passwords."""
    reference = [
        get_path(instance, "spec.templateRef.name") or "",
        get_path(instance, "spec.templateRef.version") or "",
    ]
    return f"{_digest(reference)}-{_digest([visible.version, visible.template, list(visible.parameters or ())])}"


def is_same_reference(one: str, other: str) -> bool:
    """Whether two fingerprints are of instances with the same template reference."""
    return one.partition("-")[0] == other.partition("-")[0]


def is_auto_synced(instance: Object) -> bool:
    """Whether template changes are applied automatically: with a version in the reference, or an inline template."""
    return not get_path(instance, "spec.templateRef.name") or bool(get_path(instance, "spec.templateRef.version"))


def _digest(value: Any) -> str:
    return hashlib.sha256(encode_sorted(value)).hexdigest()[:24]
