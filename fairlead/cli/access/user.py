"""`fairlead user`: manages users and passwords. Passwords are read from a prompt or stdin, never from arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.access.team import TEAMS, USERS, add_member, check_there
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import body_of, joined, print_made, text
from fairlead.cli.ui.durations import since
from fairlead.cli.ui.flags import ContextFlag, NamedOutputFlag, takes
from fairlead.cli.ui.list import Listing, Shown, show_all
from fairlead.cli.ui.output import NamedOutput, note
from fairlead.cli.ui.session import WrongUsage, connected
from fairlead.client import Client, ClientError
from fairlead.core.objects import Object, dig, name_of

ADMINS = "service:admins"
PASSWORD = "new password"
INSTEAD = "use --password-stdin"

NameArgument = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=names_of(USERS))]
PasswordFlag = Annotated[bool, typer.Option("--password-stdin", help="Read the password from stdin.")]

group = typer.Typer(help="Create, list and disable users, and set passwords.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Asked:
    name: Annotated[str, typer.Argument(help="Name of the user.")]
    display_name: Annotated[
        str | None, typer.Option("--display-name", help="Human-readable name.", show_default=False)
    ] = None
    email: Annotated[str | None, typer.Option("--email", help="Email address.", show_default=False)] = None
    team: Annotated[
        list[str] | None,
        typer.Option(
            "--team", help="Team to add the user to. Repeatable.", show_default=False, autocompletion=names_of(TEAMS)
        ),
    ] = None
    admin: Annotated[bool, typer.Option("--admin", help=f"Make the user an administrator (group {ADMINS}).")] = False
    password_stdin: PasswordFlag = False
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Set no password: the user authenticates with access keys only.")
    ] = False
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


@group.command("create")
@takes(Asked)
def create(asked: Asked) -> None:
    """Create a user, and set a password."""
    with connected(asked.context) as session:
        client = session.client
        for team in asked.team or ():
            check_there(client, TEAMS, team)
        password = _first_password(asked)
        created = client.create(USERS, body(asked))
        if password is not None:
            _set_first(client, asked.name, password)
        for team in asked.team or ():
            add_member(client, team, asked.name)
        message = f"created the user {asked.name}; create a key with `fairlead key create --user {asked.name}`"
        print_made(created, asked.output, message)


def body(asked: Asked) -> Object:
    spec = {
        "displayName": asked.display_name,
        "email": asked.email,
        "groups": [ADMINS] if asked.admin else None,
    }
    return body_of("User", asked.name, spec)


def _first_password(asked: Asked) -> str | None:
    if asked.no_password and asked.password_stdin:
        raise WrongUsage("--no-password and --password-stdin are mutually exclusive; choose one")
    if asked.no_password:
        return None
    if asked.password_stdin:
        return prompts.secret_from_stdin("password")
    return prompts.new_secret("password", f"{INSTEAD}, or --no-password")


def _set_first(client: Client, name: str, password: str) -> None:
    try:
        client.act(USERS, name, "profile", {"password": password})
    except ClientError as problem:
        advice = f"set one with `fairlead user passwd {name}`"
        raise ClientError(f"created the user {name}, but without a password: {problem}; {advice}") from None


def _row(user: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(user),
        text(user, "spec.displayName"),
        text(user, "spec.email"),
        joined(user, "status.teams"),
        joined(user, "spec.groups"),
        "disabled" if dig(user, "spec.disabled") else "active",
        since(dig(user, "metadata.creationTimestamp"), now),
    )


COLUMNS = ("NAME", "DISPLAY NAME", "EMAIL", "TEAMS", "GROUPS", "STATE", "AGE")
LISTING = Listing(USERS, "User", COLUMNS, _row, "no users")


@group.command("list")
@takes(Shown)
def list_users(shown: Shown) -> None:
    """List users."""
    show_all(LISTING, shown)


@group.command("disable")
def disable(name: NameArgument, context: ContextFlag = None) -> None:
    """Disable a user and all of its keys, until it is enabled again."""
    with connected(context) as session:
        session.client.patch(USERS, name, {"spec": {"disabled": True}})
        note(f"{name} and all of its keys are disabled; `fairlead user enable {name}` enables them again")


@group.command("enable")
def enable(name: NameArgument, context: ContextFlag = None) -> None:
    """Enable a disabled user."""
    with connected(context) as session:
        session.client.patch(USERS, name, {"spec": {"disabled": False}})
        note(f"{name} is enabled")


@group.command("passwd")
def passwd(
    name: Annotated[
        str | None, typer.Argument(help="Name of the user.", show_default="you", autocompletion=names_of(USERS))
    ] = None,
    password_stdin: Annotated[
        bool,
        typer.Option(
            "--password-stdin",
            help="Read the new password from stdin; for yourself, the current one on the line before.",
        ),
    ] = False,
    context: ContextFlag = None,
) -> None:
    """Set a password: your own, or as an administrator that of another user. Logins with the old one are revoked."""
    with connected(context) as session:
        kind, me = identity(session.client.whoami())
        if name is None and kind != "user":
            raise WrongUsage(f"you are the {kind} {me}, which has no password; set the name of a user")
        own = kind == "user" and name in (None, me)
        change = _current(password_stdin) if own else {}
        change["password"] = (
            prompts.secret_from_stdin(PASSWORD) if password_stdin else prompts.new_secret(PASSWORD, INSTEAD)
        )
        session.client.act(USERS, name or me, "profile", change)
        note(f"the password of {name or me} is set")


def _current(from_stdin: bool) -> Object:
    """Reads the current password; empty if the user has none. The server checks whether it is required."""
    label = "current password"
    current = prompts.line_from_stdin() if from_stdin else prompts.typed(f"{label} (empty if none)", INSTEAD)
    return {"currentPassword": current} if current else {}
