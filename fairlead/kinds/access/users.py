"""User: somebody who signs in. Groups, teams and roles hang on users, and access keys stand for them.

What a user may do comes from elsewhere: `spec.groups` and `spec.clusterRoles` are written by administrators only
(`admission/users.py`), teams name their members, roles are bound to users and groups.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object, dig
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.principal_fields import (
    IMAGE_PULL_SECRETS,
    ROLE_NAMES,
    is_disabled,
    name_it,
    secret_ref,
    username_problems,
)
from fairlead.kinds.fields import ACCESS, CATEGORY, DESCRIPTION, DISPLAY_NAME, OWNER, owner_problems
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem
from fairlead.registry.schema import array, boolean, free, integer, obj, string

_ICON = string(
    "Address of a picture, or the picture itself as a data URL. The console shows https URLs only.",
    longest=limits.PICTURE,
)

USER_SPEC = obj(
    "Who the user is and which groups it is in.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    owner=OWNER,
    access=ACCESS,
    username=string("Name to sign in with. Defaults to the object's name and stays as it is."),
    email=string("Address of the user."),
    subject=string("What an identity provider calls the user."),
    icon=_ICON,
    groups=array(
        string(),
        "Groups that the user is in beside those of its teams. Only administrators set them.",
        most=limits.GROUPS,
    ),
    ssoGroups=array(
        string(),
        "Groups that an identity provider has the user in. Teams can take their members by them.",
        most=limits.GROUPS,
    ),
    clusterRoles=ROLE_NAMES,
    passwordRef=secret_ref("Where the hash of the password is kept. Set through the profile."),
    codesRef=secret_ref("Where the codes are kept that the user can sign in with once each."),
    imagePullSecrets=IMAGE_PULL_SECRETS,
    tokenGeneration=integer("Raising it makes every direct token of the user invalid. It never falls.", minimum=0),
    disabled=boolean("The user cannot sign in, and none of its keys work. They survive. Defaults to false."),
)

USER_STATUS = obj(
    "What the server knows about the user.",
    teams=array(
        string(), "The teams that the user is in, by name or through an identity provider.", most=limits.ANSWERED
    ),
)

PROFILE = Kind(
    name="UserProfile",
    plural="userprofiles",
    namespaced=False,
    fields={
        "displayName": DISPLAY_NAME,
        "username": string("Name to sign in with. Shown, and cannot be changed."),
        "email": string("Address of the user."),
        "icon": _ICON,
        "custom": free("Settings that the console keeps for the user."),
        "password": string("A new password.", format="password"),
        "currentPassword": string("The password until now. Needed to set a new one for oneself.", format="password"),
    },
    description="What users can see and change of themselves.",
    verbs=("create", "get"),
    secret=("password", "currentPassword"),
    hidden=("password", "currentPassword"),
    stored=False,
    builtin=True,
)
"""What `users/<name>/profile` takes and answers with."""


def check_user(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    yield from username_problems(change.spec)
    before, after = dig(change.old or {}, "spec.tokenGeneration") or 0, change.spec.get("tokenGeneration") or 0
    if after < before:
        why = f"must not fall below {before}: direct tokens that were made invalid would work again"
        yield Problem.invalid("spec.tokenGeneration", after, why)


def _groups(user: Object) -> str:
    return ",".join(dig(user, "spec.groups") or ())


USER = Kind(
    name="User",
    plural="users",
    namespaced=False,
    fields={"spec": USER_SPEC, "status": USER_STATUS},
    description="Somebody who signs in.",
    categories=(CATEGORY,),
    status_subresource=True,
    columns=(
        Column("Display Name", "spec.displayName", description="Name shown to people."),
        Column("Email", "spec.email", description="Address of the user."),
        Column("Disabled", is_disabled, type="boolean", description="Whether the user is kept from signing in."),
        Column("Username", "spec.username", description="Name to sign in with.", wide=True),
        Column("Groups", _groups, description="Groups beside those of the teams.", wide=True),
    ),
    selectable=("spec.username", "spec.email", "spec.subject"),
    immutable=("spec.username",),
    actions=(Action("accesskeys", ("get",), OWNED_ACCESS_KEY), Action("profile", ("create", "get"), PROFILE)),
    prepare=name_it,
    check=check_user,
)


# DOC-MERGED kinds/team
# Team: users who work together. Each team is a group to its members, and can have access keys of its own.


TEAM_SPEC = obj(
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

TEAM_STATUS = obj(
    "What the server knows about the team.", members=array(string(), "The users who are members.", most=limits.ANSWERED)
)


def check_team(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    yield from username_problems(change.spec)


def _count_users(team: Object) -> int:
    return len(dig(team, "spec.users") or ())


TEAM = Kind(
    name="Team",
    plural="teams",
    namespaced=False,
    fields={"spec": TEAM_SPEC, "status": TEAM_STATUS},
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
    check=check_team,
)
