"""Fields, defaulting, validation and columns that SpaceInstance and VirtualClusterInstance share.

Workspaces are instances too, but run on runners instead of clusters; `workspace.py` declares them separately.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.release_names import release_name_problems
from fairlead.domain.typed_objects import ASLEEP_STAGE, FALLING_ASLEEP, STARTING, WAKING_UP
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
from fairlead.kinds.instances.templates import TRUST_LEVELS
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry import limits
from fairlead.registry.conditions import TRUE, UNKNOWN, condition, with_conditions
from fairlead.registry.kind import Change, Column, Problem
from fairlead.registry.names import dns_subdomain_errors
from fairlead.registry.schema import (
    Schema,
    array,
    boolean,
    enum,
    integer,
    obj,
    open_object,
    string,
    timestamp,
    with_description,
)

PENDING, READY, RECONCILING, PROGRESSING = "Pending", "Ready", "Reconciling", "Progressing"
PHASES = ("", PENDING, READY, "Sleeping", "Failed")
COMPUTED_STATUS_FIELDS = ("canUse", "canUpdate")
"""Status fields that are computed for the requester and never stored."""

SPEC_FIELDS: Mapping[str, Any] = {
    "displayName": DISPLAY_NAME,
    "description": DESCRIPTION,
    "owner": with_description(
        OWNER, "Owner of the instance: one user or one team. Defaults to the requester of the create."
    ),
    "access": ACCESS,
    "templateRef": with_description(TEMPLATE_REF, "Template of the instance. Mutually exclusive with template."),
    "parameters": PARAMETER_VALUES,
    "parameterSecrets": PARAMETER_PASSWORDS,
    "clusterRef": CLUSTER_REF,
    "extraAccessRules": array(
        obj(
            users=array(string(), "Users that the rule applies to. `*` means every user.", max_items=limits.MEMBERS),
            teams=array(string(), "Teams that the rule applies to.", max_items=limits.MEMBERS),
            clusterRole=string("Cluster role granted in the instance."),
        ),
        "Permissions in the instance, in addition to the template's access rules. Rules are additive.",
        max_items=limits.ACCESS_ENTRIES,
    ),
}


def deployed_objects(target: str) -> Schema:
    """Schema of the objects deployed from the template, as the cluster's agent reports them."""
    return obj(
        f"Objects deployed into the {target}.",
        lastAppliedObjects=string("The last applied objects, as YAML text.", max_length=limits.DOCUMENT),
        charts=array(open_object(), "The deployed charts and their state."),
        apps=array(open_object(), "The deployed apps and their state."),
    )


ATTEMPT_OUTCOMES = ("Running", "Succeeded", "Failed", "Interrupted")
LAST_ATTEMPT = obj(
    "The last run of Helm for the release. It is written before Helm starts.",
    id=string("Identifies the run."),
    generation=integer("Generation of this object that the run was for."),
    hash=string("Hash of the definition that was to be deployed."),
    holder=string("The server process that ran Helm."),
    startedAt=timestamp("When it has started."),
    deadline=timestamp("When it has ended in any case."),
    endedAt=timestamp("When it has failed."),
    outcome=enum("How it has ended. Interrupted: the server has ended before.", *ATTEMPT_OUTCOMES),
    reason=string("Machine-readable reason of a failure. The conditions have the message."),
    revision=integer("Revision of the release that was deployed."),
    digest=string("Digest of the deployed chart, values and revision. Another one in the cluster is drift."),
    annotated=boolean("Whether objects of the release may have annotations of the App. Defaults to false."),
)

