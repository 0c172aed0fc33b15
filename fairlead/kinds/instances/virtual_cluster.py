"""VirtualClusterInstance: a virtual cluster in a connected cluster, given to a project."""

from collections.abc import Iterable

from fairlead.core.objects import dig
from fairlead.domain.password_parameters import conceal
from fairlead.kinds.fields import CATEGORY, passwords, unbound_from_passwords
from fairlead.kinds.instances.fields import (
    COLUMNS,
    SELECTABLE,
    SPEC_FIELDS,
    STATUS_FIELDS,
    deployed_objects,
    instance_problems,
    prepare_instance,
)
from fairlead.kinds.instances.templates import VIRTUAL_CLUSTER_TEMPLATE_SPEC
from fairlead.registry.kind import Change, Kind, Problem
from fairlead.registry.schema import boolean, described, obj, string

FIELDS = {
    "spec": obj(
        "The virtual cluster that is wanted.",
        **SPEC_FIELDS,
        template=described(
            VIRTUAL_CLUSTER_TEMPLATE_SPEC, "The same written out in place. One of templateRef and template."
        ),
        networkPeer=boolean("The virtual cluster dials in, so that nobody needs to reach it. Defaults to false."),
        config=obj(
            "How to reach a virtual cluster that runs already; nothing is deployed then. Whoever names a secret must "
            "be allowed to read it.",
            secretName=string("Name of the secret that holds a kubeconfig, in the namespace of the project."),
            key=string("Key of the kubeconfig within the secret. Defaults to `config`."),
        ),
        external=boolean(
            "Somebody else has deployed it: it is never deployed, changed or deleted from here. Defaults to false."
        ),
    ),
    "status": obj(
        "How the virtual cluster is doing. Written by the server and the cluster's agent.",
        **STATUS_FIELDS,
        virtualCluster=described(
            VIRTUAL_CLUSTER_TEMPLATE_SPEC, "The template as it was rendered for this virtual cluster."
        ),
        virtualClusterObjects=deployed_objects("virtual cluster"),
        serviceUID=string("Identifies the virtual cluster for good, also after a move to another project."),
        deployedConfined=boolean("Whether anything of it was ever made with no more rights than its owner has."),
        deployHash=string("Tells whether what is deployed is what was rendered."),
    ),
}


def prepare(change: Change) -> None:
    prepare_instance(change)
    identity = dig(change.old, "status.serviceUID")
    if identity and isinstance(status := change.obj.get("status"), dict):
        status.setdefault("serviceUID", identity)


def check(change: Change) -> Iterable[Problem]:
    yield from instance_problems(change)
    before, after = dig(change.old, "status.serviceUID"), dig(change.obj, "status.serviceUID")
    if before and before != after:
        yield Problem.invalid("status.serviceUID", after, "field is immutable")
    yield from _confinement_problems(change)


def _confinement_problems(change: Change) -> Iterable[Problem]:
    """A chart out of a template has other rights in the cluster than one that is written out in place. What was chosen
    first holds from when there may be something of it in the cluster, so that neither gets the rights of the other."""
    before, after = (bool(dig(each, "spec.templateRef.name")) for each in (change.old, change.obj))
    if dig(change.old, "spec.clusterRef.namespace") and before != after:
        chosen, other = ("spec.templateRef", "spec.template") if before else ("spec.template", "spec.templateRef")
        why = f"it has a namespace already, and stays with {chosen}; delete it and make one with {other}"
        yield Problem.forbidden("spec.templateRef.name" if after else other, why)


VIRTUAL_CLUSTER = Kind(
    name="VirtualClusterInstance",
    plural="virtualclusterinstances",
    namespaced=True,
    fields=FIELDS,
    description="A virtual cluster of a project, in a connected cluster.",
    short_names=("vci",),
    categories=(CATEGORY, "all"),
    status_subresource=True,
    columns=COLUMNS,
    selectable=SELECTABLE,
    secret=passwords(FIELDS),
    hidden=passwords(FIELDS),
    unbound=unbound_from_passwords(FIELDS),
    sealed=("spec.parameters",),
    conceal=conceal,
    concealed=("status.virtualCluster",),
    shared=True,
    prepare=prepare,
    check=check,
)
