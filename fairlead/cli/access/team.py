"""`fairlead team`: manages teams and their members. `fairlead user create --team` also adds members."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import age_cell, build_object, cell, update_list
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, ObjectOutputFlag, flag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, print_note
from fairlead.cli.ui.resource_commands import (
    Deletion,
    NewObject,
    Resource,
    add_delete_command,
    add_list_command,
    add_show_command,
    create_command,
)
from fairlead.cli.ui.session import Session, open_session
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core.objects import Object, get_path, name_of

USERS, TEAMS = "users", "teams"


def _table_row(team: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(team),
        cell(team, "spec.displayName"),
        "disabled" if get_path(team, "spec.disabled") else "active",
        age_cell(team, now),
        _members_cell(team),
    )


def _members_cell(team: Object) -> str:
    """The members. The status has also those whom a rule of single sign-on, or a group of their provider, gives."""
    named = list(get_path(team, "spec.users") or ())
    others = [f"{each} (by rule)" for each in get_path(team, "status.members") or () if each not in named]
    return ", ".join((*named, *others)) or "-"


RESOURCE = Resource(
    plural=TEAMS,
    kind="Team",
    noun="team",
    columns=("NAME", "DISPLAY NAME", "STATE", "AGE", "MEMBERS"),
    row=_table_row,
    empty_message="no teams; create one with `fairlead team create`",
)

NameArgument = Annotated[str, typer.Argument(help="Name of the team.", autocompletion=complete_names(TEAMS))]
UserArgument = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=complete_names(USERS))]

group = create_group("Create, list, show and delete teams, and change their members.")


@dataclass(frozen=True, slots=True)
class TeamCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the team.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    member: Annotated[
        list[str] | None, flag("--member", help="User to add to it. Repeatable.", metavar="U", complete=USERS)
    ] = None
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@create_command(group, RESOURCE, TeamCreateOptions)
def build_team(session: Session, options: TeamCreateOptions) -> NewObject:
    """Create a team."""
    for user in options.member or ():
        require_exists(session.client, USERS, user)
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "users": options.member or None,
    }
    return NewObject(build_object(RESOURCE.kind, options.name, spec), f"created the team {options.name}")


add_list_command(group, RESOURCE)
add_show_command(group, RESOURCE)
add_delete_command(
    group,
    RESOURCE,
    Deletion("Delete a team. Its members lose what they may do through it.", question="Delete the team {name}?"),
)


@group.command("add")
def add(name: NameArgument, user: UserArgument, context: ContextFlag = None) -> None:
    """Add a user to a team, with effect from the next request."""
    with open_session(context) as session:
        require_exists(session.client, USERS, user)
        changed = add_member(session.client, name, user)
        print_note(
            f"{user} is now a member of the team {name}"
            if changed
            else f"{user} is already a member of the team {name}"
        )


@group.command("remove")
def remove(name: NameArgument, user: UserArgument, context: ContextFlag = None) -> None:
    """Remove a user from a team, with effect from the next request."""
    with open_session(context) as session:
        changed = update_list(
            session.client, TEAMS, name, "users", lambda users: [each for each in users if each != user]
        )
        if not changed:
            raise ClientError(f"{user} is not in spec.users of the team {name}; `fairlead team list` shows the members")
        print_note(f"{user} is no longer a member of the team {name}")


def require_exists(client: Client, plural: str, name: str) -> None:
    """Checks that an object exists, before a write. A mistyped name would become a member, or leave partial changes."""
    try:
        client.get(plural, name)
    except ApiStatusError as problem:
        if problem.code != 404:
            raise
        kind = plural.removesuffix("s")
        raise ClientError(
            f"{kind} {name!r} does not exist; check the name, or create it first with `fairlead {kind} create`"
        ) from None


def add_member(client: Client, team: str, user: str) -> bool:
    """Adds a user to a team. Returns False if it is a member already."""
    return update_list(client, TEAMS, team, "users", lambda users: users if user in users else [*users, user])
