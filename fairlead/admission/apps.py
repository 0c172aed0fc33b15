"""Admission of AppInstances: who may deploy which App where, and with which parameters.

A change of what is deployed is checked for its requester, on every write:

- the verb `use` on the App, whose `spec.clusters` must contain the cluster
- the verb `update` on the target: the space, the virtual cluster, or the Cluster. Who may update a space or virtual
  cluster can grant themselves roles in it, and who may update a Cluster controls all of it. So no requester gets
  permissions through an App that they could not have otherwise. Targets are in the project of the instance, by their
  names.

Parameters must be those of the App, and valid (`parameters.py`). Abandoning a release in a cluster needs the permission
to update the Cluster, as for other instances.

The writer of an App in a space, a virtual cluster or one of their templates needs the verb `use` on the App.

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

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.admission.parameters import check_values
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.app_resolution import app_parameter_problems, find_app_definition
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    find_definition,
    has_placeholder,
    render_definition,
    whole_parameter,
)
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.app_instance import APP_INSTANCE, TARGETS
from fairlead.kinds.instances.templates import TRUSTED, trust_level
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

USE = "use"
UPDATE = "update"
_DEPLOYED_FIELDS = ("appRef", "parameters", "parameterSecrets", "target", "releaseName")
DEFAULT_VIRTUAL_CLUSTER_NAMESPACE = "default"


def check_app_instances(authorize: Authorize, api_group: str) -> Rule:
    """Checks the permissions and parameters of AppInstances, and sets the default namespace."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, APP_INSTANCE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None or change.problems:
            return
        if change.is_move or not _deployment_changed(change):  # a move changes nothing of what is deployed
            return
        entry = registry.resource(api_group, APP.plural).get_cached("", get_path(change.new, "spec.appRef.name") or "")
        app = decode(entry) if entry is not None else None
        _set_default_namespace(change, app)
        _require_app_use(change, authorize, api_group)
        _require_target_update(change, authorize, api_group)
        _check_app_clusters(change, app, registry, api_group)
        check_values(change, _find_definition(change.obj, app), app_parameter_problems)

    return rule


def _deployment_changed(change: Change) -> bool:
    old = (change.old or {}).get("spec") or {}
    return change.old is None or any(old.get(field) != change.spec.get(field) for field in _DEPLOYED_FIELDS)


def _set_default_namespace(change: Change, app: Object | None) -> None:
    defaults = {"cluster": "", "virtualClusterInstance": DEFAULT_VIRTUAL_CLUSTER_NAMESPACE}
    for field, otherwise in defaults.items():
        place = get_path(change.spec, f"target.{field}")
        namespace = get_path(app, "spec.defaultNamespace") or otherwise
        if place and not place.get("namespace") and namespace:
            target = {**change.spec["target"], field: {**place, "namespace": namespace}}
            change.obj["spec"] = {**change.spec, "target": target}


def _require_app_use(change: Change, authorize: Authorize, api_group: str) -> None:
    """The scope of a key restricts where to deploy, which the request itself is checked for, and not what."""
    name = get_path(change.spec, "appRef.name") or ""
    right = RequestInfo(verb=USE, group=api_group, version="v1", resource=APP.plural, name=name)
    if name and not authorize(replace(change.user, scope=None), right).allowed:
        why = (
            f'User "{change.user.name}" may not use the app "{name}", or it does not exist; ask its owner for an entry '
            "in its spec.access with the verbs get and use"
        )
        raise forbidden(change, why)


def _require_target_update(change: Change, authorize: Authorize, api_group: str) -> None:
    for field, (plural, noun) in TARGETS.items():
        name = get_path(change.spec, f"target.{field}.name")
        if not name:
            continue
        namespace = "" if field == "cluster" else str(metadata(change.obj).get("namespace") or "")
        right = RequestInfo(verb=UPDATE, group=api_group, version="v1", resource=plural, namespace=namespace, name=name)
        if authorize(change.user, right).allowed:
            continue
        advice = (
            "deploy into a space or virtual cluster of the project instead"
            if field == "cluster"
            else "ask its owner for that permission (spec.access)"
        )
        where = "" if field == "cluster" else " of this project"
        why = (
            f'User "{change.user.name}" may not update the {noun} "{name}"{where}, or it does not exist, and deploying '
            f"an app there needs that; {advice}"
        )
        raise forbidden(change, why)


def _check_app_clusters(change: Change, app: Object | None, registry: Registry, api_group: str) -> None:
    """The controller checks it again: the cluster of a space may not be known yet."""
    cluster = get_path(change.spec, "target.cluster.name")
    for field in ("spaceInstance", "virtualClusterInstance"):
        if name := get_path(change.spec, f"target.{field}.name"):
            entry = registry.resource(api_group, TARGETS[field][0]).get_cached(metadata(change.obj)["namespace"], name)
            cluster = get_path(decode(entry), "spec.clusterRef.cluster") if entry is not None else None
    allowed = get_path(app, "spec.clusters") or ()
    if cluster and allowed and cluster not in allowed:
        why = f'the app "{name_of(app or {})}" is only for the clusters {", ".join(allowed)}, not for "{cluster}"'
        raise forbidden(change, f"{why}; deploy it there, or have the cluster added to its spec.clusters")


def _find_definition(instance: Object, app: Object | None) -> TemplateDefinition | None:
    """None if the App or its version does not exist, which is reported in the conditions."""
    try:
        return find_app_definition(instance, app)
    except ResolutionError:
        return None


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
            f'the name of an app, "{app}", has text around a parameter, or another placeholder, which only '
            "administrators may write; use a parameter for the whole name"
        )
        raise forbidden(change, why)
    right = RequestInfo(verb=USE, group=change.kind.group, version="v1", resource=APP.plural, name=app)
    if app and not authorize(replace(change.user, scope=None), right).allowed:
        why = (
            f'User "{change.user.name}" may not use the app "{app}", or it does not exist, and adding or changing it '
            "here needs that; ask its owner for an entry in its spec.access with the verbs get and use"
        )
        raise forbidden(change, why)


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
