"""Project: groups users and teams, their instances, and the clusters and templates that they may use.

Each project has a namespace `<prefix><name>`; the prefix is a setting and defaults to `service-p-`. It limits the
length of names and is shown in tables, so the kind is built by a function of it. The read-only subresources of a
project (members, clusters, runners, templates, usage) are not persisted; `subresources/projects.py` implements them.

ProjectMigrateVirtualClusterInstance: moves a virtual cluster instance to another project.

`POST projects/<target>/migratevirtualclusterinstance`. Not persisted; `subresources/migration.py` implements it.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from fairlead.core.objects import Object, get_path, name_of
from fairlead.kinds.answered import read_only_kind
from fairlead.kinds.fields import (
    CATEGORY,
    CONDITIONS,
    OBSERVED_GENERATION,
    STRING_MAP,
    condition_status,
    owned_spec,
    owner_problems,
)
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.names import MAX_LABEL_LENGTH
from fairlead.registry.schema import (
    Schema,
    array,
    boolean,
    enum,
    integer,
    mapping,
    obj,
    open_object,
    string,
    with_description,
    without_effect,
)

MIGRATE_SUBRESOURCE = "migratevirtualclusterinstance"
"""Name of the subresource."""
SOURCE_FIELD = "sourceVirtualClusterInstance"
_REQUIRED_FIELDS = {
    "name": "set the virtual cluster to move",
    "namespace": "set the namespace of the project that it is in",
}


def _check(change: Change) -> Iterable[Problem]:
    """Requires all fields, and rejects empty strings."""
    source = change.obj.get(SOURCE_FIELD)
    if source is None:
        yield Problem.required(SOURCE_FIELD, "set the name and namespace of the virtual cluster to move")
        return
    for field, reason in _REQUIRED_FIELDS.items():
        if not source.get(field):
            yield Problem.required(f"{SOURCE_FIELD}.{field}", reason)


MAX_LISTED_MOVES = 100
"""How many of the objects that move are listed in the response."""

MIGRATION = Kind(
    name="ProjectMigrateVirtualClusterInstance",
    plural="projectmigratevirtualclusterinstances",
    namespaced=False,
    fields={
        SOURCE_FIELD: obj(
            "The virtual cluster to move.",
            name=string("Name of the virtual cluster instance."),
            namespace=string("Its current namespace: that of the source project."),
        ),
        "result": obj(
            "In responses only: what moves, or would move.",
            moves=array(
                obj(kind=string("Kind of the object."), name=string("Name of the object.")),
                f"The objects, the virtual cluster first, at most {MAX_LISTED_MOVES}.",
                max_items=MAX_LISTED_MOVES,
            ),
            count=integer("How many objects these are."),
            changes=array(string("One sentence."), "What is different after the move."),
        ),
    },
    description="Moves a virtual cluster instance into this project. Not persisted.",
    verbs=("create",),
    persisted=False,
    check=_check,
    sensitivity=Sensitivity.NORMAL,
)


PRINCIPAL_INFO = obj(
    "The user or team.",
    required=(),
    name=string("Name of the object."),
    displayName=string("Human-readable name."),
    icon=string("URL of an image, or the image itself as a data URL.", max_length=limits.ICON),
    username=string("Name for signing in."),
    email=string("Email address."),
    subject=string("The user name that authorization uses."),
)


def _subresource_kind(name: str, description: str, **fields: Schema) -> Kind:
    """A response whose name is a plural already."""
    return replace(read_only_kind(name, description, fields), plural=name.lower())


_RUNNERS = array(
    open_object(),
    "Runners that the project's workspaces may run on, as Runner objects.",
    max_items=limits.SERVER_WRITTEN_ITEMS,
)
_TEMPLATES = array(open_object(), max_items=limits.SERVER_WRITTEN_ITEMS)

PROJECT_MEMBERS = _subresource_kind(
    "ProjectMembers",
    "The members of a project: spec.members and the owner, including the members of teams.",
    users=array(
        obj(info=PRINCIPAL_INFO), "The users, direct members and those of teams.", max_items=limits.SERVER_WRITTEN_ITEMS
    ),
    teams=array(obj(info=PRINCIPAL_INFO), "The teams.", max_items=limits.SERVER_WRITTEN_ITEMS),
)

PROJECT_CLUSTERS = _subresource_kind(
    "ProjectClusters",
    "The connected clusters and runners that a project may use.",
    clusters=array(
        open_object(),
        "Connected clusters that the project's instances may run in, as Cluster objects.",
        max_items=limits.SERVER_WRITTEN_ITEMS,
    ),
    runners=_RUNNERS,
)

PROJECT_RUNNERS = _subresource_kind("ProjectRunners", "The runners that a project may use.", runners=_RUNNERS)

PROJECT_TEMPLATES = _subresource_kind(
    "ProjectTemplates",
    "The templates that a project may use.",
    defaultVirtualClusterTemplate=string("Name of the default template."),
    virtualClusterTemplates=with_description(
        _TEMPLATES, "Templates for virtual clusters, as VirtualClusterTemplate objects."
    ),
    defaultSpaceTemplate=string("Name of the default template."),
    spaceTemplates=with_description(_TEMPLATES, "Templates for spaces, as SpaceTemplate objects."),
    defaultDevPodWorkspaceTemplate=string("Name of the default template."),
    devPodWorkspaceTemplates=with_description(
        _TEMPLATES, "Templates for workspaces, as DevPodWorkspaceTemplate objects."
    ),
    defaultDevPodEnvironmentTemplate=string("Name of the default environment template."),
    devPodEnvironmentTemplates=with_description(
        _TEMPLATES, "Environments for workspaces, as DevPodEnvironmentTemplate objects."
    ),
    defaultDevPodWorkspacePreset=string("Name of the default preset."),
    devPodWorkspacePresets=with_description(
        _TEMPLATES, "What workspaces can start from, as DevPodWorkspacePreset objects."
    ),
)


def _stored(description: str, user: Schema | None = None) -> Schema:
    objects = integer("Number of objects, of all kinds.")
    size = integer("Their total size, as stored.")
    if user is None:
        return obj(description, objects=objects, bytes=size)
    return obj(description, user=user, objects=objects, bytes=size)


PROJECT_USAGE = _subresource_kind(
    "ProjectUsage",
    "What a project uses of its quotas, and what is stored in its namespace.",
    quotas=open_object("The quotas of the project and their usage, as in its status."),
    storage=obj(
        "What is stored in the namespace of the project.",
        limit=_stored("How much users can store in the namespace."),
        used=_stored("What is stored there."),
        users=array(
            _stored("One of them.", string("Name of the user, or of the namespace of service accounts.")),
            "What counts for each user there, the largest first.",
            max_items=limits.SERVER_WRITTEN_ITEMS,
        ),
    ),
    requester=obj(
        "What the requester stores, in all namespaces and of cluster-scoped kinds.",
        user=string("The name that it counts under."),
        limit=_stored("How much one user can store."),
        used=_stored("What counts for the requester."),
    ),
)

NAMESPACE_PREFIX = "service-p-"
"""The default of the setting `namespace_prefix`."""

_NAME_REF = obj(required=("name",), name=string("Name of the object. `*` means all of them."))

SPEC = owned_spec(
    "Members of the project, and what they may use.",
    members=array(
        obj(
            required=("kind", "name"),
            kind=enum("Whether the member is a user or a team.", "User", "Team"),
            group=without_effect(
                string("API group of that kind."), "has no effect: members are of the management group"
            ),
            name=string("Name of the user or team. `*` means all of them."),
            clusterRole=string("Role of the member in the project: admin, user, viewer or a custom project role."),
        ),
        "The users and teams of the project, with their roles.",
        max_items=limits.MEMBERS,
    ),
    allowedClusters=array(
        _NAME_REF, "Connected clusters that the project's instances may run in.", max_items=limits.ALLOWED_OBJECTS
    ),
    allowedRunners=array(
        _NAME_REF, "Runners that the project's workspaces may run on.", max_items=limits.ALLOWED_OBJECTS
    ),
    allowedTemplates=array(
        obj(
            required=("name",),
            kind=string("Kind of the template or preset, such as `DevPodWorkspaceTemplate`."),
            group=string("API group of that kind. Empty means the management group."),
            name=string("Name of the template. `*` means all of this kind."),
            isDefault=boolean("Default template. At most one of each kind can be the default. Defaults to false."),
        ),
        "Templates and presets that the project's instances may be created from.",
        max_items=limits.ALLOWED_OBJECTS,
    ),
    requireTemplate=obj(
        "Whether instances must be created from a template.",
        disabled=boolean("Also allow instances with an inline `template`. Defaults to false."),
    ),
    requirePreset=obj(
        "Workspaces must be created from a preset: set it to `{}`. Without the field, a preset is not required.",
        disabled=boolean("Also allow workspaces without a preset. Defaults to false."),
    ),
    quotas=obj(
        "Limits for objects of the project. Lowering a quota deletes nothing.",
        project=with_description(
            STRING_MAP,
            "Limits for the whole project. Keys are `spaceinstances`, `virtualclusterinstances` and "
            "`devpodworkspaceinstances`; with the suffix `.active`, such as `spaceinstances.active`, those that are "
            'sleeping do not count. Values are quantities, such as `"10"`.',
        ),
        user=with_description(
            STRING_MAP,
            "Limits for each user and each team, with the same keys. Usage of a team does not count for its members.",
        ),
    ),
    namespacePattern=obj(
        "How the namespaces of instances are named in connected clusters.",
        space=string("Pattern for spaces."),
        virtualCluster=string("Pattern for virtual clusters."),
    ),
    argoCD=without_effect(open_object("Settings of the Argo CD integration.")),
    vault=without_effect(open_object("Settings of the Vault integration.")),
    rancher=without_effect(open_object("Settings of the Rancher integration.")),
    workspace=without_effect(
        open_object("Settings for the workspaces of the project."),
        "has no effect; put settings into the templates that the project allows",
    ),
)

_USAGE = mapping(with_description(STRING_MAP, "Usage by resource."), max_properties=limits.SERVER_WRITTEN_ITEMS)

STATUS = obj(
    "Observed state of the project. Written by the server.",
    conditions=CONDITIONS,
    observedGeneration=OBSERVED_GENERATION,
    quotas=obj(
        "Usage of the quotas.",
        project=obj(
            "Usage of the whole project.",
            limit=with_description(STRING_MAP, "Enforced limits."),
            used=with_description(STRING_MAP, "Current usage."),
            clusters=with_description(_USAGE, "Usage in each connected cluster."),
        ),
        user=obj(
            "Usage of each user and team.",
            limit=with_description(STRING_MAP, "Enforced limits for each of them."),
            used=obj(
                "Current usage of each of them.",
                users=with_description(_USAGE, "Usage by user."),
                teams=with_description(_USAGE, "Usage by team."),
            ),
            clusters=with_description(_USAGE, "Usage in each connected cluster."),
        ),
    ),
)

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[MGTPE]|[KMGTPE]i)?", re.ASCII)


def _quota_problems(spec: Object) -> Iterable[Problem]:
    """Reports limits that are not quantities."""
    for subject in ("project", "user"):
        for key, value in (get_path(spec, f"quotas.{subject}") or {}).items():
            if not _QUANTITY.fullmatch(value):
                reason = "must be a quantity such as 10, 500m or 2Gi"
                yield Problem.invalid(f"spec.quotas.{subject}[{key}]", value, reason)


def _default_template_problems(spec: Object) -> Iterable[Problem]:
    """Reports more than one default template of a kind."""
    seen: set[str] = set()
    for index, template in enumerate(spec.get("allowedTemplates") or ()):
        kind = template.get("kind") or ""
        if template.get("isDefault") and kind in seen:
            reason = f"another {kind or 'template'} is the default already; keep one"
            yield Problem.invalid(f"spec.allowedTemplates[{index}].isDefault", True, reason)
        elif template.get("isDefault"):
            seen.add(kind)


def project_kind(prefix: str = NAMESPACE_PREFIX) -> Kind:
    """Builds the Project kind for the given prefix of project namespaces."""
    limit = MAX_LABEL_LENGTH - len(prefix)

    def check(change: Change) -> Iterable[Problem]:
        name = name_of(change.obj)
        if len(name) > limit:
            reason = (
                f"must be no more than {limit} characters, because the project's namespace is called "
                f"{prefix}<name> and namespace names have at most {MAX_LABEL_LENGTH} characters; choose a shorter name"
            )
            yield Problem.invalid("metadata.name", name, reason)
        yield from owner_problems(change.spec)
        yield from _quota_problems(change.spec)
        yield from _default_template_problems(change.spec)

    return Kind(
        name="Project",
        plural="projects",
        namespaced=False,
        fields={"spec": SPEC, "status": STATUS},
        description="A project: its members, their instances, and the clusters and templates that they may use.",
        categories=(CATEGORY,),
        status_subresource=True,
        name_is_label=True,
        columns=(
            Column("Namespace", lambda each: prefix + name_of(each), description="Namespace of the project."),
            Column("Ready", lambda each: condition_status(each, "Ready"), description="Whether it can be used."),
            Column("Members", _count_members, type="integer", description="Number of users and teams in spec.members."),
            Column("Display Name", "spec.displayName", description="Human-readable name.", wide=True),
        ),
        has_access_entries=True,
        is_in_cli_scope=True,
        selectable=("spec.owner.user",),
        actions=(
            Action("members", ("get",), PROJECT_MEMBERS),
            Action("clusters", ("get",), PROJECT_CLUSTERS),
            Action("runners", ("get",), PROJECT_RUNNERS),
            Action("templates", ("get",), PROJECT_TEMPLATES),
            Action("usage", ("get",), PROJECT_USAGE),
            Action(MIGRATE_SUBRESOURCE, ("create",), MIGRATION),
        ),
        check=check,
        sensitivity=Sensitivity.NORMAL,
    )


def _count_members(each: Object) -> int:
    return len(get_path(each, "spec.members") or ())


PROJECT = project_kind()
