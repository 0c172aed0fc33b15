"""SpaceTemplate, VirtualClusterTemplate and DevPodWorkspaceTemplate, and the trust level of a template.

The definitions (`*_TEMPLATE_SPEC`) are also part of instances: inline in `spec.template`, and rendered in the status.

A template is trusted if an administrator wrote it: its objects may then be created with the cluster's stored
credential. The annotation `service.sh/trusted` records this, and only `admission/templates.py` writes it. An instance
stores the level in `status.templateTrust` when it is rendered, because the template may change afterwards.
"""

from collections.abc import Callable, Iterable, Iterator

from fairlead.core.objects import Object, dig, metadata
from fairlead.domain.parameters import definition_problems
from fairlead.domain.template_resolution import newest, parse_version
from fairlead.kinds.fields import (
    ACCESS,
    CATEGORY,
    CHART,
    DESCRIPTION,
    DISPLAY_NAME,
    OWNER,
    PARAMETERS,
    PROJECT_SECRET_REF,
    TEMPLATE_REF,
    TEXT_MAP,
    owner_problems,
    passwords,
    unbound_from_passwords,
)
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import Schema, array, boolean, described, enum, free, mapping, obj, string

_METADATA = obj(
    "Labels and annotations of the created objects.",
    labels=described(TEXT_MAP, "Labels to set."),
    annotations=described(TEXT_MAP, "Annotations to set."),
)

_INSTANCE_TEMPLATE = obj("Metadata for the instance object.", metadata=_METADATA)

_INSTANCE_ACCESS = obj(
    "Permissions of users and teams in the instance.",
    defaultClusterRole=string("Cluster role of users that no rule applies to."),
    rules=array(
        obj(
            users=array(string(), "Users that the rule applies to. `*` means every user.", most=limits.MEMBERS),
            teams=array(string(), "Teams that the rule applies to.", most=limits.MEMBERS),
            clusterRole=string("Cluster role that is granted."),
        ),
        "Rules by user and team. All matching rules apply; the default applies if none matches.",
        most=limits.ACCESS_ENTRIES,
    ),
)

_APPS = array(
    obj(
        name=string("Name of the App."),
        namespace=string("Namespace to deploy it to. Empty means the App's default namespace."),
        releaseName=string("Name of the release. Empty means the name of the App."),
        version=string("Version of the App. Empty means its unversioned content."),
        parameters=string("Values for the App's parameters, as YAML text.", longest=limits.DOCUMENT),
    ),
    "Apps to deploy.",
    most=limits.DEPLOYMENTS,
)

_CHARTS = array(
    obj(
        **CHART,
        releaseName=string("Name of the release. Empty means the name of the chart."),
        releaseNamespace=string("Namespace to deploy to."),
        values=string("Values for the chart, as YAML text.", longest=limits.DOCUMENT),
        wait=boolean("Wait until all deployed objects are ready. Defaults to false."),
        timeout=string("Timeout of the wait, such as `5m0s`."),
    ),
    "Charts to deploy.",
    most=limits.DEPLOYMENTS,
)

_OBJECTS = string("Kubernetes objects to create, as YAML documents separated by `---`.", longest=limits.DOCUMENT)

SPACE_TEMPLATE_SPEC = obj(
    "A space: a namespace in a connected cluster.",
    metadata=_METADATA,
    instanceTemplate=_INSTANCE_TEMPLATE,
    objects=_OBJECTS,
    charts=_CHARTS,
    apps=_APPS,
    access=_INSTANCE_ACCESS,
)

