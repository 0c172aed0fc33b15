"""Team: users who work together. Each team is a group to its members, and can have access keys of its own."""

from collections.abc import Iterable

from fairlead.core.objects import Object, dig
from fairlead.kinds.accesskey import OWNED_ACCESS_KEY
from fairlead.kinds.identity import IMAGE_PULL_SECRETS, ROLE_NAMES, is_disabled, name_it, username_problems
from fairlead.kinds.shared import ACCESS, CATEGORY, DESCRIPTION, DISPLAY_NAME, OWNER, owner_problems
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem
from fairlead.registry.schema import array, boolean, obj, string

SPEC = obj(
    "Who is in the team.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    owner=OWNER,
    access=ACCESS,
    username=string("Short name of the team. Defaults to the object's name and stays as it is."),
    users=array(string(), "Names of the users who are members.", most=limits.MEMBERS),
    groups=array(string(), "Groups of an identity provider whose users are members, too.", most=limits.GROUPS),
    clusterRoles=ROLE_NAMES,
    imagePullSecrets=IMAGE_PULL_SECRETS,
    disabled=boolean("Nobody is a member, and none of the team's keys work. They survive. Defaults to false."),
)

STATUS = obj(
    "What the server knows about the team.", members=array(string(), "The users who are members.", most=limits.ANSWERED)
)


def check(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    yield from username_problems(change.spec)


def _count_users(team: Object) -> int:
    return len(dig(team, "spec.users") or ())


TEAM = Kind(
    name="Team",
    plural="teams",
    namespaced=False,
    fields={"spec": SPEC, "status": STATUS},
    description="Users who work together and share permissions.",
    categories=(CATEGORY,),
    status_subresource=True,
    columns=(
        Column("Display Name", "spec.displayName", description="Name shown to people."),
        Column("Users", _count_users, type="integer", description="Number of users who are named as members."),
        Column("Disabled", is_disabled, type="boolean", description="Whether membership gives nothing for now."),
        Column("Username", "spec.username", description="Short name of the team.", wide=True),
    ),
    selectable=("spec.username",),
    immutable=("spec.username",),
    actions=(Action("accesskeys", ("get",), OWNED_ACCESS_KEY),),
    prepare=name_it,
    check=check,
)
