"""`fairlead team`: manages teams and their members. `fairlead user create --team` also adds members."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import body_of, joined, print_made, text
from fairlead.cli.ui.durations import since
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, NamedOutputFlag, takes
from fairlead.cli.ui.list import Listing, Shown, show_all
from fairlead.cli.ui.output import NamedOutput, note
from fairlead.cli.ui.session import connected
from fairlead.client import ApiProblem, Client, ClientError
from fairlead.core.objects import Object, dig, name_of

USERS, TEAMS = "users", "teams"
TRIES = 5

NameArgument = Annotated[str, typer.Argument(help="Name of the team.", autocompletion=names_of(TEAMS))]
UserArgument = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=names_of(USERS))]

group = typer.Typer(help="Create and list teams, and change their members.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the team.")]
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    member: Annotated[
        list[str] | None,
        typer.Option(
            "--member",
            help="User to add to it. Repeatable.",
            metavar="U",
            show_default=False,
            autocompletion=names_of(USERS),
        ),
    ] = None
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Create a team."""
    with connected(asked.context) as session:
        for user in asked.member or ():
            check_there(session.client, USERS, user)
        spec = {"displayName": asked.display_name, "description": asked.description, "users": asked.member or None}
        created = session.client.create(TEAMS, body_of("Team", asked.name, spec))
        print_made(created, asked.output, f"created the team {asked.name}")


def _row(team: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(team),
        text(team, "spec.displayName"),
        "disabled" if dig(team, "spec.disabled") else "active",
        since(dig(team, "metadata.creationTimestamp"), now),
        joined(team, "spec.users"),
    )


COLUMNS = ("NAME", "DISPLAY NAME", "STATE", "AGE", "MEMBERS")
LISTING = Listing(TEAMS, "Team", COLUMNS, _row, "no teams; create one with `fairlead team create`")


@group.command("list")
@takes(Shown)
def list_teams(shown: Shown) -> None:
    """List teams."""
    show_all(LISTING, shown)


@group.command("add")
def add(name: NameArgument, user: UserArgument, context: ContextFlag = None) -> None:
    """Add a user to a team, with effect from the next request."""
    with connected(context) as session:
        check_there(session.client, USERS, user)
        changed = add_member(session.client, name, user)
        note(
            f"{user} is now a member of the team {name}"
            if changed
            else f"{user} is already a member of the team {name}"
        )


@group.command("remove")
def remove(name: NameArgument, user: UserArgument, context: ContextFlag = None) -> None:
    """Remove a user from a team, with effect from the next request."""
    with connected(context) as session:
        changed = _change_members(session.client, name, lambda users: [each for each in users if each != user])
        if not changed:
            raise ClientError(f"{user} is not in spec.users of the team {name}; `fairlead team list` shows the members")
        note(f"{user} is no longer a member of the team {name}")


def check_there(client: Client, plural: str, name: str) -> None:
    """Checks that an object exists, before a write. A mistyped name would become a member, or leave partial changes."""
    try:
        client.get(plural, name)
    except ApiProblem as problem:
        if problem.code != 404:
            raise
        kind = plural.removesuffix("s")
        raise ClientError(
            f"{kind} {name!r} does not exist; check the name, or create it first with `fairlead {kind} create`"
        ) from None


def add_member(client: Client, team: str, user: str) -> bool:
    """Adds a user to a team. Returns False if it is a member already."""
    return _change_members(client, team, lambda users: users if user in users else [*users, user])


def _change_members(client: Client, team: str, changed: Callable[[list[str]], list[str]]) -> bool:
    """Updates the members with optimistic locking: without resourceVersion, a concurrent change would be lost."""
    for _ in range(TRIES):
        current = client.get(TEAMS, team)
        before = dig(current, "spec.users") or []
        after = changed(before)
        if after == before:
            return False
        version = dig(current, "metadata.resourceVersion")
        try:
            client.patch(TEAMS, team, {"metadata": {"resourceVersion": version}, "spec": {"users": after}})
            return True
        except ApiProblem as problem:
            if problem.reason != "Conflict":
                raise
    raise ClientError(
        f"the team {team} was changed concurrently {TRIES} times; change spec.users with `kubectl edit team {team}`"
    )
