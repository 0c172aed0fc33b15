"""Resolves what an AppInstance deploys: the version of its App, with the parameters inserted.

Pure. An App is treated as a template whose definition is its content, so versions, parameters and rendering have the
rules of `template_resolution.py`. Admission rejects parameters that the App does not accept; the controller deploys the
result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.core.errors import Problem
from fairlead.core.objects import Object, format_scalar, get_path, name_of
from fairlead.domain.parameters import find_undefined, parse_values
from fairlead.domain.template_resolution import (
    DefinitionSource,
    ResolutionError,
    TemplateDefinition,
    find_version,
    parameter_problems,
    render_definition,
    resolve_values,
)

APP_NOT_FOUND, UNSUPPORTED_APP = "AppNotFound", "UnsupportedApp"
APP = DefinitionSource("app", "spec.appRef")
_CONTENT_FIELDS = ("chart", "manifests", "bash", "values", "annotations")
_MAX_LISTED = 10


@dataclass(frozen=True, slots=True)
class ResolvedApp:
    """`config` is the rendered content of the App, but for a script, which is as it was written (`app_scripts.py`).
    `version` is empty for an App without versions, and `values` are those of the parameters."""

    config: Object
    version: str = ""
    newest_version: str = ""
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


def find_app_definition(instance: Object, app: Object | None) -> TemplateDefinition:
    """The content that the instance requests, and its parameters. Raises ResolutionError."""
    name = get_path(instance, "spec.appRef.name") or ""
    if app is None:
        raise ResolutionError(APP_NOT_FOUND, f'there is no app "{name}"; create it, or deploy another')
    return find_version(instance, _as_template(app), APP)


def resolve_app(instance: Object, app: Object | None) -> ResolvedApp:
    """The content to deploy. Raises ResolutionError."""
    definition = find_app_definition(instance, app)
    if not any(definition.template.get(each) for each in _CONTENT_FIELDS):
        message = f'the app "{name_of(app or {})}" deploys nothing; set its spec.config, or name one of its versions'
        raise ResolutionError(UNSUPPORTED_APP, message)
    template = definition.template
    script = {"bash": template["bash"]} if template.get("bash") else {}
    rest = {name: value for name, value in template.items() if name not in script}
    rendered = render_definition(instance, replace(definition, template=rest))
    values, _ = resolve_values(instance, definition)
    return ResolvedApp({**rendered, **script}, definition.version, definition.newest_version, values)


def app_parameter_problems(instance: Object, definition: TemplateDefinition) -> Sequence[Problem]:
    """Problems with the parameters. A parameter that the App does not define is one: it would have no effect."""
    problems = list(parameter_problems(instance, definition))
    defined = definition.parameters or ()
    values, _ = parse_values(get_path(instance, "spec.parameters") or "")
    names = sorted(str(each.get("variable")) for each in defined)
    listed = ", ".join(names[:_MAX_LISTED]) + (", ..." if len(names) > _MAX_LISTED else "")
    choice = f"its parameters are {listed}" if names else "it has no parameters"
    for variable in find_undefined(defined, values)[:_MAX_LISTED]:
        problems.append(Problem.forbidden(f"spec.parameters[{variable}]", f"is not a parameter of the app; {choice}"))
    return problems


def _as_template(app: Object) -> Object:
    """The App in the form of a template: its content is the definition."""
    spec = app.get("spec") or {}
    parameters = spec.get("parameters") or ()
    config = spec.get("config") or _deprecated_config(spec)
    versions = [
        {
            "version": each.get("version"),
            "template": _content(each),
            "parameters": _with_defaults(parameters, each.get("parameters")),
        }
        for each in spec.get("versions") or ()
    ]
    own = {"template": _content(config), "parameters": _with_defaults(parameters, config.get("parameters"))}
    return {"metadata": app.get("metadata") or {}, "spec": {**own, "versions": versions}}


def _content(config: Object) -> Object:
    return {each: config[each] for each in _CONTENT_FIELDS if config.get(each)}


def _deprecated_config(spec: Object) -> Object:
    """The content of an App in the fields from before `spec.config`."""
    helm = spec.get("helm") or {}
    if not helm.get("name"):
        return {"manifests": spec.get("manifests") or ""}
    chart = {each: helm[each] for each in ("name", "version", "username", "password") if helm.get(each)}
    insecure = {"insecureSkipTlsVerify": True} if helm.get("insecure") else {}
    return {"chart": {**chart, "repoURL": helm.get("repoUrl") or "", **insecure}, "values": helm.get("values") or ""}


def _with_defaults(parameters: Sequence[Object], text: Any) -> Sequence[Object]:
    """The definitions with the default values of `config.parameters`, which is YAML text."""
    defaults: Mapping[str, Any] = parse_values(text)[0] if isinstance(text, str) and text else {}
    known = [(each, defaults.get(each.get("variable") or "")) for each in parameters]
    return [each if value is None else {**each, "defaultValue": format_scalar(value)} for each, value in known]
