"""Admission of templates and of the parameters that instances pass to them.

- `check_parameters` validates the parameters of an instance and moves passwords out of the readable text. It only
  checks what changes, and only if the template exists: a missing template or version is reported in the instance's
  conditions.
- `prevent_deletion_while_used` rejects deleting a template, environment, preset or App that instances use: they could
  no longer be updated, or created again.
- `mark_trusted_templates` maintains the annotation `service.sh/trusted`. Objects and charts of a trusted template are
  deployed with the stored credential of the cluster, and a trusted template of workspaces gives permissions on the
  machines of runners. So only administrators make a template trusted: by creating it, or by setting the annotation.
  When another user changes the definition, the template loses the annotation, with a warning.

Permissions and placement of workspaces come from templates that administrators trust.

- `restrict_workspace_templates` rejects workspaces that would get them from another definition: inline, or from a
  template that is not trusted. An inline definition is never trusted, even an administrator's: others may change the
  rest of it later. It looks at workspaces only when their definition changes, so that stored ones can be updated; of
  those, the controller of templates gives nothing to runners (`controllers/instances/workspace_templates.py`).
- `warn_about_workspace_templates` tells the author of a template what will not count in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Conflict, Invalid, Problem
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.parameters import find_undefined, parse_values
from fairlead.domain.password_parameters import (
    PASSWORD_TYPE,
    PLACEHOLDER,
    SECRETS_FIELD,
    dangling_placeholders,
    hidden_values,
    hide_passwords,
    redact_last_applied,
)
from fairlead.domain.template_resolution import (
    ResolutionError,
    TemplateDefinition,
    find_definition,
    find_redirected_passwords,
    parameter_problems,
)
from fairlead.domain.workspace_trust import describe_trust_problems, find_trust_problems, trust_advice
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.kinds.instances.preset import WORKSPACE_PRESET, list_definitions
from fairlead.kinds.instances.templates import (
    DEFINITION_FIELDS,
    ENVIRONMENT_TEMPLATE,
    FALSE,
    TRUE,
    TRUST_ANNOTATION,
    TRUSTED,
    WORKSPACE_TEMPLATE,
    trust_level,
)
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

MAX_NAMED_INSTANCES = 10
"""How many objects an error message names."""


def describe_users(keys: list[Key], user: User, authorize: Authorize) -> str:
    """Names the objects that the requester may read, and counts the others, as the beginning of a sentence."""
    named: list[str] = []
    for group, plural, namespace, name in keys:
        if len(named) == MAX_NAMED_INSTANCES:
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


_FIELD_TYPES = {
    "spec": dict,
    "spec.templateRef.name": str,
    "spec.templateRef.version": str,
    "spec.parameters": str,
    "spec.template": dict,
    f"spec.{SECRETS_FIELD}": dict,
}


def check_parameters(api_group: str) -> Rule:
    """Validates the parameters of an instance and hides its password parameters."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *TEMPLATE_INSTANCES))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        if (
            change.subresource
            or change.user == CONTROLLER_USER
            or not _parameters_changed(change)
            or not _has_valid_types(change.obj)
        ):
            return
        _drop_secrets_of_another_template(change)
        definition = _find_definition(change.obj, registry, (api_group, TEMPLATE_INSTANCES[kind.plural].templates))
        unchanged = _placeholder_parameters(change)
        if definition is not None and definition.parameters is not None:
            hidden = hide_passwords(change.spec, definition.parameters, hidden_values(change.old))
            change.obj["spec"] = hidden if hidden is not None else change.spec
        redact_last_applied(change.obj)
        if lost := _missing_password_problems(change, definition):
            raise Invalid.of(kind.name, kind.group, name_of(change.obj), lost)
        if misled := _redirected_password_problems(change, definition, unchanged):
            raise Invalid.of(kind.name, kind.group, name_of(change.obj), misled)
        if definition is None:
            return
        if problems := parameter_problems(change.obj, definition):
            raise Invalid.of(kind.name, kind.group, name_of(change.obj), problems)
        _warn_undefined_parameters(change, definition)

    return rule


def _drop_secrets_of_another_template(change: Change) -> None:
    """Drops stored passwords when the template changes: the author of the new template must not receive them."""
    before, after = (get_path(each, "spec.templateRef.name") or "" for each in (change.old or {}, change.obj))
    if change.old is None or before == after or not hidden_values(change.obj):
        return
    old = hidden_values(change.old)
    sent = {name: value for name, value in hidden_values(change.obj).items() if old.get(name) != value}
    change.obj["spec"] = {**change.spec, SECRETS_FIELD: sent}


def _placeholder_parameters(change: Change) -> frozenset[str]:
    """The password parameters sent as the placeholder: the requester may not know their values."""
    known = hidden_values(change.old)
    values, _ = parse_values(change.spec.get("parameters") or "") if known else ({}, ())
    return frozenset(name for name, value in values.items() if name in known and value == PLACEHOLDER)


