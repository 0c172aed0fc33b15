"""SpaceInstance and VirtualClusterInstance: namespaces and virtual clusters in connected clusters, of a project."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fairlead.core.objects import get_path
from fairlead.domain.password_parameters import redact_instance
from fairlead.kinds.fields import CATEGORY, password_independent_fields, password_paths
from fairlead.kinds.instances.fields import (
    COLUMNS,
    LAST_ATTEMPT,
    SELECTABLE,
    SPEC_FIELDS,
    STATUS_FIELDS,
    default_instance,
    deployed_objects,
    instance_problems,
)
from fairlead.kinds.instances.templates import SPACE_TEMPLATE_SPEC, VIRTUAL_CLUSTER_TEMPLATE_SPEC
from fairlead.registry.kind import AllowListField, Change, Instance, Kind, Problem, Sensitivity
from fairlead.registry.schema import Schema, boolean, integer, obj, string, with_description

SPACE_FIELDS = {
    "spec": obj(
        "Desired state of the space.",
        **SPEC_FIELDS,
        template=with_description(SPACE_TEMPLATE_SPEC, "Inline definition. Mutually exclusive with templateRef."),
    ),
    "status": obj(
        "Observed state of the space. Written by the server and the cluster's agent.",
        **STATUS_FIELDS,
        space=with_description(SPACE_TEMPLATE_SPEC, "The rendered template of this space."),
    ),
}

VIRTUAL_CLUSTER_FIELDS = {
    "spec": obj(
        "Desired state of the virtual cluster.",
        **SPEC_FIELDS,
        template=with_description(
            VIRTUAL_CLUSTER_TEMPLATE_SPEC, "Inline definition. Mutually exclusive with templateRef."
        ),
        networkPeer=boolean(
            "The virtual cluster connects to the server, so it need not be reachable. Defaults to false."
        ),
        config=obj(
            "Kubeconfig of an existing virtual cluster; nothing is deployed then. The requester must be allowed to "
            "read the secret.",
            secretName=string("Name of the secret that contains a kubeconfig, in the namespace of the project."),
            key=string("Key of the kubeconfig within the secret. Defaults to `config`."),
        ),
        external=boolean("Deployed externally: the server never deploys, changes or deletes it. Defaults to false."),
    ),
    "status": obj(
        "Observed state of the virtual cluster. Written by the server and the cluster's agent.",
        **STATUS_FIELDS,
        virtualCluster=with_description(
            VIRTUAL_CLUSTER_TEMPLATE_SPEC, "The rendered template of this virtual cluster."
        ),
        virtualClusterObjects=deployed_objects("virtual cluster"),
        importedFrom=obj(
            "Where the virtual cluster runs, if it was imported by the Secret that a chart wrote. The server reaches "
            "it through that cluster.",
            cluster=string("Connected cluster."),
            namespace=string("Namespace in that cluster."),
            name=string("Name of the chart's release."),
            secretUID=string("Uid of the Secret with the kubeconfig."),
            kubeconfigDigest=string("SHA-256 of the kubeconfig in spec.config that was compared with it."),
        ),
        serviceUID=string("Permanent ID of the virtual cluster; a migration to another project keeps it."),
        deployedConfined=boolean("Whether any of its objects were ever created with only the owner's permissions."),
        deployHash=string("Hash of the deployed definition; a different hash means the deployment is outdated."),
        lastAttempt=LAST_ATTEMPT,
        connection=obj(
            "How the server reached it last.",
            mode=string("`Direct`, or `Tunnel`: by port-forward through the cluster in which it runs."),
            service=string("The Service that the tunnel leads to."),
            port=integer("The port of the pod."),
            pod=string("The pod behind the Service."),
            podUID=string("The uid of the pod."),
        ),
        accessPoint=obj(
            "The ingress, if its template enables one.",
            url=string("Where the virtual cluster is reached without this server."),
            certificateAuthority=string("Its certificate authority, as PEM text."),
            acceptsTokens=boolean("Whether it authenticates the tokens of this server, as forwardToken says."),
        ),
    ),
}


def default_virtual_cluster(change: Change) -> None:
    default_instance(change)
    identity = get_path(change.old, "status.serviceUID")
    if identity and isinstance(status := change.obj.get("status"), dict):
        status.setdefault("serviceUID", identity)


def check_virtual_cluster(change: Change) -> Iterable[Problem]:
    yield from instance_problems(change)
    before = get_path(change.old, "status.serviceUID")
    after = get_path(change.obj, "status.serviceUID")
    if before and before != after:
        yield Problem.invalid("status.serviceUID", after, "field is immutable")
    yield from _confinement_problems(change)


def _confinement_problems(change: Change) -> Iterable[Problem]:
    """Forbids switching between templateRef and an inline template once the instance has a namespace.

    The two are deployed with different permissions in the cluster; a switch would mix their objects.
    """
    before, after = (bool(get_path(each, "spec.templateRef.name")) for each in (change.old, change.obj))
    if get_path(change.old, "spec.clusterRef.namespace") and before != after:
        chosen, other = ("spec.templateRef", "spec.template") if before else ("spec.template", "spec.templateRef")
        reason = (
            f"the virtual cluster already has a namespace, so it must keep {chosen}; "
            f"to use {other}, delete it and create a new one"
        )
        yield Problem.forbidden("spec.templateRef.name" if after else other, reason)


def _instance_kind(
    name: str,
    short_name: str,
    description: str,
    fields: Mapping[str, Schema],
    instance: Instance,
) -> Kind:
    """A kind of instances in connected clusters."""
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=True,
        fields=fields,
        description=description,
        sensitivity=Sensitivity.NORMAL,
        short_names=(short_name,),
        categories=(CATEGORY, "all"),
        status_subresource=True,
        columns=COLUMNS,
        selectable=SELECTABLE,
        sensitive=password_paths(fields),
        write_only=password_paths(fields),
        safe_siblings=password_independent_fields(fields),
        encrypted=("spec.parameters",),
        redact_derived=redact_instance,
        redacted_paths=(f"status.{instance.rendered_field}",),
        has_access_entries=True,
        instance=instance,
        allow_list_fields=(
            AllowListField("spec.templateRef.name", "template", "allowedTemplates", instance.template_kind),
            AllowListField("spec.clusterRef.cluster", "cluster", "allowedClusters"),
        ),
        has_protected_status=True,
        is_in_cli_scope=True,
        default=default_instance,
        check=instance_problems,
    )


SPACE = _instance_kind(
    "SpaceInstance",
    "si",
    "A space of a project: a namespace in a connected cluster.",
    SPACE_FIELDS,
    Instance("space", "SpaceTemplate", "space", in_cluster=True),
)

VIRTUAL_CLUSTER = replace(
    _instance_kind(
        "VirtualClusterInstance",
        "vci",
        "A virtual cluster of a project, in a connected cluster.",
        VIRTUAL_CLUSTER_FIELDS,
        Instance("virtual cluster", "VirtualClusterTemplate", "virtualCluster", in_cluster=True),
    ),
    default=default_virtual_cluster,
    check=check_virtual_cluster,
)
