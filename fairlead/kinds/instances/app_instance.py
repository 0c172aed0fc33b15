"""AppInstance: an App that is deployed into a space, a virtual cluster or a namespace of a connected cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, get_path, metadata
from fairlead.domain.password_parameters import redact_instance
from fairlead.domain.release_names import release_name, release_name_problems
from fairlead.domain.template_versions import parse_pattern
from fairlead.kinds.fields import (
    CATEGORY,
    CONDITIONS,
    OBSERVED_GENERATION,
    PARAMETER_PASSWORDS,
    PARAMETER_VALUES,
    RENDERED_PASSWORDS,
    owned_spec,
    owner_name,
    owner_problems,
    password_independent_fields,
    password_paths,
)
from fairlead.kinds.instances.fields import LAST_ATTEMPT, initial_status, project_name
from fairlead.registry import limits
from fairlead.registry.kind import AllowListField, Change, Column, Instance, Kind, Problem, Sensitivity
from fairlead.registry.names import dns_label_errors, dns_subdomain_errors
from fairlead.registry.schema import array, boolean, enum, integer, obj, string, timestamp, with_description

PHASES = ("", "Pending", "Ready", "Failed")
MAX_HISTORY, MAX_NOTES_LENGTH, MAX_HISTORY_PARAMETERS = 10, 16 * limits.KIB, 16 * limits.KIB
"""Entries of the history, characters of the notes, and characters of the parameters in one entry of the history."""

TARGETS = {
    "cluster": ("clusters", "cluster"),
    "spaceInstance": ("spaceinstances", "space"),
    "virtualClusterInstance": ("virtualclusterinstances", "virtual cluster"),
}
"""The fields of spec.target, of which exactly one is set, with the plural and the noun of what they name."""

_NAMESPACE = string(
    "Namespace to deploy to. It is created if it does not exist, and never deleted. Defaults to the App's default "
    "namespace.",
    max_length=63,
)

SPEC = owned_spec(
    "Desired state of the deployed App.",
    appRef=obj(
        "The App to deploy. The requester needs the verb `use` on it.",
        required=("name",),
        name=string("Name of the App. Immutable."),
        version=string(
            "Version of the App, with three components. A component may be `x` for the newest, as in `1.2.x`. Empty "
            "means the unversioned content of the App."
        ),
    ),
    parameters=with_description(
        PARAMETER_VALUES,
        "Values for the App's parameters, as YAML text: one `name: value` a line. For parameters of type `password` "
        "responses show `<hidden>`; sending `<hidden>` back keeps the stored value.",
    ),
    parameterSecrets=with_description(
        PARAMETER_PASSWORDS, "Values of the App's password parameters, by parameter name. Never returned."
    ),
    target=obj(
        "Where to deploy it: exactly one of the fields. Immutable.",
        cluster=obj(
            "A namespace of a connected cluster. The requester needs the verb `update` on the Cluster.",
            name=string("Name of the cluster."),
            namespace=_NAMESPACE,
        ),
        spaceInstance=obj(
            "A space of the same project. The requester needs the verb `update` on it.",
            name=string("Name of the space."),
        ),
        virtualClusterInstance=obj(
            "A virtual cluster of the same project. The requester needs the verb `update` on it.",
            name=string("Name of the virtual cluster."),
            namespace=with_description(
                _NAMESPACE,
                "Namespace in the virtual cluster. It is created if it does not exist, and never deleted. Defaults to "
                "the App's default namespace, then to `default`.",
            ),
        ),
    ),
    releaseName=string("Name of the Helm release. Defaults to the name of this object. Immutable.", max_length=53),
)

STATUS = obj(
    "Observed state of the deployed App. Written by the server.",
    phase=enum("Phase of the deployment. Empty means Pending.", *PHASES),
    reason=string("Machine-readable reason for the phase."),
    message=string("Human-readable reason for the phase.", max_length=limits.MESSAGE),
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
    release=obj(
        "The Helm release, as it was after the last deployment.",
        name=string("Name of the release."),
        cluster=string("Connected cluster that it is in. Empty for a virtual cluster."),
        namespace=string("Namespace of the release."),
        revision=integer("Revision of the release, which Helm counts."),
        chart=string("Name of the chart."),
        version=string("Version of the chart."),
        appVersion=string("Version of the software in the chart, as the chart states it."),
        deployedAt=timestamp("When this revision was deployed."),
        digest=string("Digest of the deployed chart, values and revision. Another one in the cluster is drift."),
    ),
    notes=string(
        f"The notes of the chart for its users, at most {MAX_NOTES_LENGTH} characters. Password parameters are "
        "redacted.",
        max_length=MAX_NOTES_LENGTH,
    ),
    drift=obj(
        "The last change of the release that was not made by this server.",
        time=timestamp("When it was noticed."),
        reason=string("Machine-readable reason."),
        message=string("What had changed.", max_length=limits.MESSAGE),
        count=integer("How often that has happened."),
    ),
    history=array(
        obj(
            revision=integer("Number of the deployment, which increases: that of Helm, unless it has begun again."),
            helmRevision=integer("Revision of the release, which Helm counts."),
            appVersion=string("Version of the App. Empty means its unversioned content."),
            chart=string("Name and version of the chart."),
            parameters=string(
                "The parameters, as YAML text with `<hidden>` for passwords.", max_length=MAX_HISTORY_PARAMETERS
            ),
            hasAllParameters=boolean("False if the parameters were too long to be kept here."),
            deployedAt=timestamp("When it was deployed."),
        ),
        f"The last {MAX_HISTORY} deployments, the newest first. `fairlead app rollback` reads it.",
        max_items=MAX_HISTORY,
    ),
    targetUID=string(
        "The metadata.uid of the target that it was deployed to. Another one of the same name is not used."
    ),
    namespaceInCluster=obj(
        "The namespace of the space or virtual cluster that it was deployed to, in a connected cluster. Empty for a "
        "target that is a cluster, and for a virtual cluster that is deployed by another tool.",
        cluster=string("Connected cluster of the namespace."),
        namespace=string("Name of the namespace."),
        uid=string("The uid in the labels of the namespace, which tells it from another one of that name."),
    ),
    deployHash=string("Hash of the deployed definition; a different hash means the deployment is outdated."),
    lastAttempt=LAST_ATTEMPT,
    deployedConfined=boolean("Whether it was ever deployed with permissions in its namespace only."),
    renderedSecrets=with_description(RENDERED_PASSWORDS, "Password values that were deployed. Never returned."),
)

FIELDS = {"spec": SPEC, "status": STATUS}


def default_app_instance(change: Change) -> None:
    """Sets the initial status and the release name. An update that omits what the server has chosen keeps it."""
    meta, spec = metadata(change.obj), change.spec
    if change.old is None and not change.obj.get("status"):
        change.obj["status"] = initial_status(meta)
    if not spec.get("releaseName"):
        before = get_path(change.old, "spec.releaseName")
        change.obj["spec"] = spec = {**spec, "releaseName": before or release_name(meta["name"])}
    for field in TARGETS:
        namespace = get_path(change.old, f"spec.target.{field}.namespace")
        place = get_path(spec, f"target.{field}")
        if namespace and place and not place.get("namespace"):
            target = {**spec["target"], field: {**place, "namespace": namespace}}
            change.obj["spec"] = spec = {**spec, "target": target}


def check_app_instance(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    name = get_path(spec, "appRef.name") or ""
    version = get_path(spec, "appRef.version") or ""
    if not name:
        yield Problem.required("spec.appRef.name", "name the App to deploy")
    else:
        yield from (Problem.invalid("spec.appRef.name", name, fault) for fault in dns_subdomain_errors(name))
    if version and parse_pattern(version) is None:
        reason = "must be three parts, each a number or x, such as 1.2.x"
        yield Problem.invalid("spec.appRef.version", version, reason)
    yield from _target_problems(spec.get("target") or {})
    release = spec.get("releaseName") or ""
    if release != get_path(change.old, "spec.releaseName"):
        yield from release_name_problems("spec.releaseName", release)


def _target_problems(target: Mapping[str, Any]) -> Iterable[Problem]:
    chosen = [field for field in TARGETS if target.get(field)]
    if not chosen:
        yield Problem.required("spec.target", f"set one of {', '.join(TARGETS)}")
    for other in chosen[1:]:
        yield Problem.forbidden(f"spec.target.{other}", f"spec.target.{chosen[0]} is set too; keep one of them")
    for field in chosen:
        path, place = f"spec.target.{field}", target[field]
        if not place.get("name"):
            yield Problem.required(f"{path}.name", "name the place to deploy to")
        if namespace := place.get("namespace"):
            yield from (Problem.invalid(f"{path}.namespace", namespace, fault) for fault in dns_label_errors(namespace))
    if get_path(target, "cluster.name") and not get_path(target, "cluster.namespace"):
        yield Problem.required("spec.target.cluster.namespace", "the App has no default namespace; choose one")


def describe_target(instance: Object) -> str:
    """Where it is deployed, for tables: `cluster/NAME`, `space/NAME` or `vcluster/NAME`."""
    labels = dict(zip(TARGETS, ("cluster", "space", "vcluster"), strict=True))
    target = get_path(instance, "spec.target") or {}
    return next((f"{labels[field]}/{target[field].get('name')}" for field in TARGETS if target.get(field)), "")


APP_INSTANCE = Kind(
    name="AppInstance",
    plural="appinstances",
    namespaced=True,
    fields=FIELDS,
    description="An App that is deployed into a space, a virtual cluster or a namespace of a connected cluster.",
    short_names=("ai",),
    categories=(CATEGORY, "all"),
    status_subresource=True,
    columns=(
        Column("Phase", "status.phase", description="Pending, Ready or Failed."),
        Column("App", "spec.appRef.name", description="App that is deployed."),
        Column("Version", "spec.appRef.version", description="Version of the App."),
        Column("Target", describe_target, description="Where it is deployed."),
        Column("Revision", "status.release.revision", type="integer", description="Revision of the Helm release."),
        Column("Project", project_name, description="Project of the instance.", wide=True),
        Column("Owner", owner_name, description="Owning user or team.", wide=True),
        Column("Chart", "status.release.chart", description="Chart that is deployed.", wide=True),
        Column("Chart Version", "status.release.version", description="Version of the chart.", wide=True),
        Column("Reason", "status.reason", description="Reason for the phase.", wide=True),
    ),
    selectable=(
        *("spec.appRef.name", "spec.owner.user", "spec.owner.team", "status.phase"),
        *(f"spec.target.{field}.name" for field in TARGETS),
    ),
    immutable=("spec.appRef.name", "spec.target", "spec.releaseName"),
    sensitive=password_paths(FIELDS),
    write_only=password_paths(FIELDS),
    safe_siblings=password_independent_fields(FIELDS),
    encrypted=("spec.parameters", "status.history.parameters", "status.notes"),
    redact_derived=redact_instance,
    redacted_paths=("status.notes", "status.drift"),
    has_access_entries=True,
    instance=Instance("app instance"),
    allow_list_fields=(AllowListField("spec.target.cluster.name", "cluster", "allowedClusters"),),
    has_protected_status=True,
    default=default_app_instance,
    check=check_app_instance,
    sensitivity=Sensitivity.NORMAL,
)
