"""Objects that others use are not deleted: templates, environments, presets and Apps.

Instances that use one could no longer be updated, or created again; nor could workspaces from a preset that uses it.
"""

from collections.abc import Iterator

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Conflict
from fairlead.core.objects import get_path, name_of
from fairlead.core.user import User
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.kinds.instances.preset import WORKSPACE_PRESET, list_definitions
from fairlead.kinds.instances.templates import ENVIRONMENT_TEMPLATE, WORKSPACE_TEMPLATE
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

MAX_NAMED_OBJECTS = 10
"""How many objects an error message names."""
INSTANCES_BY_TEMPLATE = {
    **{instance.templates: (plural, "spec.templateRef.name") for plural, instance in TEMPLATE_INSTANCES.items()},
    ENVIRONMENT_TEMPLATE.plural: (WORKSPACE.plural, "spec.environmentRef.name"),
    WORKSPACE_PRESET.plural: (WORKSPACE.plural, "spec.presetRef.name"),
    APP.plural: (APP_INSTANCE.plural, "spec.appRef.name"),
}
"""The instances that use a template, environment, preset or App: their plural, and the field that names it."""


def prevent_deletion_while_used(authorize: Authorize, api_group: str) -> Rule:
    """Rejects deleting a template, environment, preset or App while instances or presets use it."""

    @applies_to(lambda kind, verb: verb == "delete" and is_resource(kind, api_group, *INSTANCES_BY_TEMPLATE))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        plural, field = INSTANCES_BY_TEMPLATE[kind.plural]
        name = name_of(change.obj)
        entries = registry.view.entries(api_group, plural)
        users = [entry.key for entry in entries if entry.fields.get(field) == name]
        if users:
            which = describe_objects_in_use(users, change.user, authorize)
            raise Conflict.of(kind.plural, kind.group, name, f"{which} using it; {_advice(kind, len(users))} first")
        if presets := [entry.key for entry in _presets_with(registry, kind, name)]:
            them = "it" if len(presets) == 1 else "them"
            why = f"{describe_objects_in_use(presets, change.user, authorize)} using it; delete or change {them} first"
            raise Conflict.of(kind.plural, kind.group, name, why)

    return rule


def _advice(kind: Kind, count: int) -> str:
    them = "it" if count == 1 else "them"
    if kind.plural == APP.plural:
        return f"delete {them}"
    if kind.plural == WORKSPACE_PRESET.plural:
        return f"delete {them} or remove spec.presetRef of {them}"
    noun = "environment" if kind.plural == ENVIRONMENT_TEMPLATE.plural else "template"
    return f"delete {them} or switch {them} to another {noun}"


def _presets_with(registry: Registry, kind: Kind, name: str) -> Iterator[Entry]:
    """The presets of which a version uses a workspace template or an environment."""
    fields = {WORKSPACE_TEMPLATE.plural: "templateRef.name", ENVIRONMENT_TEMPLATE.plural: "environmentRef.name"}
    field = fields.get(kind.plural, "")
    for entry in registry.view.entries(kind.group, WORKSPACE_PRESET.plural) if field else ():
        if any(get_path(definition, field) == name for _, definition in list_definitions(decode(entry))):
            yield entry


def describe_objects_in_use(keys: list[Key], user: User, authorize: Authorize) -> str:
    """Names the objects that the requester may read, and counts the others, as the beginning of a sentence."""
    named: list[str] = []
    for group, plural, namespace, name in keys:
        if len(named) == MAX_NAMED_OBJECTS:
            break
        if authorize(
            user,
            RequestInfo(verb="get", group=group, version="v1", resource=plural, namespace=namespace, name=name),
        ).allowed:
            named.append(f"{namespace}/{name}" if namespace else name)
    others = len(keys) - len(named)
    plural = keys[0][1]
    if not named:
        return f"{others} of the {plural} {'is' if others == 1 else 'are'}"
    rest = f" and {others} more" if others else ""
    if len(keys) == 1:
        return f"the {plural.removesuffix('s')} {named[0]} is"
    return f"the {plural} {', '.join(named)}{rest} are"
