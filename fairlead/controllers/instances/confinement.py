"""How what nobody but its users has chosen is held to their rights when it is made in a cluster. Pure.

A template that an administrator vouches for is applied with the credential that is stored for the cluster. Objects and
charts of any other one are applied as a user of their own, the deployer of the namespace, who has the roles there that
the owner of the instance has, and nothing elsewhere. So the cluster's own rules decide, those against granting what one
does not hold included. It is not the owner's own identity: owners can have rights that have nothing to do with the
instance, and whoever may give it to another owner would get to use them.

The namespace itself and the bindings in it are always made with the stored credential. So of labels, annotations and
roles that such a template asks for, only those are taken that the settings list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.controllers.instances.remote_errors import ERROR, Trouble
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.user import SERVICE_ACCOUNT
from fairlead.kinds.instances.templates import CONFINED, TRUST_ANNOTATION, TRUSTED, UNMARKED
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, find_condition
from fairlead.registry.registry import Registry

DEPLOYER = "service:deployer:"
"""How the users begin that such things are made as. The namespace follows."""
OWNER_NOT_FOUND, OWNER_DISABLED = "OwnerNotFound", "OwnerDisabled"
TEMPLATE_NOT_TRUSTED = "TemplateNotTrusted"
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Confinement:
    """The settings: which cluster roles instances may give in their namespace, which keys of labels and annotations
    they may set there (one that ends in a slash is a whole domain), which pod security level is enforced there, and the
    role that charts of virtual clusters are deployed with."""

    roles: Sequence[str] = ("view", "edit", "admin")
    keys: Sequence[str] = ("tenant.service.sh/",)
    pod_security: str = "baseline"
    chart_role: str = "admin"

    def confine_metadata(self, template: Object) -> tuple[Object, list[str]]:
        """The template with those labels and annotations that it may set, and the keys of the others."""
        meta, left_out = dict(template.get("metadata") or {}), []
        for part in ("labels", "annotations"):
            texts: Mapping[str, str] = meta.get(part) or {}
            meta[part] = {key: text for key, text in texts.items() if self._takes_key(key)}
            left_out += [key for key in texts if key not in meta[part]]
        return {**template, "metadata": meta}, sorted(set(left_out))

    def _takes_key(self, key: str) -> bool:
        return any(key == each or (each.endswith("/") and key.startswith(each)) for each in self.keys)

    def confine_access(self, access: Object) -> tuple[Object, list[str]]:
        """The `access` of a template with those roles that it may give, and the names of the others."""
        default, rules = access.get("defaultClusterRole") or "", access.get("rules") or ()
        kept, left_out = self.confine_rules(rules)
        if default and default not in self.roles:
            left_out = sorted({*left_out, default})
            default = ""
        return {"defaultClusterRole": default, "rules": kept}, left_out

    def confine_rules(self, rules: Sequence[Object]) -> tuple[list[Object], list[str]]:
        kept = [each for each in rules if not each.get("clusterRole") or each["clusterRole"] in self.roles]
        return kept, sorted({each["clusterRole"] for each in rules if each not in kept})


@dataclass(frozen=True, slots=True)
class Plan:
    """How a rendered template is applied: what of it, as which user (empty: with the stored credential), and what a
    condition has to say about the rest."""

    template: Object
    acting_as: str = ""
    pod_security: str = ""
    leaves_contents: bool = False
    """Whether labels and objects stay as they are: nobody has said yet whose the template is."""
    left_out: str = ""


def plan_template(confinement: Confinement, instance: Object, template: Object, namespace: str) -> Plan:
    """Raises Trouble where the template may not be applied."""
    check_transition(instance)
    trust = trust_in(instance)
    if trust == TRUSTED:
        return Plan(template)
    if trust == UNMARKED and applied_trust(instance) != CONFINED:
        return Plan(template, leaves_contents=True, left_out=_unmarked(instance))
    confined, keys = confinement.confine_metadata(template)
    access, roles = confinement.confine_access(template.get("access") or {})
    said = describe_left_out(keys, roles) if trust == CONFINED else _unmarked(instance)
    level = confinement.pod_security
    return Plan({**confined, "access": access}, deployer_of(namespace), level, trust == UNMARKED, said)


def deployer_of(namespace: str) -> str:
    return f"{DEPLOYER}{namespace}"


def trust_in(instance: Object) -> str:
    """How far the rendered template is trusted."""
    return dig(instance, "status.templateTrust") or UNMARKED


def is_confined(instance: Object) -> bool:
    return trust_in(instance) == CONFINED


def check_owner(registry: Registry, api_group: str, instance: Object) -> None:
    """Raises Trouble where the owner is nobody whose rights anything could be made with."""
    for sort, plural in (("user", "users"), ("team", "teams")):
        name = dig(instance, f"spec.owner.{sort}")
        if not name:
            continue
        entry = registry.resource(api_group, plural).peek("", name)
        owner = decode(entry) if entry is not None and not name.startswith(SERVICE_ACCOUNT) else None
        advice = "set spec.owner to somebody else, or name a template of an administrator in spec.templateRef"
        if owner is None or "deletionTimestamp" in metadata(owner):
            why = f'what no administrator has settled is made with the rights of the owner, and {sort} "{name}" is not'
            raise Trouble(OWNER_NOT_FOUND, f"{why} there (any more); {advice}", ERROR)
        if dig(owner, "spec.disabled"):
            why = f'what no administrator has settled is made with the rights of the owner, and {sort} "{name}" is'
            raise Trouble(OWNER_DISABLED, f"{why} disabled; enable the {sort}, or {advice}", ERROR)
        return
    why = "what no administrator has settled is made with the rights of the owner, and there is none; set spec.owner"
    raise Trouble(OWNER_NOT_FOUND, why, ERROR)


def check_transition(instance: Object) -> None:
    """Raises Trouble where a namespace that an administrator's template has made would become another one's.

    Labels, quotas and policies of the former one would go, and with them what was to hold the owner.
    """
    trust = trust_in(instance)
    if trust == CONFINED and applied_trust(instance) == TRUSTED:
        why = (
            f"it was made from an administrator's template, and {_source(instance)} is not one: nothing is changed in "
            "the cluster. Name the former template again, delete this and make a new one, or have an administrator "
            f"look at the template and annotate it with {TRUST_ANNOTATION}=true"
        )
        raise Trouble(TEMPLATE_NOT_TRUSTED, why, ERROR)
    if not was_made(instance):
        check_marked(instance)


def check_marked(instance: Object) -> None:
    """Raises Trouble where nobody has said yet whose the template is, so that nothing new is made of it."""
    if trust_in(instance) == UNMARKED:
        why = f"{_source(instance)} has no mark that says whether it is an administrator's; {_marking(instance)}"
        raise Trouble(TEMPLATE_NOT_TRUSTED, why, ERROR)


def applied_as(instance: Object, plan: Plan) -> Object:
    """The part of the status that says with which trust the namespace was made."""
    return {} if plan.leaves_contents else {"templateApplied": trust_in(instance)}


def applied_trust(instance: Object) -> str:
    """With which trust the namespace was made. What a template made before that was written down counts as trusted."""
    known = dig(instance, "status.templateApplied") or ""
    if known:
        return str(known)
    return TRUSTED if was_made(instance) and dig(instance, "spec.templateRef.name") else ""


def was_made(instance: Object) -> bool:
    """Whether the namespace was once as it should be. It becomes Unknown while its cluster is away."""
    synced = find_condition(instance.get("status"), "SpaceSynced") or {}
    has_failed = synced.get("status") in (None, FALSE)
    return bool(dig(instance, "status.templateApplied")) or not has_failed


def _source(instance: Object) -> str:
    name = dig(instance, "spec.templateRef.name")
    return f'template "{name}"' if name else "spec.template"


def _marking(instance: Object) -> str:
    kind = "spacetemplate" if instance["kind"] == "SpaceInstance" else "virtualclustertemplate"
    name = dig(instance, "spec.templateRef.name") or "NAME"
    return (
        f"have an administrator look at it and run `kubectl annotate {kind} {name} {TRUST_ANNOTATION}=true` (or =false"
        ", for one whose instances are to have no more rights than their owners)"
    )


def _unmarked(instance: Object) -> str:
    """What a condition adds while nothing is applied for want of a mark."""
    return (
        f"; but its labels and objects are left as they are, since {_source(instance)} is from before templates were "
        f"marked: {_marking(instance)}; set spec.templateRef.syncOnce where that alone does not help"
    )


def describe_left_out(keys: Sequence[str], roles: Sequence[str]) -> str:
    """What a condition adds about what was asked for and is not given."""
    parts = []
    if keys:
        parts.append(f"labels and annotations that the setting space_metadata does not list ({_named(keys)})")
    if roles:
        parts.append(f"cluster roles that the setting space_roles does not list ({_named(roles)})")
    if not parts:
        return ""
    return f"; left out: {' and '.join(parts)}; use others, or a template of an administrator"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(each[:100] for each in names[:MOST_NAMED])
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else shown
