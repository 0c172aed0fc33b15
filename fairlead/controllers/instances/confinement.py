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
from dataclasses import dataclass

from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import SERVICE_ACCOUNT_PREFIXES
from fairlead.domain.spaces import SPACE_SYNCED
from fairlead.kinds.instances.templates import CONFINED, TRUST_ANNOTATION, TRUSTED, UNMARKED
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, find_condition
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


def plan_template(confinement: Confinement, instance: Object, template: Object, namespace: str) -> TemplatePlan:
    """Raises InstanceError if the template may not be applied."""
    check_transition(instance)
    trust = template_trust(instance)
    if trust == TRUSTED:
        return TemplatePlan(template)
    if trust == UNMARKED and applied_trust(instance) != CONFINED:
        return TemplatePlan(template, skips_contents=True, omitted_note=_unmarked_note(instance))
    confined, keys = confinement.confine_metadata(template)
    access, roles = confinement.confine_access(template.get("access") or {})
    note = describe_omitted(keys, roles) if trust == CONFINED else _unmarked_note(instance)
    level = confinement.pod_security
    return TemplatePlan({**confined, "access": access}, deployer_user(namespace), level, trust == UNMARKED, note)


def deployer_user(namespace: str) -> str:
    return f"{DEPLOYER_PREFIX}{namespace}"


def app_deployer_user(namespace: str) -> str:
    """The user that deploys charts and apps in a namespace. Not the deployer of the template: it has another role."""
    return f"{deployer_user(namespace)}:apps"


def template_trust(instance: Object) -> str:
    """The trust of the rendered template: trusted, confined or unmarked."""
    return get_path(instance, "status.templateTrust") or UNMARKED


def is_confined(instance: Object) -> bool:
    return template_trust(instance) == CONFINED


def check_owner(registry: Registry, api_group: str, instance: Object) -> None:
    """Raises InstanceError if the owner does not exist or is disabled."""
    for kind, plural in (("user", "users"), ("team", "teams")):
        name = get_path(instance, f"spec.owner.{kind}")
        if not name:
            continue
        entry = registry.resource(api_group, plural).get_cached("", name)
        owner = decode(entry) if entry is not None and not name.startswith(SERVICE_ACCOUNT_PREFIXES) else None
        advice = "change spec.owner, or name an administrator's template in spec.templateRef"
        if owner is None or "deletionTimestamp" in metadata(owner):
            message = (
                f'an untrusted template is applied with the permissions of the owner, but {kind} "{name}" does not'
            )
            raise InstanceError(OWNER_NOT_FOUND, f"{message} exist; {advice}", ERROR)
        if get_path(owner, "spec.disabled"):
            message = f'an untrusted template is applied with the permissions of the owner, but {kind} "{name}" is'
            raise InstanceError(OWNER_DISABLED, f"{message} disabled; enable the {kind}, or {advice}", ERROR)
        return
    message = "an untrusted template is applied with the permissions of the owner, but there is none; set spec.owner"
    raise InstanceError(OWNER_NOT_FOUND, message, ERROR)


def check_transition(instance: Object) -> None:
    """Raises InstanceError if an untrusted template would replace an administrator's template in a namespace.

    That would delete its labels, quotas and policies, and with them the restrictions of the owner.
    """
    trust = template_trust(instance)
    if trust == CONFINED and applied_trust(instance) == TRUSTED:
        message = (
            f"it was created from an administrator's template, and {_describe_source(instance)} is not one: nothing "
            "is changed "
            "in the cluster. Name the former template again, or delete this and create a new one, or ask an "
            f"administrator to review the template and annotate it with {TRUST_ANNOTATION}=true"
        )
        raise InstanceError(TEMPLATE_NOT_TRUSTED, message, ERROR)
    if not was_synced(instance):
        check_trust_marked(instance)


def check_trust_marked(instance: Object) -> None:
    """Raises InstanceError if the trust of the template is not known yet, so that nothing new is created from it."""
    if template_trust(instance) == UNMARKED:
        message = (
            f"{_describe_source(instance)} is marked neither as trusted nor as untrusted; {_marking_advice(instance)}"
        )
        raise InstanceError(TEMPLATE_NOT_TRUSTED, message, ERROR)


def applied_trust_fields(instance: Object, plan: TemplatePlan) -> Object:
    """The status fields that record with which trust the namespace was applied."""
    return {} if plan.skips_contents else {"templateApplied": template_trust(instance)}


def applied_trust(instance: Object) -> str:
    """With which trust the namespace was applied. Namespaces from before that was recorded count as trusted."""
    known = get_path(instance, "status.templateApplied") or ""
    if known:
        return str(known)
    return TRUSTED if was_synced(instance) and get_path(instance, "spec.templateRef.name") else ""


def was_synced(instance: Object) -> bool:
    """Whether the namespace was in sync once. SpaceSynced is Unknown while the cluster is offline."""
    synced = find_condition(instance.get("status"), SPACE_SYNCED) or {}
    has_failed = synced.get("status") in (None, FALSE)
    return bool(get_path(instance, "status.templateApplied")) or not has_failed


def _describe_source(instance: Object) -> str:
    name = get_path(instance, "spec.templateRef.name")
    return f'template "{name}"' if name else "spec.template"


def _marking_advice(instance: Object) -> str:
    kind = "spacetemplate" if instance["kind"] == "SpaceInstance" else "virtualclustertemplate"
    name = get_path(instance, "spec.templateRef.name") or "NAME"
    return (
        f"ask an administrator to review it and run `kubectl annotate {kind} {name} {TRUST_ANNOTATION}=true` (or "
        "=false, if its instances should have no more permissions than their owners)"
    )


def _unmarked_note(instance: Object) -> str:
    """A note for the condition while an unmarked template is not applied."""
    return (
        f"; but its labels and objects are not updated, since {_describe_source(instance)} was created before "
        "templates were "
        f"marked: {_marking_advice(instance)}; if that is not enough, set spec.templateRef.syncOnce"
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
