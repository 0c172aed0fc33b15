"""`fairlead key`: access keys, from making one to ending it. The larger ones: `key_create.py`, `key_explain.py`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli import key_create, key_explain, prompts
from fairlead.cli.completion import names_of
from fairlead.cli.durations import duration, seconds
from fairlead.cli.flags import ContextFlag, NamedOutputFlag, OutputFlag, YesFlag, takes
from fairlead.cli.key_create import print_value
from fairlead.cli.key_words import COLUMNS, EXPIRED, described, owner, row, state
from fairlead.cli.listing import Listing, Shown, show_list
from fairlead.cli.objects import print_object
from fairlead.cli.output import NamedOutput, Output, note
from fairlead.cli.session import Session, WrongUsage, connected
from fairlead.cli.whoami import identity
from fairlead.core.objects import dig, name_of

KEYS = "ownedaccesskeys"

NameArgument = Annotated[
    str, typer.Argument(help="Name of the key, as `fairlead key list` shows it.", autocompletion=names_of(KEYS))
]

group = typer.Typer(help="Make, list, rotate and end access keys.", no_args_is_help=True)
group.command("create")(key_create.command)
group.command("explain")(key_explain.command)


@dataclass(frozen=True, slots=True)
class Whose:
    user: Annotated[
        str | None,
        typer.Option("--user", help="Keys of this user.", show_default=False, autocompletion=names_of("users")),
    ] = None
    team: Annotated[
        str | None,
        typer.Option("--team", help="Keys of this team.", show_default=False, autocompletion=names_of("teams")),
    ] = None
    everybodys: Annotated[bool, typer.Option("--all", help="Keys of everybody that you may see.")] = False
    shown: Shown = field(default_factory=Shown)


@group.command("list")
@takes(Whose)
def list_keys(asked: Whose) -> None:
    """List access keys: your own, unless told otherwise."""
    with connected(asked.shown.context) as session:
        named = [(kind, name) for kind, name in (("user", asked.user), ("team", asked.team)) if name]
        if len(named) + asked.everybodys > 1:
            raise WrongUsage("--user, --team and --all say different things; choose one")
        wanted = named[0] if named else identity(session.client.whoami())
        nothing = f"no keys of {' '.join(named[0])} that you may see" if named else "no keys"
        listing = Listing(
            KEYS,
            "OwnedAccessKey",
            COLUMNS,
            row,
            f"{nothing}; make one with `fairlead key create`",
            wanted=lambda each: asked.everybodys or owner(each) == wanted,
        )
        show_list(session.client, listing, asked.shown)


@group.command("show")
def show(name: NameArgument, context: ContextFlag = None, output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """Show one access key. Its value is not among what is shown: nobody can read it again."""
    with connected(context) as session:
        found = session.client.get(KEYS, name)
        print_object(found, output, described(found, datetime.now(UTC)))


@group.command("disable")
def disable(name: NameArgument, yes: YesFlag = False, context: ContextFlag = None) -> None:
    """Make a key invalid until it is enabled again."""
    with connected(context) as session:
        _warn_of_own(session, name, yes, "disable")
        session.client.patch(KEYS, name, {"spec": {"disabled": True}})
        note(f"the key {name} no longer works; `fairlead key enable {name}` makes it work again")


@group.command("enable")
def enable(name: NameArgument, context: ContextFlag = None) -> None:
    """Make a disabled key work again."""
    with connected(context) as session:
        found = session.client.patch(KEYS, name, {"spec": {"disabled": False}})
        if state(found, datetime.now(UTC)) == EXPIRED:
            note(f"the key {name} is enabled, but has expired, which is final; `fairlead key create` makes another one")
        else:
            note(f"the key {name} works")


@group.command("rotate")
def rotate(
    name: NameArgument,
    overlap: Annotated[
        int | None,
        typer.Option(
            "--overlap",
            help="How long the value before stays valid, like 1h; at most 7d.",
            parser=seconds,
            metavar="TIME",
            show_default="it ends at once",
        ),
    ] = None,
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Give a key another value, and print that. Name, scope and life stay.

    With [bold]--overlap[/bold], whatever uses the value before has time to change over.
    """
    with connected(context) as session:
        in_use = session.client.whoami().get("accessKey") == name
        spec = {} if overlap is None else {"overlapSeconds": overlap}
        made = session.client.act(KEYS, name, "rotate", {"spec": spec})
        value = dig(made, "spec.key")
        print_value(made, output)
        if in_use and value and session.keep_key(value):
            note(f"the login {session.name!r} uses the new value from now on")
        note(f"the value before stays valid for {duration(overlap)}" if overlap else "the value before has ended")


@group.command("revoke")
def revoke(name: NameArgument, yes: YesFlag = False, context: ContextFlag = None) -> None:
    """End a key for good."""
    with connected(context) as session:
        found = session.client.get(KEYS, name)
        if not _warn_of_own(session, name, yes, "revoke") and not yes:
            prompts.sure(f"End the key {name} of {' '.join(owner(found))} for good?")
        session.client.delete(KEYS, name_of(found))
        note(f"the key {name} is gone, and whatever used it is locked out")


def _warn_of_own(session: Session, name: str, yes: bool, verb: str) -> bool:
    """Whether it is the key in use; the person has then been asked. Nobody means to lock themselves out."""
    if session.client.whoami().get("accessKey") != name:
        return False
    if not yes:
        prompts.sure(f"{name} is the key that you are using now. Really {verb} it?")
    return True