STATUS_FIELDS: Mapping[str, Any] = {
    "phase": enum("Phase of the instance. Empty means Pending.", *PHASES),
    "reason": string("Machine-readable reason for the phase."),
    "message": string("Human-readable reason for the phase.", max_length=limits.MESSAGE),
    "conditions": CONDITIONS,
    "observedGeneration": OBSERVED_GENERATION,
    "templateHash": TEMPLATE_HASH,
    "renderedSecrets": RENDERED_PASSWORDS,
    "templateTrust": enum(
        "Permissions that the rendered template is applied with: those of the cluster's stored credential (Trusted), "
        "or those of the owner in the namespace (Confined). Unmarked: the template predates the distinction.",
        *TRUST_LEVELS,
    ),
    "templateApplied": enum("Trust level that the namespace was created with.", *TRUST_LEVELS),
    "spaceObjects": deployed_objects("space"),
    "sleepModeConfig": SLEEP_MODE,
    "sleep": obj(
        "What is asleep in the cluster.",
        stage=enum("How far the sleep or the wake-up is.", "", FALLING_ASLEEP, ASLEEP_STAGE, WAKING_UP, STARTING),
        refusedAt=integer("When it was found that it cannot sleep, in Unix seconds. See the condition Asleep."),
    ),
    "online": boolean("Whether the instance is reachable."),
    "canUse": boolean("Whether the requester may use it. Only in responses to requests with `extended=true`."),
    "canUpdate": boolean("Whether the requester may update it. Only in responses to requests with `extended=true`."),
    "ignoreReconciliation": boolean("Controllers skip the instance, as during a migration. Defaults to false."),
}

_CLUSTER_REF_FIELDS = ("cluster", "namespace", "virtualCluster")


def default_instance(change: Change) -> None:
    """Sets the initial status, and keeps the stored clusterRef if a request omits it.

    Manifests usually do not contain the location that the server has chosen.
    """
    if change.old is None and not change.obj.get("status"):
        change.obj["status"] = initial_status(metadata(change.obj))
    if change.subresource == "status":
        for field in COMPUTED_STATUS_FIELDS:
            (change.obj.get("status") or {}).pop(field, None)
    stored = {
        field: value for field in _CLUSTER_REF_FIELDS if (value := get_path(change.old, f"spec.clusterRef.{field}"))
    }
    if stored:
        sent = {field: value for field, value in (change.spec.get("clusterRef") or {}).items() if value}
        change.obj["spec"] = {**change.spec, "clusterRef": {**stored, **sent}}


def initial_status(meta: Object) -> Object:
    """The status of the first revision. Generic tools treat an object without conditions as ready."""
    message = "waiting for the first reconcile"
    first = condition(READY, UNKNOWN, PROGRESSING, message), condition(RECONCILING, TRUE, PROGRESSING, message)
    status = {"phase": PENDING, "reason": PROGRESSING, "message": message}
    return with_conditions(status, first, meta.get("creationTimestamp") or "", meta.get("generation"))


def instance_problems(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    if spec.get("templateRef") and spec.get("template"):
        yield Problem.forbidden("spec.template", "spec.templateRef is set too; keep one of them")
    if name := get_path(spec, "templateRef.name"):
        yield from (Problem.invalid("spec.templateRef.name", name, fault) for fault in dns_subdomain_errors(name))
    for part in _CLUSTER_REF_FIELDS:
        before = get_path(change.old, f"spec.clusterRef.{part}")
        after = get_path(spec, f"clusterRef.{part}")
        if before and before != after:
            yield Problem.invalid(f"spec.clusterRef.{part}", after, f"field is immutable once set; it is {before}")
    yield from _release_name_problems(change)


def _release_name_problems(change: Change) -> Iterable[Problem]:
    """Validates a new release name: virtual clusters are Helm releases. Stored names are accepted."""
    before, name = (get_path(each, "spec.clusterRef.virtualCluster") for each in (change.old, change.obj))
    if name and name != before:
        yield from release_name_problems("spec.clusterRef.virtualCluster", name)


def project_name(instance: Object) -> str:
    """The project of an instance, for tables. A prefix other than the default is not stripped."""
    return str(metadata(instance).get("namespace", "")).removeprefix(NAMESPACE_PREFIX)


COLUMNS = (
    Column("Phase", "status.phase", description="Pending, Ready, Sleeping or Failed."),
    Column("Project", project_name, description="Project of the instance."),
    Column("Owner", owner_name, description="Owning user or team."),
    Column("Template", "spec.templateRef.name", description="Template of the instance."),
    Column("Cluster", "spec.clusterRef.cluster", description="Connected cluster that it runs in."),
    Column("Version", "spec.templateRef.version", description="Version of the template.", wide=True),
    Column("Display Name", "spec.displayName", description="Human-readable name.", wide=True),
    Column("Reason", "status.reason", description="Reason for the phase.", wide=True),
)

SELECTABLE = ("spec.clusterRef.cluster", "spec.owner.team", "spec.owner.user", "spec.templateRef.name", "status.phase")
