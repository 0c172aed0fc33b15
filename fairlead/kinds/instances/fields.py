"""What spaces and virtual clusters have in common: fields, rules and columns of things that live in a project.

Workspaces are instances, too, but are declared by themselves: they run on runners and not in a cluster of one's choice.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, dig, metadata
from fairlead.kinds.fields import (
    ACCESS,
    CLUSTER_REF,
    CONDITIONS,
    DESCRIPTION,
    DISPLAY_NAME,
    OBSERVED_GENERATION,
    OWNER,
    PARAMETER_PASSWORDS,
    PARAMETER_VALUES,
    RENDERED_PASSWORDS,
    SLEEP_MODE,
    TEMPLATE_HASH,
    TEMPLATE_REF,
    owner_name,
    owner_problems,
)
from fairlead.kinds.instances.templates import LEVELS
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry import limits
from fairlead.registry.conditions import TRUE, UNKNOWN, condition, with_conditions
from fairlead.registry.kind import Change, Column, Problem
from fairlead.registry.names import label_faults, subdomain_faults
from fairlead.registry.schema import Schema, array, boolean, described, enum, free, obj, string

PENDING, READY, RECONCILING, PROGRESSING = "Pending", "Ready", "Reconciling", "Progressing"
PHASES = ("", PENDING, READY, "Sleeping", "Failed")
COMPUTED = ("canUse", "canUpdate")
"""Fields of the status that are found out for whoever asks, and never stored."""

SPEC_FIELDS: Mapping[str, Any] = {
    "displayName": DISPLAY_NAME,
    "description": DESCRIPTION,
    "owner": described(OWNER, "Whom this belongs to: one user or one team. Whoever creates it, if nobody is named."),
    "access": ACCESS,
    "templateRef": described(TEMPLATE_REF, "Template that this is made from. One of templateRef and template."),
    "parameters": PARAMETER_VALUES,
    "parameterSecrets": PARAMETER_PASSWORDS,
    "clusterRef": CLUSTER_REF,
    "extraAccessRules": array(
        obj(
            users=array(string(), "Users that the rule is about. `*` means every user.", most=limits.MEMBERS),
            teams=array(string(), "Teams that the rule is about.", most=limits.MEMBERS),
            clusterRole=string("Cluster role that they get inside."),
        ),
        "Rights inside, beyond what the template's access rules give. Rules add up.",
        most=limits.ACCESS_ENTRIES,
    ),
}


def deployed_objects(what: str) -> Schema:
    """What was deployed from the template, as the cluster's agent reports it."""
    return obj(
        f"What was deployed into the {what}.",
        lastAppliedObjects=string("The objects that were applied last, as YAML text.", longest=limits.DOCUMENT),
        charts=array(free(), "The charts that were deployed, each with its state."),
        apps=array(free(), "The apps that were deployed, each with its state."),
    )


STATUS_FIELDS: Mapping[str, Any] = {
    "phase": enum("Where it stands. Empty means Pending.", *PHASES),
    "reason": string("Why the phase is what it is, as one word."),
    "message": string("The same for people.", longest=limits.MESSAGE),
    "conditions": CONDITIONS,
    "observedGeneration": OBSERVED_GENERATION,
    "templateHash": TEMPLATE_HASH,
    "renderedSecrets": RENDERED_PASSWORDS,
    "templateTrust": enum(
        "Whose rights the rendered template has in a cluster: the stored credential's (Trusted), or those of the owner "
        "in the namespace (Confined). Unmarked: the template is from before there was that difference.",
        *LEVELS,
    ),
    "templateApplied": enum("With which of them the namespace was made.", *LEVELS),
    "spaceObjects": deployed_objects("space"),
    "sleepModeConfig": SLEEP_MODE,
    "online": boolean("Whether it can be reached right now."),
    "canUse": boolean("Whether you may use it. Only in answers to requests with `extended=true`."),
    "canUpdate": boolean("Whether you may change it. Only in answers to requests with `extended=true`."),
    "ignoreReconciliation": boolean("Controllers leave it alone, as during a migration. Defaults to false."),
}

_PLACE = ("cluster", "namespace", "virtualCluster")
RELEASE_LENGTH = 53
"""How long Helm lets the names of releases be, which virtual clusters are."""


def prepare_instance(change: Change) -> None:
    """What was settled stays when it is left out: people keep files without the place that the server has chosen."""
    if change.old is None and not change.obj.get("status"):
        change.obj["status"] = _first_status(metadata(change.obj))
    if change.subresource == "status":
        for field in COMPUTED:
            (change.obj.get("status") or {}).pop(field, None)
    settled = {part: value for part in _PLACE if (value := dig(change.old, f"spec.clusterRef.{part}"))}
    if settled:
        sent = {part: value for part, value in (change.spec.get("clusterRef") or {}).items() if value}
        change.obj["spec"] = {**change.spec, "clusterRef": {**settled, **sent}}


def _first_status(meta: Object) -> Object:
    """In the very first revision already: an object without conditions counts as finished for generic tools."""
    message = "it has not been looked at yet"
    first = condition(READY, UNKNOWN, PROGRESSING, message), condition(RECONCILING, TRUE, PROGRESSING, message)
    told = {"phase": PENDING, "reason": PROGRESSING, "message": message}
    return with_conditions(told, first, meta.get("creationTimestamp") or "", meta.get("generation"))


def instance_problems(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    if spec.get("templateRef") and spec.get("template"):
        yield Problem.forbidden("spec.template", "spec.templateRef is set too; keep one of them")
    if name := dig(spec, "templateRef.name"):
        yield from (Problem.invalid("spec.templateRef.name", name, fault) for fault in subdomain_faults(name))
    for part in _PLACE:
        before, after = dig(change.old, f"spec.clusterRef.{part}"), dig(spec, f"clusterRef.{part}")
        if before and before != after:
            yield Problem.invalid(f"spec.clusterRef.{part}", after, f"field is immutable once set; it is {before}")
    yield from _release_problems(change)


def _release_problems(change: Change) -> Iterable[Problem]:
    """It becomes a part of names and paths in the cluster. What was kept before this was asked may stay."""
    before, name = (dig(each, "spec.clusterRef.virtualCluster") for each in (change.old, change.obj))
    if name and name != before:
        faults = [*label_faults(name)]
        if len(name) > RELEASE_LENGTH:
            faults = [f"must be no more than {RELEASE_LENGTH} characters"]
        yield from (Problem.invalid("spec.clusterRef.virtualCluster", name, fault) for fault in faults)


def project_name(each: Object) -> str:
    """The project of an instance, for tables. Under another prefix than usual it shows with it."""
    return str(metadata(each).get("namespace", "")).removeprefix(NAMESPACE_PREFIX)


COLUMNS = (
    Column("Phase", "status.phase", description="Pending, Ready, Sleeping or Failed."),
    Column("Project", project_name, description="Project that it lives in."),
    Column("Owner", owner_name, description="User or team that it belongs to."),
    Column("Template", "spec.templateRef.name", description="Template that it is made from."),
    Column("Cluster", "spec.clusterRef.cluster", description="Connected cluster that it lives in."),
    Column("Version", "spec.templateRef.version", description="Version of the template.", wide=True),
    Column("Display Name", "spec.displayName", description="Name shown to people.", wide=True),
    Column("Reason", "status.reason", description="Why the phase is what it is.", wide=True),
)

SELECTABLE = ("spec.clusterRef.cluster", "spec.owner.team", "spec.owner.user", "spec.templateRef.name", "status.phase")
