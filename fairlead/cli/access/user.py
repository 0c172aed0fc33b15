"""`fairlead user`: manages users and passwords. Passwords are read from a prompt or stdin, never from arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.access.team import TEAMS, USERS, add_member, require_exists
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import age_cell, build_object, cell, joined_cell, print_created, text_of
from fairlead.cli.ui.field_flags import name_flags
from fairlead.cli.ui.flags import ContextFlag, ObjectOutputFlag, flag, options_from
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, print_note
from fairlead.cli.ui.resource_commands import (
    Deletion,
    Resource,
    add_delete_command,
    add_list_command,
    add_show_command,
)
from fairlead.cli.ui.session import UsageError, open_session
from fairlead.client import Client, ClientError
from fairlead.core.objects import Object, get_path, name_of

ADMIN_GROUP = "service:admins"
NEW_PASSWORD_LABEL = "new password"
STDIN_HINT = "use --password-stdin"
DOTFILES = "dotfiles"
"""The setting of a profile with the URL of a repository."""


def _table_row(user: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(user),
        cell(user, "spec.displayName"),
        cell(user, "spec.email"),
        joined_cell(user, "status.teams"),
        joined_cell(user, "spec.groups"),
        "disabled" if get_path(user, "spec.disabled") else "active",
        age_cell(user, now),
    )


RESOURCE = Resource(
    plural=USERS,
    kind="User",
    noun="user",
    columns=("NAME", "DISPLAY NAME", "EMAIL", "TEAMS", "GROUPS", "STATE", "AGE"),
    row=_table_row,
    empty_message="no users",
)

NameArgument = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=complete_names(USERS))]
PasswordFlag = Annotated[bool, typer.Option("--password-stdin", help="Read the password from stdin.")]

group = create_group("Create, list, show, disable and delete users, and set passwords.")


@dataclass(frozen=True, slots=True)
class UserCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the user.")]
    display_name: Annotated[str | None, flag("--display-name", help="Human-readable name.")] = None
    email: Annotated[str | None, flag("--email", help="Email address.")] = None
    team: Annotated[list[str] | None, flag("--team", help="Team to add the user to. Repeatable.", complete=TEAMS)] = (
        None
    )
    admin: Annotated[bool, typer.Option("--admin", help=f"Make the user an administrator (group {ADMIN_GROUP}).")] = (
        False
    )
    password_stdin: PasswordFlag = False
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Set no password: the user authenticates with access keys only.")
    ] = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@group.command("create")
@options_from(UserCreateOptions)
def create(options: UserCreateOptions) -> None:
    """Create a user, and set a password."""
    with open_session(options.context) as session:
        client = session.client
        for team in options.team or ():
            require_exists(client, TEAMS, team)
        password = _read_initial_password(options)
        with name_flags(client):
            created = client.create(USERS, build_body(options))
        if password is not None:
            _set_initial_password(client, created, password)
        for team in options.team or ():
            add_member(client, team, options.name)
        message = f"created the user {options.name}; create a key with `fairlead key create --user {options.name}`"
        print_created(created, options.output, message)


def build_body(options: UserCreateOptions) -> Object:
    spec = {
        "displayName": options.display_name,
        "email": options.email,
        "groups": [ADMIN_GROUP] if options.admin else None,
    }
    return build_object("User", options.name, spec)


def _read_initial_password(options: UserCreateOptions) -> str | None:
    if options.no_password and options.password_stdin:
        raise UsageError("--no-password and --password-stdin are mutually exclusive; choose one")
    if options.no_password:
        return None
    if options.password_stdin:
        return prompts.read_secret_from_stdin("password")
    return prompts.prompt_new_secret("password", f"{STDIN_HINT}, or --no-password")


def _set_initial_password(client: Client, user: Object, password: str) -> None:
    """Sets the password. If the server rejects it, deletes the new user again, so that the command can be repeated."""
    name = name_of(user)
    try:
        client.invoke_action(USERS, name, "profile", {"password": password})
    except ClientError as problem:
        try:
            client.delete(USERS, name, uid=text_of(user, "metadata.uid"))
        except ClientError as failure:
            advice = f"set one with `fairlead user passwd {name}`"
            raise ClientError(
                f"created the user {name}, but without a password: {problem}; deleting it failed ({failure}); {advice}"
            ) from None
        raise ClientError(f"no user was created, because the password was not accepted: {problem}") from None


add_list_command(group, RESOURCE)
add_show_command(group, RESOURCE)
add_delete_command(
    group,
    RESOURCE,
    Deletion(
        "Delete a user with its password. Its keys are no longer accepted.",
        question="Delete the user {name}? Its keys are no longer accepted then.",
    ),
)


@group.command("disable")
def disable(name: NameArgument, context: ContextFlag = None) -> None:
    """Disable a user and all of its keys, until it is enabled again."""
    with open_session(context) as session:
        session.client.patch(USERS, name, {"spec": {"disabled": True}})
        print_note(f"{name} and all of its keys are disabled; `fairlead user enable {name}` enables them again")


@group.command("enable")
def enable(name: NameArgument, context: ContextFlag = None) -> None:
    """Enable a disabled user."""
    with open_session(context) as session:
        session.client.patch(USERS, name, {"spec": {"disabled": False}})
        print_note(f"{name} is enabled")


@group.command("passwd")
def passwd(
    name: Annotated[
        str | None, typer.Argument(help="Name of the user.", show_default="you", autocompletion=complete_names(USERS))
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
    with open_session(context) as session:
        kind, me = identity(session.client.whoami())
        if name is None and kind != "user":
            raise UsageError(f"you are the {kind} {me}, which has no password; set the name of a user")
        own = kind == "user" and name in (None, me)
        change = _read_current_password(password_stdin) if own else {}
        change["password"] = (
            prompts.read_secret_from_stdin(NEW_PASSWORD_LABEL)
            if password_stdin
            else prompts.prompt_new_secret(NEW_PASSWORD_LABEL, STDIN_HINT)
        )
        session.client.invoke_action(USERS, name or me, "profile", change)
        print_note(f"the password of {name or me} is set")


def _read_current_password(from_stdin: bool) -> Object:
    """Reads the current password; empty if the user has none. The server checks whether it is required."""
    label = "current password"
    current = (
        prompts.read_line_from_stdin() if from_stdin else prompts.read_hidden(f"{label} (empty if none)", STDIN_HINT)
    )
    return {"currentPassword": current} if current else {}


@group.command("dotfiles")
def dotfiles(
    url: Annotated[str | None, typer.Argument(help="URL of the repository.", show_default="show it")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Forget it.")] = False,
    context: ContextFlag = None,
) -> None:
    """Show or set the repository with your dotfiles, which each new container of your workspaces gets."""
    with open_session(context) as session:
        kind, me = identity(session.client.whoami())
        if kind != "user":
            raise UsageError(f"you are the {kind} {me}, which has no dotfiles; log in as a user")
        if url and remove:
            raise UsageError("--remove forgets the repository; leave out the URL")
        settings = dict(session.client.get(USERS, me, "profile").get("custom") or {})
        if not url and not remove:
            print(settings.get(DOTFILES) or "none")
            return
        settings.pop(DOTFILES, None)
        if url:
            settings[DOTFILES] = url
        session.client.invoke_action(USERS, me, "profile", {"custom": settings})
        print_note("new containers of your workspaces get them" if url else "new containers get those of the template")
