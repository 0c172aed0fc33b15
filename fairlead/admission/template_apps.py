"""The writer of an App in a space, a virtual cluster or one of their templates needs the verb `use` on the App.

The Apps of a template that is not an administrator's are deployed if the owner of the instance may use them
(`controllers/apps/charts.py`). Others may be able to change the instance, or the template, and to look into what is
deployed: without this, they could have Apps deployed that only the owner may use. What a change adds is compared with
what the definition was before, so it does not matter whether it comes from the template inside, from another template
or version, or from parameters.

An App whose name is a parameter is the choice of who sets the parameter. The default value and the options are the
author's choice, and so is a text around the placeholder: that is for administrators only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.template_resolution import (
    ResolutionError,
    find_definition,
    has_placeholder,
    render_definition,
    whole_parameter,
)
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.templates import TRUSTED, trust_level
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

USE = "use"
_APP_PATHS = ("apps", "spaceTemplate.apps")
_TEMPLATES = frozenset(each.templates for each in TEMPLATE_INSTANCES.values())

Entries = list[tuple[str, Object]]
"""The entries for Apps in a definition, each with the name of an App that it may deploy."""


def require_app_use(authorize: Authorize, api_group: str) -> Rule:
    """Rejects an App that a change adds, and that the requester may not use."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *TEMPLATE_INSTANCES, *_TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.new is None or change.is_move or change.problems:
            return
        if change.user == CONTROLLER_USER or change.user.is_unscoped_admin:
            return
        if change.kind.plural in _TEMPLATES:
            before = _template_entries(change.old)
            after = _template_entries(change.obj)
        else:
            before, after = (_instance_entries(each, change, registry) for each in (change.old, change.obj))
        for app, entry in after:
            if (app, entry) not in before:
                _check(change, authorize, app)

    return rule


def _check(change: Change, authorize: Authorize, app: str) -> None:
    """As for AppInstances, the scope of a key restricts where to deploy, and not what."""
    if has_placeholder(app):
        why = (
            f'the name of an app, "{app}", has text around a parameter, which only administrators may write; use a '
            "parameter for the whole name"
        )
        raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
    right = RequestInfo(verb=USE, group=change.kind.group, version="v1", resource=APP.plural, name=app)
    if app and not authorize(replace(change.user, scope=None), right).allowed:
        why = (
            f'User "{change.user.name}" may not use the app "{app}", or it does not exist, and adding or changing it '
            "here needs that; ask its owner for an entry in its spec.access with the verbs get and use"
        )
        raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)


def _instance_entries(instance: Object | None, change: Change, registry: Registry) -> Entries:
    """The entries as they are rendered. Those of a trusted template are an administrator's choice. A definition that
    cannot be rendered deploys nothing."""
    if instance is None:
        return []
    templates = TEMPLATE_INSTANCES[change.kind.plural].templates
    entry = registry.view.get(
        (change.kind.group, templates, "", str(get_path(instance, "spec.templateRef.name") or ""))
    )
    template = decode(entry) if entry is not None else None
    if trust_level(instance, template) == TRUSTED:
        return []
    try:
        definition = find_definition(instance, template)
        has_apps = next(_find_entries(definition.template), None) is not None
        rendered = render_definition(instance, definition) if has_apps else {}
    except ResolutionError:
        return []
    return [(str(each.get("name") or ""), each) for each in _find_entries(rendered)]


def _template_entries(template: Object | None) -> Entries:
    spec = get_path(template, "spec") or {}
    return [
        (app, each)
        for part in (spec, *(spec.get("versions") or ()))
        for each in _find_entries(part.get("template"))
        for app in _authored_names(str(each.get("name") or ""), part.get("parameters") or ())
    ]


def _authored_names(name: str, parameters: Sequence[Object]) -> Iterator[str]:
    """The Apps that an entry of a template deploys by the choice of its author."""
    variable = whole_parameter(name)
    if not variable:
        yield name
    for each in parameters:
        if variable and each.get("variable") == variable:
            yield from (str(value) for value in (each.get("defaultValue"), *(each.get("options") or ())) if value)


def _find_entries(definition: Any) -> Iterator[Object]:
    for path in _APP_PATHS:
        yield from (each for each in get_path(definition, path) or () if isinstance(each, dict))
