"""Trusted templates and Apps: who marks them with the annotation `service.sh/trusted`.

Objects and charts of a trusted template are deployed with the stored credential of the cluster, and a trusted template
of workspaces gives permissions on the machines of runners (`workspace_templates.py`). So only administrators make a
template trusted: by creating it, or by setting the annotation. When another user changes the definition, the template
loses the annotation, with a warning.
"""

from collections.abc import Mapping, Sequence

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.templates import DEFINITION_FIELDS, FALSE, TRUE, TRUST_ANNOTATION, WORKSPACE_TEMPLATE
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

TRUSTABLE_TEMPLATES: Mapping[str, Sequence[str]] = {
    **{instance.templates: DEFINITION_FIELDS for instance in TEMPLATE_INSTANCES.values()},
    APP.plural: ("config", "parameters", "versions", "helm", "manifests", "clusters", "defaultNamespace"),
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
    if change.old is not None and _is_same_definition(change):
        return before
    if before == TRUE or (is_app and change.old is not None and not before):
        change.warnings.append(
            f"this {'app' if is_app else 'template'} is no longer trusted: {_loss_of_trust(change.kind.plural)}; an "
            f"administrator can annotate it with {TRUST_ANNOTATION}=true"
        )
    return FALSE


def _is_same_definition(change: Change) -> bool:
    old = get_path(change.old, "spec") or {}
    new = get_path(change.new, "spec") or {}
    return all(old.get(each) == new.get(each) for each in TRUSTABLE_TEMPLATES[change.kind.plural])


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
