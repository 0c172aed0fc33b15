"""What members read of a project beside the project itself: its members, and the clusters, runners and templates that
its instances may use. `server/project_parts.py` answers them; nothing of it is stored.
"""

from fairlead.registry import limits
from fairlead.registry.kind import Kind
from fairlead.registry.schema import Schema, array, described, free, obj, string

INFO = obj(
    "Who that is.",
    required=(),
    name=string("Name of the object."),
    displayName=string("Name shown to people."),
    icon=string("Address of a picture, or the picture itself.", longest=limits.PICTURE),
    username=string("Name that they sign in with."),
    email=string("Their address."),
    subject=string("The name that permissions go by."),
)


def _part(name: str, description: str, **fields: Schema) -> Kind:
    return Kind(
        name=name,
        plural=f"{name.lower()}",
        namespaced=False,
        fields=fields,
        description=description,
        verbs=("get",),
        stored=False,
    )


_RUNNERS = array(free(), "Runners that the project's workspaces may run on, as Runner objects.", most=limits.ANSWERED)
_TEMPLATES = array(free(), most=limits.ANSWERED)

PROJECT_MEMBERS = _part(
    "ProjectMembers",
    "Who is in a project: its members and owner, with the members of its teams.",
    users=array(obj(info=INFO), "The users, by themselves or by a team.", most=limits.ANSWERED),
    teams=array(obj(info=INFO), "The teams.", most=limits.ANSWERED),
)

PROJECT_CLUSTERS = _part(
    "ProjectClusters",
    "The connected clusters and runners that a project may use.",
    clusters=array(
        free(), "Connected clusters that the project's instances may run in, as Cluster objects.", most=limits.ANSWERED
    ),
    runners=_RUNNERS,
)

PROJECT_RUNNERS = _part("ProjectRunners", "The runners that a project may use.", runners=_RUNNERS)

PROJECT_TEMPLATES = _part(
    "ProjectTemplates",
    "The templates that a project may use.",
    defaultVirtualClusterTemplate=string("Name of the template that is chosen when nobody chooses."),
    virtualClusterTemplates=described(_TEMPLATES, "Templates for virtual clusters, as VirtualClusterTemplate objects."),
    defaultSpaceTemplate=string("Name of the template that is chosen when nobody chooses."),
    spaceTemplates=described(_TEMPLATES, "Templates for spaces, as SpaceTemplate objects."),
    defaultDevPodWorkspaceTemplate=string("Name of the template that is chosen when nobody chooses."),
    devPodWorkspaceTemplates=described(_TEMPLATES, "Templates for workspaces, as DevPodWorkspaceTemplate objects."),
)