def _redirected_password_problems(
    change: Change, definition: TemplateDefinition | None, placeholders: frozenset[str]
) -> list[Problem]:
    found = find_redirected_passwords(change.old or {}, change.obj, definition, placeholders)
    why = "must be sent again because {} changed: a hidden value is never sent to a different destination"
    return [Problem.required(f"spec.parameters[{name}]", why.format(field)) for name, field in sorted(found.items())]


def _missing_password_problems(change: Change, definition: TemplateDefinition | None) -> list[Problem]:
    """Placeholders in password parameters without a stored value. In other parameters the text is an ordinary value."""
    defined = (definition.parameters or ()) if definition is not None else ()
    secret = {each.get("variable") for each in defined if each.get("type") == PASSWORD_TYPE} | {
        *hidden_values(change.old)
    }
    why = (
        f"must be sent: {PLACEHOLDER} stands for a stored value, and there is none; a value that was sent to another "
        "template does not count"
    )
    lost = (each for each in dangling_placeholders(change.spec) if each in secret)
    return [Problem.required(f"spec.parameters[{each}]", why) for each in lost]


def _parameters_changed(change: Change) -> bool:
    return change.old is None or _parameter_inputs(change.old) != _parameter_inputs(change.obj)


def _parameter_inputs(instance: Object) -> tuple[Any, ...]:
    return tuple(
        get_path(instance, f"spec.{name}") for name in ("templateRef", "template", "parameters", SECRETS_FIELD)
    )


def _has_valid_types(instance: Object) -> bool:
    """Whether the fields have the right types. Schema validation, which runs later, rejects the others."""
    found = ((get_path(instance, path), type) for path, type in _FIELD_TYPES.items())
    return all(value is None or isinstance(value, type) for value, type in found)


def _find_definition(instance: Object, registry: Registry, templates: tuple[str, str]) -> TemplateDefinition | None:
    if not get_path(instance, "spec.templateRef.name") and not get_path(instance, "spec.template"):
        return None  # the parameters are not used
    entry = registry.resource(*templates).get_cached("", get_path(instance, "spec.templateRef.name") or "")
    try:
        return find_definition(instance, decode(entry) if entry is not None else None)
    except ResolutionError:
        return None


def _warn_undefined_parameters(change: Change, definition: TemplateDefinition) -> None:
    """Warns about parameters that the template does not define, such as misspelt ones."""
    if definition.parameters is None:
        return
    values, _ = parse_values(get_path(change.obj, "spec.parameters") or "")
    for variable in find_undefined(definition.parameters, values)[:10]:
        change.warnings.append(f"spec.parameters[{variable}] is not a parameter of the template and has no effect")


INSTANCES_BY_TEMPLATE = {
    **{instance.templates: (plural, "spec.templateRef.name") for plural, instance in TEMPLATE_INSTANCES.items()},
    ENVIRONMENT_TEMPLATE.plural: (WORKSPACE.plural, "spec.environmentRef.name"),
    WORKSPACE_PRESET.plural: (WORKSPACE.plural, "spec.presetRef.name"),
    APP.plural: (APP_INSTANCE.plural, "spec.appRef.name"),
}
"""The instances that use a template, environment, preset or App: their plural, and the field that names it."""


def prevent_deletion_while_used(authorize: Authorize, api_group: str) -> Rule:
    """Rejects deleting a template, environment or App while instances use it."""

    @applies_to(lambda kind, verb: verb == "delete" and is_resource(kind, api_group, *INSTANCES_BY_TEMPLATE))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        (plural, field), name = INSTANCES_BY_TEMPLATE[kind.plural], name_of(change.obj)
        entries = registry.view.entries(api_group, plural)
        users = [entry.key for entry in entries if entry.fields.get(field) == name]
        if users:
            why = f"{describe_users(users, change.user, authorize)} using it; {_advice(kind, len(users))} first"
            raise Conflict.of(kind.plural, kind.group, name, why)
        if presets := [entry.key for entry in _presets_with(registry, kind, name)]:
            them = "it" if len(presets) == 1 else "them"
            why = f"{describe_users(presets, change.user, authorize)} using it; delete or change {them} first"
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


TRUSTABLE_TEMPLATES: Mapping[str, Sequence[str]] = {
    **{instance.templates: DEFINITION_FIELDS for instance in TEMPLATE_INSTANCES.values()},
    APP.plural: ("config", "parameters", "versions", "helm", "manifests", "clusters"),
}
"""The kinds that have the annotation, and the fields of their spec that determine what is deployed."""


def mark_trusted_templates(api_group: str) -> Rule:
    """Sets, keeps or removes the annotation of trusted templates.

    An administrator's update alone does not make a template trusted: it does not vouch for the rest of the definition.
    An App is trusted unless it is marked as untrusted, which it is once another user has written its content.
    """

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *TRUSTABLE_TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None:
            return
        before = _trust_annotation(change.old)
        requested = _trust_annotation(change.new)
        if change.user.is_unscoped_admin:
            value = requested or before or (TRUE if _is_marked_when_new(change) else "")
        else:
            value = _trust_after_user_write(change, before, requested)
        _set_trust_annotation(change.new, value)

    return rule


