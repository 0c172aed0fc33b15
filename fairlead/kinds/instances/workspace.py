"""DevPodWorkspaceInstance: a developer workspace that lives in a project and is run by a runner."""

from collections.abc import Iterable

from fairlead.core.objects import dig
from fairlead.domain.password_parameters import conceal
from fairlead.kinds.fields import (
    ACCESS,
    CATEGORY,
    CLUSTER_REF,
    CONDITIONS,
    DESCRIPTION,
    DISPLAY_NAME,
    NAMED_VERSION,
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
    passwords,
    unbound_from_passwords,
)
from fairlead.kinds.instances.templates import WORKSPACE_TEMPLATE_SPEC
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.names import subdomain_faults
from fairlead.registry.schema import boolean, described, enum, free, obj, string, timestamp

SPEC = obj(
    "The workspace that is wanted.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    owner=OWNER,
    access=ACCESS,
    templateRef=described(TEMPLATE_REF, "Template that the workspace is made from. One of templateRef and template."),
    template=described(WORKSPACE_TEMPLATE_SPEC, "The same written out in place. One of templateRef and template."),
    parameters=PARAMETER_VALUES,
    parameterSecrets=PARAMETER_PASSWORDS,
    runnerRef=obj(
        "The runner that the workspace runs on.",
        runner=string("Name of the runner. Empty means that the server picks one. Stays as it is once set."),
    ),
    target=obj(
        "Where the workspace runs, in place of a runner.",
        cluster=obj("A connected cluster.", name=string("Name of the cluster.")),
        virtualCluster=obj("A virtual cluster of the project.", name=string("Name of the virtual cluster.")),
    ),
    presetRef=described(NAMED_VERSION, "Preset that the workspace was started from."),
    environmentRef=described(NAMED_VERSION, "Environment template that describes the inside of the workspace."),
    preventWakeUpOnConnection=boolean("Stay asleep when somebody connects over SSH. Defaults to false."),
)

STATUS = obj(
    "How the workspace is doing. Written by the server and the runner.",
    phase=enum("Where the workspace stands. Empty means Pending.", "", "Pending", "Ready", "Sleeping", "Failed"),
    reason=string("Why the phase is what it is, as one word."),
    message=string("The same for people.", longest=limits.MESSAGE),
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
    lastWorkspaceStatus=enum("What the runner last said about it.", "", "NotFound", "Stopped", "Busy", "Running"),
    instance=described(WORKSPACE_TEMPLATE_SPEC, "The template as it was rendered for this workspace."),
    templateHash=TEMPLATE_HASH,
    renderedSecrets=RENDERED_PASSWORDS,
    clusterRef=CLUSTER_REF,
    resolvedTarget=free("Where the workspace came to run."),
    kubernetes=obj(
        "What it looks like in the cluster, if it runs in one.",
        podStatus=free("Status of its pod, as Kubernetes has it."),
        persistentVolumeClaimStatus=free("Status of its volume claim, as Kubernetes has it."),
        lastTransitionTime=timestamp("When either of them last changed."),
    ),
    sleepModeConfig=SLEEP_MODE,
    ignoreReconciliation=boolean("Controllers leave the workspace alone, as during a migration. Defaults to false."),
)

FIELDS = {"spec": SPEC, "status": STATUS}


def keep_runner(change: Change) -> None:
    """A PUT with the empty `runnerRef` that people keep in their files does not take a workspace off its runner."""
    runner = dig(change.old, "spec.runnerRef.runner")
    if runner and not dig(change.obj, "spec.runnerRef.runner"):
        change.obj["spec"] = {**change.spec, "runnerRef": {"runner": runner}}


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    if spec.get("templateRef") and spec.get("template"):
        yield Problem.forbidden("spec.template", "spec.templateRef is set too; keep one of them")
    if name := dig(spec, "templateRef.name"):
        yield from (Problem.invalid("spec.templateRef.name", name, fault) for fault in subdomain_faults(name))
    if dig(spec, "target.cluster.name") and dig(spec, "target.virtualCluster.name"):
        yield Problem.forbidden("spec.target.virtualCluster", "spec.target.cluster is set too; keep one of them")
    runner = dig(spec, "runnerRef.runner")
    if runner != (dig(change.old, "spec.runnerRef.runner") or runner):
        yield Problem.invalid("spec.runnerRef.runner", runner, "field is immutable once a runner has been set")


WORKSPACE = Kind(
    name="DevPodWorkspaceInstance",
    plural="devpodworkspaceinstances",
    namespaced=True,
    fields=FIELDS,
    description="A developer workspace in a project.",
    short_names=("ws",),
    categories=(CATEGORY, "all"),
    status_subresource=True,
    columns=(
        Column("Phase", "status.phase", description="Pending, Ready, Sleeping or Failed."),
        Column("Owner", owner_name, description="User or team that the workspace belongs to."),
        Column("Template", "spec.templateRef.name", description="Template that it is made from."),
        Column("Runner", "spec.runnerRef.runner", description="Runner that it runs on."),
        Column("Display Name", "spec.displayName", description="Name shown to people.", wide=True),
        Column("Last Status", "status.lastWorkspaceStatus", description="What the runner last said.", wide=True),
    ),
    selectable=("spec.owner.user", "spec.runnerRef.runner", "spec.templateRef.name", "status.phase"),
    secret=passwords(FIELDS),
    hidden=passwords(FIELDS),
    unbound=unbound_from_passwords(FIELDS),
    sealed=("spec.parameters",),
    conceal=conceal,
    concealed=("status.instance",),
    shared=True,
    prepare=keep_runner,
    check=check,
)
