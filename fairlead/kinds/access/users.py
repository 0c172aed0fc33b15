"""User and Team, with the user profile.

A user's permissions come from role bindings to the user, its groups and its teams. Only administrators can write
`spec.groups` and `spec.clusterRoles` (`admission/users.py`). A team is a group to its members and can have access keys.
"""

from collections.abc import Iterable

from fairlead.core.objects import Object, get_path
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.principal_fields import (
    DESCRIPTIVE_FIELDS,
    IMAGE_PULL_SECRETS,
    ROLE_TEMPLATE_REFS,
    default_username,
    is_disabled,
    secret_ref,
    username_problems,
)
from fairlead.kinds.fields import CATEGORY, DISPLAY_NAME, owner_problems
from fairlead.registry import limits
from fairlead.registry.kind import Action, Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import array, boolean, integer, mapping, obj, open_object, string, without_effect

_ICON = string(
    "URL of an image, or the image itself as a data URL. The console shows https URLs only.",
    max_length=limits.ICON,
)

USER_SPEC = obj(
    "Identity and groups of the user.",
    **DESCRIPTIVE_FIELDS,
    username=string("Name for signing in. Defaults to the object's name. Immutable."),
    email=string("Email address of the user."),
    subject=string("Subject of the user at an identity provider. Identifies the user together with issuer."),
    issuer=string(
        "Issuer URL of the identity provider. The user signs in there, and only there, with this subject.",
        max_length=limits.URL,
    ),
    icon=_ICON,
    groups=array(
        string(),
        "Groups of the user in addition to those of its teams. Only administrators can set them.",
        max_items=limits.GROUPS,
    ),
    ssoGroups=array(
        string(),
        "Groups of the user at an identity provider, as connector:group. A team can include their users as members.",
        max_items=limits.GROUPS,
    ),
    ssoIdentity=obj(
        "What the identity provider says about the user, for the rules in the Config. Written at each sign-in.",
        email=string("Email address at the provider."),
        emailVerified=boolean("Whether the provider has verified the email address. Defaults to false."),
        claims=mapping(array(string(), max_items=limits.GROUPS), "Claims that rules compare, with their values."),
    ),
    clusterRoles=ROLE_TEMPLATE_REFS,
    passwordRef=secret_ref("Secret with the password hash. Set through the profile."),
    codesRef=without_effect(secret_ref("Secret with the user's one-time login codes.")),
    imagePullSecrets=IMAGE_PULL_SECRETS,
    tokenGeneration=integer("Raising it invalidates all direct tokens of the user. It cannot be lowered.", minimum=0),
    disabled=boolean("The user cannot sign in, and its keys are rejected but not deleted. Defaults to false."),
)

USER_STATUS = obj(
    "Observed state of the user. Written by the server.",
    teams=array(
        string(), "Teams of the user, by name or through an identity provider.", max_items=limits.SERVER_WRITTEN_ITEMS
    ),
)

PROFILE = Kind(
    name="UserProfile",
    plural="userprofiles",
    namespaced=False,
    fields={
        "displayName": DISPLAY_NAME,
        "username": string("Name for signing in. Read-only."),
        "email": string("Email address of the user."),
        "icon": _ICON,
        "custom": open_object(
            "Settings that clients store for the user. The server reads `dotfiles`: the URL of a repository, which is "
            "installed in the workspaces of the user."
        ),
        "password": string("A new password.", format="password"),
        "currentPassword": string("The current password. Required to change one's own password.", format="password"),
    },
    description="The part of a user that the user can read and change.",
    verbs=("create", "get"),
    sensitive=("password", "currentPassword"),
    write_only=("password", "currentPassword"),
    persisted=False,
    builtin=True,
    sensitivity=Sensitivity.NORMAL,
)
"""Request and response body of `users/<name>/profile`."""


def check_user(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    yield from username_problems(change.spec)
    before = get_path(change.old or {}, "spec.tokenGeneration") or 0
    after = change.spec.get("tokenGeneration") or 0
    if after < before:
        reason = f"must not be lower than {before}: invalidated direct tokens would become valid again"
        yield Problem.invalid("spec.tokenGeneration", after, reason)


def _groups(user: Object) -> str:
    return ",".join(get_path(user, "spec.groups") or ())


USER = Kind(
    name="User",
    plural="users",
    namespaced=False,
    fields={"spec": USER_SPEC, "status": USER_STATUS},
    description="A user of the platform.",
    categories=(CATEGORY,),
    status_subresource=True,
    columns=(
        Column("Display Name", "spec.displayName", description="Human-readable name."),
        Column("Email", "spec.email", description="Email address of the user."),
        Column("Disabled", is_disabled, type="boolean", description="Whether the user is disabled."),
        Column("Username", "spec.username", description="Name for signing in.", wide=True),
        Column("Groups", _groups, description="Groups in addition to those of the teams.", wide=True),
    ),
    selectable=("spec.username", "spec.email", "spec.subject"),
    immutable=("spec.username",),
    is_in_cli_scope=True,
    actions=(Action("accesskeys", ("get",), OWNED_ACCESS_KEY), Action("profile", ("create", "get"), PROFILE)),
    default=default_username,
    check=check_user,
    sensitivity=Sensitivity.NORMAL,
)


TEAM_SPEC = obj(
    "Members of the team.",
    **DESCRIPTIVE_FIELDS,
    username=string("Short name of the team. Defaults to the object's name. Immutable."),
    users=array(string(), "Names of the users who are members.", max_items=limits.MEMBERS),
    groups=array(string(), "Groups of an identity provider whose users are members too.", max_items=limits.GROUPS),
    clusterRoles=ROLE_TEMPLATE_REFS,
    imagePullSecrets=IMAGE_PULL_SECRETS,
    disabled=boolean("Membership has no effect, and the team's keys are rejected but not deleted. Defaults to false."),
)

TEAM_STATUS = obj(
    "Observed state of the team. Written by the server.",
    members=array(string(), "Users who are members.", max_items=limits.SERVER_WRITTEN_ITEMS),
)


def check_team(change: Change) -> Iterable[Problem]:
    yield from owner_problems(change.spec)
    yield from username_problems(change.spec)


def _count_users(team: Object) -> int:
    """Those in spec.users, and those who are members by a rule or a group of their provider."""
    return len({*(get_path(team, "spec.users") or ()), *(get_path(team, "status.members") or ())})


TEAM = Kind(
    name="Team",
    plural="teams",
    namespaced=False,
    fields={"spec": TEAM_SPEC, "status": TEAM_STATUS},
    description="Users who work together and share permissions.",
    categories=(CATEGORY,),
    status_subresource=True,
    columns=(
        Column("Display Name", "spec.displayName", description="Human-readable name."),
        Column("Users", _count_users, type="integer", description="Number of members."),
        Column("Disabled", is_disabled, type="boolean", description="Whether the team is disabled."),
        Column("Username", "spec.username", description="Short name of the team.", wide=True),
    ),
    selectable=("spec.username",),
    immutable=("spec.username",),
    is_in_cli_scope=True,
    actions=(Action("accesskeys", ("get",), OWNED_ACCESS_KEY),),
    default=default_username,
    check=check_team,
    sensitivity=Sensitivity.NORMAL,
)