def _is_marked_when_new(change: Change) -> bool:
    """Whether an administrator's write makes a template trusted. That of a workspace is marked once it has a provider,
    which is all that trust decides about; others are like any object of Kubernetes, without annotations."""
    if change.kind.plural == WORKSPACE_TEMPLATE.plural:
        return _has_provider(change.new) and not _has_provider(change.old)
    return change.old is None and change.kind.plural != APP.plural


def _has_provider(template: Object | None) -> bool:
    spec = get_path(template, "spec")
    versions = get_path(template, "spec.versions")
    definitions = [spec, *(versions if isinstance(versions, list) else ())]
    return any(get_path(each, "template.provider") for each in definitions)


def _trust_after_user_write(change: Change, before: str, requested: str) -> str:
    """The annotation's value after a write by a requester who is not an administrator."""
    if requested not in ("", before):
        change.warnings.append(
            f"metadata.annotations[{TRUST_ANNOTATION}]: only administrators may set this; it was left unchanged"
        )
    is_app = change.kind.plural == APP.plural
    is_same = all(
        get_path(change.old, f"spec.{each}") == get_path(change.new, f"spec.{each}")
        for each in TRUSTABLE_TEMPLATES[change.kind.plural]
    )
    if change.old is not None and is_same:
        return before
    if before == TRUE or (is_app and change.old is not None and not before):
        change.warnings.append(
            f"this {'app' if is_app else 'template'} is no longer trusted: {_loss_of_trust(change.kind.plural)}; an "
            f"administrator can annotate it with {TRUST_ANNOTATION}=true"
        )
    return FALSE


def _loss_of_trust(plural: str) -> str:
    if plural == WORKSPACE_TEMPLATE.plural:
        return "permissions and placement in it do not count any more"
    return "what it deploys to clusters now has only the permissions of the instance's owner"


def _trust_annotation(template: Object | None) -> str:
    annotations = metadata(template).get("annotations") if template is not None else None
    found = annotations.get(TRUST_ANNOTATION) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""


def _set_trust_annotation(template: Object, trusted: str) -> None:
    """Sets or removes the annotation. Validation of metadata rejects annotations that are not a map."""
    meta = metadata(template)
    annotations = meta.get("annotations") or {}
    if not isinstance(annotations, dict) or annotations.get(TRUST_ANNOTATION, "") == trusted:
        return
    others = {key: value for key, value in annotations.items() if key != TRUST_ANNOTATION}
    meta["annotations"] = {**others, TRUST_ANNOTATION: trusted} if trusted else others
    if not meta["annotations"]:
        del meta["annotations"]


MAX_WARNINGS = 10


def restrict_workspace_templates(api_group: str) -> Rule:
    """Rejects a workspace with permissions or placement from a definition that may not decide them."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.is_move or not _definition_changed(change):
            return
        name = get_path(change.obj, "spec.templateRef.name") or ""
        entry = registry.view.get((api_group, WORKSPACE_TEMPLATE.plural, "", str(name)))
        template = decode(entry) if entry is not None else None
        try:
            definition = find_definition(change.obj, template)
        except ResolutionError:
            return  # its conditions report that
        is_trusted = trust_level(change.obj, template) == TRUSTED
        found = find_trust_problems(definition.template, definition.parameters, is_trusted=is_trusted)
        if not found:
            return
        if name:
            problems = [Problem.forbidden("spec.templateRef.name", describe_trust_problems(found, str(name)))]
        else:
            problems = [
                Problem.forbidden(f"spec.template.{field}", f"{why}; {trust_advice('')}")
                for field, why in found.items()
            ]
        raise Invalid.of(change.kind.name, change.kind.group, name_of(change.obj), problems)

    return rule


def _definition_changed(change: Change) -> bool:
    paths = ("spec.templateRef.name", "spec.templateRef.version", "spec.template")
    return change.old is None or any(get_path(change.old, path) != get_path(change.obj, path) for path in paths)


def warn_about_workspace_templates(api_group: str) -> Rule:
    """Warns about permissions and placement in a template that will not count."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE_TEMPLATE.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None:
            return
        annotations = metadata(change.new).get("annotations")
        is_trusted = isinstance(annotations, dict) and annotations.get(TRUST_ANNOTATION) == TRUE
        warnings = list(_definition_warnings(change.new, is_trusted=is_trusted))
        change.warnings.extend(warnings[:MAX_WARNINGS])

    return rule


def _definition_warnings(template: Object, *, is_trusted: bool) -> Iterator[str]:
    for path, definition in _definitions(template):
        parameters = definition.get("parameters") or ()
        if found := find_trust_problems(definition.get("template"), parameters, is_trusted=is_trusted):
            yield f"no workspace can be created from {path}: {describe_trust_problems(found, name_of(template))}"


def _definitions(template: Object) -> Iterator[tuple[str, Object]]:
    spec = template.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    yield "spec.template", spec
    versions = spec.get("versions")
    for index, each in enumerate(versions if isinstance(versions, list) else ()):
        if isinstance(each, dict):
            yield f"spec.versions[{index}]", each