VIRTUAL_CLUSTER_TEMPLATE_SPEC = obj(
    "A virtual cluster and the space that it runs in.",
    metadata=_METADATA,
    instanceTemplate=_INSTANCE_TEMPLATE,
    objects=_OBJECTS,
    charts=_CHARTS,
    apps=_APPS,
    access=_INSTANCE_ACCESS,
    helmRelease=obj(
        "Helm release of the virtual cluster.",
        chart=obj(
            "Chart of the virtual cluster.",
            name=CHART["name"],
            repo=CHART["repoURL"],
            version=CHART["version"],
            username=CHART["username"],
            password=string("Password for the repository.", format="password", longest=limits.CREDENTIAL),
        ),
        values=string("Values for the chart, as YAML text.", longest=limits.DOCUMENT),
    ),
    accessPoint=obj(
        "External access to the virtual cluster.",
        ingress=obj("Access through an ingress.", enabled=boolean("Create an ingress for it. Defaults to false.")),
    ),
    forwardToken=boolean("Forward the requester's token to the virtual cluster. Defaults to false."),
    spaceTemplate=obj(
        "The space that the virtual cluster runs in.",
        metadata=_METADATA,
        objects=_OBJECTS,
        charts=_CHARTS,
        apps=_APPS,
    ),
)

_VALUES = mapping(
    obj(
        value=string("The value.", longest=limits.ENVIRONMENT),
        valueFrom=obj(
            "Source of the value, instead of `value`.",
            projectSecretRef=PROJECT_SECRET_REF,
            sharedSecretRef=obj(
                "A key of a shared secret.",
                namespace=string("Namespace of the shared secret."),
                name=string("Name of the shared secret."),
                key=string("Key within the secret."),
            ),
        ),
    )
)


def _switch(what: str) -> Schema:
    return obj(f"Forwarding of {what} credentials.", disabled=boolean("Do not forward them. Defaults to false."))


WORKSPACE_TEMPLATE_SPEC = obj(
    "Definition of a workspace.",
    provider=obj(
        "Provider that runs the workspace.",
        required=("name",),
        name=string("Name of the provider."),
        options=described(_VALUES, "Options of the provider by name."),
        env=described(_VALUES, "Environment variables of the provider's commands."),
    ),
    spaceTemplate=described(SPACE_TEMPLATE_SPEC, "Space to create for the workspace."),
    spaceTemplateRef=described(TEMPLATE_REF, "Template of the space to create for the workspace."),
    virtualClusterTemplate=described(VIRTUAL_CLUSTER_TEMPLATE_SPEC, "Virtual cluster to create for the workspace."),
    virtualClusterTemplateRef=described(TEMPLATE_REF, "Template of the virtual cluster to create for the workspace."),
    workspaceEnv=described(_VALUES, "Environment variables of the workspace."),
    initEnv=described(_VALUES, "Environment variables during the setup of the workspace."),
    instanceTemplate=_INSTANCE_TEMPLATE,
    useProjectGitCredentials=boolean("Offer the project's Git credentials in the workspace. Defaults to false."),
    useProjectSSHCredentials=boolean("Offer the project's SSH keys in the workspace. Defaults to false."),
    gitCloneStrategy=enum(
        "Clone strategy for Git repositories. Empty means a full clone.", "", "blobless", "treeless", "shallow"
    ),
    credentialForwarding=obj(
        "Which of the user's own credentials the workspace may use.",
        docker=_switch("container registry"),
        git=_switch("Git"),
    ),
    preventWakeUpOnConnection=boolean("Do not wake up on SSH connections. Defaults to false."),
)


