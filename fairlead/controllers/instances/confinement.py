"""Confinement: untrusted templates are applied with the permissions of the owner, not of the stored credential. Pure.

A template that an administrator has marked as trusted is applied with the stored credential of the cluster. Objects and
charts of any other one are applied as a separate user, the deployer of the namespace, which has the roles of the
instance's owner in that namespace, and nothing elsewhere. So the cluster's RBAC decides, with its escalation check.
The deployer is not the owner itself: owners may have unrelated permissions, and a user who may change the owner of an
instance could use those.

The namespace itself and its bindings are always applied with the stored credential. So of the labels, annotations and
roles in an untrusted template, only those that the settings allow are applied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.core.objects import Object
from fairlead.core.user import SERVICE_ACCOUNT_PREFIXES
from fairlead.domain.typed_objects import SPACE_SYNCED, RemoteInstance, SpaceInstance, TypedObject
from fairlead.kinds.instances.templates import CONFINED, TRUST_ANNOTATION, TRUSTED, UNMARKED
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE
from fairlead.registry.registry import Registry

DEPLOYER_PREFIX = "service:deployer:"
"""User name prefix of deployers. The namespace follows."""
OWNER_NOT_FOUND, OWNER_DISABLED = "OwnerNotFound", "OwnerDisabled"
TEMPLATE_NOT_TRUSTED = "TemplateNotTrusted"
MAX_LISTED_NAMES = 5


@dataclass(frozen=True, slots=True)
class Confinement:
    """The settings: which cluster roles instances may grant in their namespace, which label and annotation keys they
    may set there (one that ends in a slash is a whole domain), which pod security level is enforced there, and the role
    that charts of virtual clusters are deployed with."""

    roles: Sequence[str] = ("view", "edit", "admin")
    keys: Sequence[str] = ("tenant.service.sh/",)
    pod_security: str = "baseline"
    chart_role: str = "admin"

    def confine_metadata(self, template: Object) -> tuple[Object, list[str]]:
        """The template with the allowed labels and annotations, and the keys of the others."""
        meta, left_out = dict(template.get("metadata") or {}), []
        for part in ("labels", "annotations"):
            texts: Mapping[str, str] = meta.get(part) or {}
            meta[part] = {key: text for key, text in texts.items() if self._is_allowed_key(key)}
            left_out += [key for key in texts if key not in meta[part]]
        return {**template, "metadata": meta}, sorted(set(left_out))

    def _is_allowed_key(self, key: str) -> bool:
        return any(key == each or (each.endswith("/") and key.startswith(each)) for each in self.keys)

    def confine_access(self, access: Object) -> tuple[Object, list[str]]:
        """The `access` of a template with the allowed roles, and the names of the others."""
        default = access.get("defaultClusterRole") or ""
        rules = access.get("rules") or ()
        allowed, left_out = self.confine_rules(rules)
        if default and default not in self.roles:
            left_out = sorted({*left_out, default})
            default = ""
        return {"defaultClusterRole": default, "rules": allowed}, left_out

    def confine_extra_rules(self, instance: RemoteInstance) -> tuple[Sequence[Object], str]:
        """The access rules of the instance itself with the allowed roles, and a note about the others."""
        rules, left_out = self.confine_rules(instance.extra_access_rules)
        return rules, describe_omitted((), left_out)

    def confine_rules(self, rules: Sequence[Object]) -> tuple[list[Object], list[str]]:
        allowed = [each for each in rules if not each.get("clusterRole") or each["clusterRole"] in self.roles]
        return allowed, sorted({each["clusterRole"] for each in rules if each not in allowed})


@dataclass(frozen=True, slots=True)
class TemplatePlan:
    """How a rendered template is applied: which parts of it, as which user (empty: with the stored credential), and a
    note for the condition about the rest."""

    template: Object
    impersonate_user: str = ""
    pod_security: str = ""
    skips_contents: bool = False
    """Whether labels and objects are not applied, since the trust of the template is not known yet."""
    omitted_note: str = ""
    status_fields: Object = field(default_factory=dict)
    """The status fields that record with which trust the namespace is applied."""


def plan_template(confinement: Confinement, instance: RemoteInstance) -> TemplatePlan:
    """Raises InstanceError if the template may not be applied."""
    template = instance.space_template
    trust = template_trust(instance)
    check_transition(instance, trust)
    if trust == TRUSTED:
        return TemplatePlan(template, status_fields={"templateApplied": trust})
    if trust == UNMARKED and applied_trust(instance) != CONFINED:
        return TemplatePlan(template, skips_contents=True, omitted_note=_unmarked_note(instance))
    confined, keys = confinement.confine_metadata(template)
    access, roles = confinement.confine_access(template.get("access") or {})
    note = describe_omitted(keys, roles) if trust == CONFINED else _unmarked_note(instance)
    level = confinement.pod_security
    user = deployer_user(instance.remote_namespace)
    return TemplatePlan(
        template={**confined, "access": access},
        impersonate_user=user,
        pod_security=level,
        skips_contents=trust == UNMARKED,
        omitted_note=note,
        status_fields={} if trust == UNMARKED else {"templateApplied": trust},
    )


def deployer_user(namespace: str) -> str:
    return f"{DEPLOYER_PREFIX}{namespace}"


def app_deployer_user(namespace: str) -> str:
    """The user that deploys charts and apps in a namespace. Not the deployer of the template: it has another role."""
    return f"{deployer_user(namespace)}:apps"


def template_trust(instance: RemoteInstance) -> str:
    """The trust of the rendered template: trusted, confined or unmarked."""
    return instance.template_trust or UNMARKED


def is_confined(instance: RemoteInstance) -> bool:
    return template_trust(instance) == CONFINED


def check_owner(registry: Registry, api_group: str, instance: RemoteInstance) -> None:
    """Raises InstanceError if the owner does not exist or is disabled."""
    for kind, plural in (("user", "users"), ("team", "teams")):
        name = instance.owner.get(kind)
        if not name:
            continue
        entry = registry.resource(api_group, plural).get_cached("", name)
        is_account = name.startswith(SERVICE_ACCOUNT_PREFIXES)
        owner = TypedObject(decode(entry)) if entry is not None and not is_account else None
        advice = "change spec.owner, or name an administrator's template in spec.templateRef"
        if owner is None or owner.is_deleting:
            message = (
                f'an untrusted template is applied with the permissions of the owner, but {kind} "{name}" does not'
            )
            raise InstanceError(OWNER_NOT_FOUND, f"{message} exist; {advice}", ERROR)
        if owner.spec.get("disabled"):
            message = f'an untrusted template is applied with the permissions of the owner, but {kind} "{name}" is'
            raise InstanceError(OWNER_DISABLED, f"{message} disabled; enable the {kind}, or {advice}", ERROR)
        return
    message = "an untrusted template is applied with the permissions of the owner, but there is none; set spec.owner"
    raise InstanceError(OWNER_NOT_FOUND, message, ERROR)


def check_transition(instance: RemoteInstance, trust: str) -> None:
    """Raises InstanceError if an untrusted template would replace an administrator's template in a namespace.

    That would delete its labels, quotas and policies, and with them the restrictions of the owner.
    """
    if trust == CONFINED and applied_trust(instance) == TRUSTED:
        message = (
            f"it was created from an administrator's template, and {_describe_source(instance)} is not one: nothing "
            "is changed in the cluster. Name the former template again, or delete this and create a new one, or ask "
            f"an administrator to review the template and annotate it with {TRUST_ANNOTATION}=true"
        )
        raise InstanceError(TEMPLATE_NOT_TRUSTED, message, ERROR)
    if not was_synced(instance):
        check_trust_marked(instance)


def check_trust_marked(instance: RemoteInstance) -> None:
    """Raises InstanceError if the trust of the template is not known yet, so that nothing new is created from it."""
    if template_trust(instance) == UNMARKED:
        message = (
            f"{_describe_source(instance)} is marked neither as trusted nor as untrusted; {_marking_advice(instance)}"
        )
        raise InstanceError(TEMPLATE_NOT_TRUSTED, message, ERROR)


def applied_trust(instance: RemoteInstance) -> str:
    """With which trust the namespace was applied. Namespaces from before that was recorded count as trusted."""
    if instance.applied_trust:
        return instance.applied_trust
    return TRUSTED if was_synced(instance) and instance.template_name else ""


def was_synced(instance: RemoteInstance) -> bool:
    """Whether the namespace was in sync once. SpaceSynced is Unknown while the cluster is offline."""
    has_failed = instance.condition(SPACE_SYNCED).get("status") in (None, FALSE)
    return bool(instance.applied_trust) or not has_failed


def _describe_source(instance: RemoteInstance) -> str:
    return f'template "{instance.template_name}"' if instance.template_name else "spec.template"


def _marking_advice(instance: RemoteInstance) -> str:
    kind = "spacetemplate" if isinstance(instance, SpaceInstance) else "virtualclustertemplate"
    name = instance.template_name or "NAME"
    return (
        f"ask an administrator to review it and run `kubectl annotate {kind} {name} {TRUST_ANNOTATION}=true` (or "
        "=false, if its instances should have no more permissions than their owners)"
    )


def _unmarked_note(instance: RemoteInstance) -> str:
    """A note for the condition while an unmarked template is not applied."""
    return (
        f"; but its labels and objects are not updated, since {_describe_source(instance)} was created before "
        f"templates were marked: {_marking_advice(instance)}; if that is not enough, set spec.templateRef.syncOnce"
    )


def describe_omitted(keys: Sequence[str], roles: Sequence[str]) -> str:
    """A note for the condition about requested keys and roles that are not allowed."""
    parts = []
    if keys:
        parts.append(f"labels and annotations that the setting space_metadata does not list ({_format_names(keys)})")
    if roles:
        parts.append(f"cluster roles that the setting space_roles does not list ({_format_names(roles)})")
    if not parts:
        return ""
    return f"; not applied: {' and '.join(parts)}; use others, or an administrator's template"


def _format_names(names: Sequence[str]) -> str:
    listed = ", ".join(each[:100] for each in names[:MAX_LISTED_NAMES])
    return f"{listed} and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else listed
