"""`fairlead key`: access keys, from making one to ending it. The larger ones: `key_create.py`, `permissions.py`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from fairlead.cli.access import key_create, permissions
from fairlead.cli.access.key_create import print_value
from fairlead.cli.access.scope_flags import scope_lines
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import print_object
from fairlead.cli.ui.durations import duration, moment, rough, seconds, since
from fairlead.cli.ui.flags import ContextFlag, NamedOutputFlag, OutputFlag, YesFlag, takes
from fairlead.cli.ui.list import Listing, Shown, show_list
from fairlead.cli.ui.output import NamedOutput, Output, note
from fairlead.cli.ui.session import Session, WrongUsage, connected
from fairlead.core.objects import Object, dig, name_of

# DOC-MERGED cli/key_words
# An access key as people want to see it: whose it is, whether it works and until when, and what it may be used for.


COLUMNS = ("NAME", "OWNER", "TYPE", "STATE", "EXPIRES", "LAST USED", "SCOPE", "DISPLAY NAME", "AGE")
EXPIRED = "expired"


def owner(key: Object) -> tuple[str, str]:
    """What sort of owner, and its name."""
    for kind in ("user", "team", "subject"):
        if name := dig(key, f"spec.{kind}"):
            return kind, str(name)
    return "nobody", ""


def expiry(key: Object) -> datetime | None:
    """When the key ends as things stand; None for never. A use may put it off, where its life counts from the last."""
    ttl = dig(key, "spec.ttl")
    made = moment(dig(key, "metadata.creationTimestamp"))
    used = moment(dig(key, "status.lastActivity")) if dig(key, "spec.ttlAfterLastActivity") else None
    start = max((each for each in (made, used) if each), default=None)
    return start + timedelta(seconds=int(ttl)) if ttl and start else None


def state(key: Object, now: datetime) -> str:
    end = expiry(key)
    if dig(key, "spec.disabled"):
        return "disabled"
    return EXPIRED if dig(key, "status.expired") or (end and end <= now) else "active"


def row(key: Object, now: datetime) -> tuple[str, ...]:
    kind, name = owner(key)
    end = expiry(key)
    scope = scope_lines(dig(key, "spec.scope"), name)
    return (
        name_of(key),
        name if kind == "user" else f"{kind} {name}",
        str(dig(key, "spec.type") or "-"),
        state(key, now),
        "never" if end is None else _until(end, now),
        _ago(dig(key, "status.lastActivity"), now),
        "all" if dig(key, "spec.scope") is None else scope[0] + (f" (+{len(scope) - 1})" if scope[1:] else ""),
        str(dig(key, "spec.displayName") or "-"),
        since(dig(key, "metadata.creationTimestamp"), now),
    )


def described(key: Object, now: datetime) -> list[tuple[str, str]]:
    kind, name = owner(key)
    scope = scope_lines(dig(key, "spec.scope"), name)
    pairs = [
        ("name", name_of(key)),
        ("display name", str(dig(key, "spec.displayName") or "")),
        ("description", str(dig(key, "spec.description") or "")),
        (kind, name),
        ("groups", ", ".join(dig(key, "spec.groups") or ())),
        ("type", str(dig(key, "spec.type") or "")),
        ("state", state(key, now)),
        ("expires", _expires(key)),
        ("last used", _ago(dig(key, "status.lastActivity"), now)),
        ("made", _ago(dig(key, "metadata.creationTimestamp"), now)),
        ("may use", scope[0]),
        *(("", line) for line in scope[1:]),
    ]
    return [pair for pair in pairs if pair[1]]


def _until(end: datetime, now: datetime) -> str:
    left = int((end - now).total_seconds())
    return f"in {rough(left)}" if end > now else f"{rough(-left)} ago"


def _ago(text: object, now: datetime) -> str:
    age = since(text, now)
    return age if age == "-" else f"{age} ago"


def _expires(key: Object) -> str:
    end = expiry(key)
    if end is None:
        return "never"
    told = end.strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"{told}, {duration(dig(key, 'spec.ttl'))} after its last use"
        if dig(key, "spec.ttlAfterLastActivity")
        else told
    )


KEYS = "ownedaccesskeys"

NameArgument = Annotated[
    str, typer.Argument(help="Name of the key, as `fairlead key list` shows it.", autocompletion=names_of(KEYS))
]

group = typer.Typer(help="Make, list, rotate and end access keys.", no_args_is_help=True)
group.command("create")(key_create.command)
group.command("explain")(permissions.command)


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
