"""Admission of AppInstances: who may deploy which App where, and with which parameters.

A change of what is deployed is checked for its requester, on every write:

- the verb `use` on the App, whose `spec.clusters` must contain the cluster
- the verb `update` on the target: the space, the virtual cluster, or the Cluster. Who may update a space or virtual
  cluster can grant themselves roles in it, and who may update a Cluster controls all of it. So no requester gets
  permissions through an App that they could not have otherwise. Targets are in the project of the instance, by their
  names.

Parameters must be those of the App, and valid; passwords are moved out of the readable text. Abandoning a release in a
cluster needs the permission to update the Cluster, as for other instances.
"""

from dataclasses import replace

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Forbidden, Invalid, Problem
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.app_resolution import app_parameter_problems, find_app_definition
from fairlead.domain.parameters import parse_values
from fairlead.domain.password_parameters import (
    PASSWORD_TYPE,
    PLACEHOLDER,
    dangling_placeholders,
    hidden_values,
    hide_passwords,
    redact_last_applied,
)
from fairlead.domain.template_resolution import ResolutionError, TemplateDefinition, find_redirected_passwords
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.app_instance import APP_INSTANCE, TARGETS
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

USE, UPDATE = "use", "update"
_DEPLOYED_FIELDS = ("appRef", "parameters", "parameterSecrets", "target", "releaseName")
DEFAULT_VIRTUAL_CLUSTER_NAMESPACE = "default"


def check_app_instances(authorize: Authorize, api_group: str) -> Rule:
    """Checks the permissions and parameters of AppInstances, and sets the default namespace."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, APP_INSTANCE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None or change.problems:
            return
        if not _deployment_changed(change):
            return
        entry = registry.resource(api_group, APP.plural).get_cached("", get_path(change.new, "spec.appRef.name") or "")
        app = decode(entry) if entry is not None else None
        _set_default_namespace(change, app)
        _require_app_use(change, authorize, api_group)
        _require_target_update(change, authorize, api_group)
        _check_app_clusters(change, app, registry, api_group)
        _check_parameters(change, app)

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
        raise _forbidden(change, why)


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
        raise _forbidden(change, why)


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
        raise _forbidden(change, f"{why}; deploy it there, or have the cluster added to its spec.clusters")


def _check_parameters(change: Change, app: Object | None) -> None:
    definition = _find_definition(change.obj, app)
    unchanged = _placeholder_parameters(change)
    if definition is not None:
        hidden = hide_passwords(change.spec, definition.parameters or (), hidden_values(change.old))
        change.obj["spec"] = hidden if hidden is not None else change.spec
    redact_last_applied(change.obj)
    problems = [*_missing_password_problems(change, definition), *_redirected_problems(change, definition, unchanged)]
    if not problems and definition is not None:
        problems = [*app_parameter_problems(change.obj, definition)]
    if problems:
        raise Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), problems)


def _find_definition(instance: Object, app: Object | None) -> TemplateDefinition | None:
    """None if the App or its version does not exist, which is reported in the conditions."""
    try:
        return find_app_definition(instance, app)
    except ResolutionError:
        return None


def _placeholder_parameters(change: Change) -> frozenset[str]:
    """The password parameters sent as the placeholder: the requester may not know their values."""
    known = hidden_values(change.old)
    values, _ = parse_values(change.spec.get("parameters") or "") if known else ({}, ())
    return frozenset(name for name, value in values.items() if name in known and value == PLACEHOLDER)


def _redirected_problems(
    change: Change, definition: TemplateDefinition | None, unchanged: frozenset[str]
) -> list[Problem]:
    found = find_redirected_passwords(change.old or {}, change.obj, definition, unchanged)
    why = "must be sent again because {} changed: a hidden value is never sent to a different destination"
    return [Problem.required(f"spec.parameters[{name}]", why.format(field)) for name, field in sorted(found.items())]


def _missing_password_problems(change: Change, definition: TemplateDefinition | None) -> list[Problem]:
    defined = (definition.parameters or ()) if definition is not None else ()
    secret = {each.get("variable") for each in defined if each.get("type") == PASSWORD_TYPE}
    secret |= {*hidden_values(change.old)}
    why = f"must be sent: {PLACEHOLDER} stands for a stored value, and there is none"
    lost = (each for each in dangling_placeholders(change.spec) if each in secret)
    return [Problem.required(f"spec.parameters[{each}]", why) for each in lost]


def _forbidden(change: Change, why: str) -> Forbidden:
    return Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