def template_kind(name: str, what: str, template: Schema) -> Kind:
    """Builds a template kind. `instances` is the plural of the instances, `template` the schema of the definition."""
    fields = {
        "spec": obj(
            f"Definition of {what} created from this template, and access to it.",
            displayName=DISPLAY_NAME,
            description=DESCRIPTION,
            owner=OWNER,
            access=ACCESS,
            template=described(template, "The unversioned definition, for instances without a version."),
            parameters=described(PARAMETERS, "The parameters of `template`."),
            versions=array(
                obj(
                    template=described(template, "The definition of this version."),
                    parameters=described(PARAMETERS, "The parameters of this version."),
                    version=string("Version with three components, such as `1.4.0`."),
                ),
                "Versions of the template, one entry for each.",
                most=limits.VERSIONS,
            ),
        ),
        "status": free("Not used. Not a subresource."),
    }
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=False,
        fields=fields,
        description=f"A template for {what}.",
        categories=(CATEGORY,),
        columns=(
            Column("Display Name", "spec.displayName", description="Human-readable name."),
            Column("Newest", _newest, description="Newest version, if it has versions."),
            Column("Parameters", _count_parameters, type="integer", description="Number of parameters."),
            Column("Description", "spec.description", description="Purpose of the template.", wide=True),
        ),
        selectable=("spec.owner.user",),
        secret=passwords(fields),
        hidden=passwords(fields),
        unbound=unbound_from_passwords(fields),
        shared=True,
        check=check,
    )


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    too_many = list(_crowd_problems(spec, (change.old or {}).get("spec") or {}))
    if too_many:
        yield from too_many
        return
    yield from definition_problems("spec.parameters", spec.get("parameters") or ())
    seen: set[tuple[int, ...]] = set()
    for index, entry in enumerate(spec.get("versions") or ()):
        path, text = f"spec.versions[{index}]", entry.get("version") or ""
        version = parse_version(text)
        if version is None:
            yield Problem.invalid(f"{path}.version", text, "must be three numbers separated by dots, such as 1.4.0")
        elif version in seen:
            yield Problem.duplicate(f"{path}.version", text)
        else:
            seen.add(version)
        yield from definition_problems(f"{path}.parameters", entry.get("parameters") or ())


def _crowd_problems(spec: Object, before: Object) -> Iterator[Problem]:
    """Limits the totals over all versions, because validating parameters and compiling regular expressions takes time.

    An object that was stored with more, before the limits existed, must not grow.
    """
    counts: tuple[tuple[Callable[[Object], int], int, str], ...] = (
        (lambda each: len(_definitions(each)), limits.DEFINITIONS, "parameters in all versions together"),
        (lambda each: len(_patterns(each)), limits.PATTERNS, "different regular expressions in all versions together"),
        (
            lambda each: sum(map(len, _patterns(each))),
            limits.PATTERN_CHARACTERS,
            "characters in the different regular expressions of all versions together",
        ),
    )
    for count_in, limit, what in counts:
        count = count_in(spec)
        if count > limit and count > count_in(before):
            yield Problem.too_many("spec.versions", count, limit, what)


def _definitions(spec: Object) -> list[Object]:
    return [each for part in (spec, *(spec.get("versions") or ())) for each in part.get("parameters") or ()]


def _patterns(spec: Object) -> set[str]:
    found = {each.get(field) or "" for each in _definitions(spec) for field in ("validation", "invalidation")}
    return found - {""}


def _newest(each: Object) -> str | None:
    return newest(entry.get("version") or "" for entry in dig(each, "spec.versions") or ())


def _count_parameters(each: Object) -> int:
    return len(dig(each, "spec.parameters") or ())


SPACE_TEMPLATE = template_kind("SpaceTemplate", "spaces", SPACE_TEMPLATE_SPEC)


VIRTUAL_CLUSTER_TEMPLATE = template_kind("VirtualClusterTemplate", "virtual clusters", VIRTUAL_CLUSTER_TEMPLATE_SPEC)


WORKSPACE_TEMPLATE = template_kind("DevPodWorkspaceTemplate", "workspaces", WORKSPACE_TEMPLATE_SPEC)


TRUST_ANNOTATION = "service.sh/trusted"
TRUE, FALSE = "true", "false"

TRUSTED, CONFINED, UNMARKED = "Trusted", "Confined", "Unmarked"
"""Written by an administrator; written by another user; stored before the annotation existed."""
LEVELS = (TRUSTED, CONFINED, UNMARKED)

DEFINITIONS = ("template", "parameters", "versions")
"""The fields of a template's spec that determine what is created in a cluster."""


def find_trust(instance: Object, template: Object | None) -> str:
    """The trust level of an instance's definition. An inline template is always `CONFINED`."""
    if template is None or not dig(instance, "spec.templateRef.name"):
        return CONFINED
    mark = (metadata(template).get("annotations") or {}).get(TRUST_ANNOTATION)
    if mark is None:
        return UNMARKED
    return TRUSTED if mark == TRUE else CONFINED
