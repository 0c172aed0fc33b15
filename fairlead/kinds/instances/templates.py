"""The definitions inside templates: of workspaces, spaces and virtual clusters.

Instances carry them too, written out in `spec.template` or rendered in their status, so that they live beside the kinds
and not in one of them.
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
    "Labels and annotations for what is made.",
    labels=described(TEXT_MAP, "Labels to set."),
    annotations=described(TEXT_MAP, "Annotations to set."),
)

_INSTANCE_TEMPLATE = obj("What the instance object itself gets.", metadata=_METADATA)

_INSTANCE_ACCESS = obj(
    "Which rights people have inside the instance.",
    defaultClusterRole=string("Cluster role of those that no rule is about."),
    rules=array(
        obj(
            users=array(string(), "Users that the rule is about. `*` means every user.", most=limits.MEMBERS),
            teams=array(string(), "Teams that the rule is about.", most=limits.MEMBERS),
            clusterRole=string("Cluster role that they get."),
        ),
        "Rules by user and team. All that match add up; the default holds when none does.",
        most=limits.ACCESS_ENTRIES,
    ),
)

_APPS = array(
    obj(
        name=string("Name of the App."),
        namespace=string("Namespace to deploy it to. Empty means the App's default namespace."),
        releaseName=string("Name of the release. Empty means the name of the App."),
        version=string("Version of the App. Empty means the App as it stands."),
        parameters=string("Values for the App's parameters, as YAML text.", longest=limits.DOCUMENT),
    ),
    "Apps to deploy into it.",
    most=limits.DEPLOYMENTS,
)

_CHARTS = array(
    obj(
        **CHART,
        releaseName=string("Name of the release. Empty means the name of the chart."),
        releaseNamespace=string("Namespace to deploy to."),
        values=string("Values for the chart, as YAML text.", longest=limits.DOCUMENT),
        wait=boolean("Wait until everything that was deployed is ready. Defaults to false."),
        timeout=string("How long to wait at most, such as `5m0s`."),
    ),
    "Charts to deploy into it.",
    most=limits.DEPLOYMENTS,
)

_OBJECTS = string("Kubernetes objects to create in it, as YAML text with `---` between them.", longest=limits.DOCUMENT)

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
        "How the virtual cluster itself is deployed.",
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
        "How the virtual cluster is reached from outside.",
        ingress=obj("Through an ingress.", enabled=boolean("Make an ingress for it. Defaults to false.")),
    ),
    forwardToken=boolean("Hand the caller's own token on to the virtual cluster. Defaults to false."),
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
        value=string("The value itself.", longest=limits.ENVIRONMENT),
        valueFrom=obj(
            "Where to read the value from instead.",
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
    "How a workspace is made.",
    provider=obj(
        "What runs the workspace.",
        required=("name",),
        name=string("Name of the provider."),
        options=described(_VALUES, "Options of the provider by name."),
        env=described(_VALUES, "Environment of the provider's own commands."),
    ),
    spaceTemplate=described(SPACE_TEMPLATE_SPEC, "Space to make for the workspace."),
    spaceTemplateRef=described(TEMPLATE_REF, "Space template to make a space for the workspace from."),
    virtualClusterTemplate=described(VIRTUAL_CLUSTER_TEMPLATE_SPEC, "Virtual cluster to make for the workspace."),
    virtualClusterTemplateRef=described(TEMPLATE_REF, "Virtual cluster template to make one for the workspace from."),
    workspaceEnv=described(_VALUES, "Environment inside the workspace."),
    initEnv=described(_VALUES, "Environment while the workspace is being set up."),
    instanceTemplate=_INSTANCE_TEMPLATE,
    useProjectGitCredentials=boolean("Offer the project's Git credentials in the workspace. Defaults to false."),
    useProjectSSHCredentials=boolean("Offer the project's SSH keys in the workspace. Defaults to false."),
    gitCloneStrategy=enum(
        "How much of a Git repository is fetched. Empty means all of it.", "", "blobless", "treeless", "shallow"
    ),
    credentialForwarding=obj(
        "Which of the user's own credentials the workspace may use.",
        docker=_switch("container registry"),
        git=_switch("Git"),
    ),
    preventWakeUpOnConnection=boolean("Stay asleep when somebody connects over SSH. Defaults to false."),
)


# DOC-MERGED kinds/template_kinds
# What the three kinds of templates have in common: one definition or versions of it, and parameters for either.


def template_kind(name: str, what: str, template: Schema) -> Kind:
    """The kind of templates for `what`, whose definitions look like `template`."""
    fields = {
        "spec": obj(
            f"How {what} made from this template look, and who may make them.",
            displayName=DISPLAY_NAME,
            description=DESCRIPTION,
            owner=OWNER,
            access=ACCESS,
            template=described(template, "The definition, for instances that name no version."),
            parameters=described(PARAMETERS, "The parameters of `template`."),
            versions=array(
                obj(
                    template=described(template, "The definition of this version."),
                    parameters=described(PARAMETERS, "The parameters of this version."),
                    version=string("Version in three parts, such as `1.4.0`."),
                ),
                "Versions of the template: one entry for each.",
                most=limits.VERSIONS,
            ),
        ),
        "status": free("Nothing so far. A part of the object like any other."),
    }
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=False,
        fields=fields,
        description=f"A template that {what} are made from.",
        categories=(CATEGORY,),
        columns=(
            Column("Display Name", "spec.displayName", description="Name shown to people."),
            Column("Newest", _newest, description="Newest version, if it has versions."),
            Column("Parameters", _count_parameters, type="integer", description="Number of parameters."),
            Column("Description", "spec.description", description="What it is for.", wide=True),
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
    crowded = list(_crowd_problems(spec, (change.old or {}).get("spec") or {}))
    if crowded:
        yield from crowded
        return
    yield from definition_problems("spec.parameters", spec.get("parameters") or ())
    seen: set[tuple[int, ...]] = set()
    for index, entry in enumerate(spec.get("versions") or ()):
        path, text = f"spec.versions[{index}]", entry.get("version") or ""
        version = parse_version(text)
        if version is None:
            yield Problem.invalid(
                f"{path}.version", text, "must be three numbers with dots between them, such as 1.4.0"
            )
        elif version in seen:
            yield Problem.duplicate(f"{path}.version", text)
        else:
            seen.add(version)
        yield from definition_problems(f"{path}.parameters", entry.get("parameters") or ())


def _crowd_problems(spec: Object, before: Object) -> Iterator[Problem]:
    """What all versions have together: to look at a parameter costs something, and to compile a regular expression for
    the first time costs milliseconds. What was stored with more before may not grow."""
    counts: tuple[tuple[Callable[[Object], int], int, str], ...] = (
        (lambda each: len(_definitions(each)), limits.DEFINITIONS, "parameters in all versions together"),
        (lambda each: len(_patterns(each)), limits.PATTERNS, "different regular expressions in all versions together"),
        (
            lambda each: sum(map(len, _patterns(each))),
            limits.PATTERN_CHARACTERS,
            "characters in the different regular expressions of all versions together",
        ),
    )
    for count_in, most, what in counts:
        count = count_in(spec)
        if count > most and count > count_in(before):
            yield Problem.too_many("spec.versions", count, most, what)


def _definitions(spec: Object) -> list[Object]:
    return [each for part in (spec, *(spec.get("versions") or ())) for each in part.get("parameters") or ()]


def _patterns(spec: Object) -> set[str]:
    found = {each.get(field) or "" for each in _definitions(spec) for field in ("validation", "invalidation")}
    return found - {""}


def _newest(each: Object) -> str | None:
    return newest(entry.get("version") or "" for entry in dig(each, "spec.versions") or ())


def _count_parameters(each: Object) -> int:
    return len(dig(each, "spec.parameters") or ())


# DOC-MERGED kinds/spacetemplate
# SpaceTemplate: what spaces are made from.


SPACE_TEMPLATE = template_kind("SpaceTemplate", "spaces", SPACE_TEMPLATE_SPEC)


# DOC-MERGED kinds/virtualclustertemplate
# VirtualClusterTemplate: what virtual clusters are made from.


VIRTUAL_CLUSTER_TEMPLATE = template_kind("VirtualClusterTemplate", "virtual clusters", VIRTUAL_CLUSTER_TEMPLATE_SPEC)


# DOC-MERGED kinds/workspacetemplate
# DevPodWorkspaceTemplate: what workspaces are made from.


WORKSPACE_TEMPLATE = template_kind("DevPodWorkspaceTemplate", "workspaces", WORKSPACE_TEMPLATE_SPEC)


# DOC-MERGED kinds/template_trust
# Whose a template is: an administrator's, or somebody's who could otherwise not do in a cluster what it asks for.
#
# The annotation `service.sh/trusted` says so; `admission/templates.py` is the only writer of it. What an instance
# was rendered from is remembered in its status (`templateTrust`), because the template may change afterwards. Pure.


TRUST_ANNOTATION = "service.sh/trusted"
TRUE, FALSE = "true", "false"

TRUSTED, CONFINED, UNMARKED = "Trusted", "Confined", "Unmarked"
"""An administrator's; anybody's; stored before there was a mark, so that nobody can tell."""
LEVELS = (TRUSTED, CONFINED, UNMARKED)

DEFINITIONS = ("template", "parameters", "versions")
"""The fields of a template's spec that decide what is made in a cluster."""


def find_trust(instance: Object, template: Object | None) -> str:
    """How far what the instance asks for is to be trusted. What is written out in place never is."""
    if template is None or not dig(instance, "spec.templateRef.name"):
        return CONFINED
    mark = (metadata(template).get("annotations") or {}).get(TRUST_ANNOTATION)
    if mark is None:
        return UNMARKED
    return TRUSTED if mark == TRUE else CONFINED
