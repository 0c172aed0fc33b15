"""`fairlead key`: lists, shows, rotates and revokes access keys.

`key_create.py` has `key create`, and `permissions.py` has `key explain`.
"""

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

COLUMNS = ("NAME", "OWNER", "TYPE", "STATE", "EXPIRES", "LAST USED", "SCOPE", "DISPLAY NAME", "AGE")
EXPIRED = "expired"


def owner(key: Object) -> tuple[str, str]:
    """Type and name of the key's principal: user, team or subject."""
    for kind in ("user", "team", "subject"):
        if name := dig(key, f"spec.{kind}"):
            return kind, str(name)
    return "nobody", ""


def expiry(key: Object) -> datetime | None:
    """When the key expires; None for never. With ttlAfterLastActivity, each use extends the lifetime."""
    ttl = dig(key, "spec.ttl")
    created = moment(dig(key, "metadata.creationTimestamp"))
    used = moment(dig(key, "status.lastActivity")) if dig(key, "spec.ttlAfterLastActivity") else None
    start = max((each for each in (created, used) if each), default=None)
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
        ("created", _ago(dig(key, "metadata.creationTimestamp"), now)),
        ("scope", scope[0]),
        *(("", line) for line in scope[1:]),
    ]
    return [pair for pair in pairs if pair[1]]


def _until(end: datetime, now: datetime) -> str:
    remaining = int((end - now).total_seconds())
    return f"in {rough(remaining)}" if end > now else f"{rough(-remaining)} ago"


def _ago(text: object, now: datetime) -> str:
    elapsed = since(text, now)
    return elapsed if elapsed == "-" else f"{elapsed} ago"


def _expires(key: Object) -> str:
    end = expiry(key)
    if end is None:
        return "never"
    time = end.strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"{time}, {duration(dig(key, 'spec.ttl'))} after its last use"
        if dig(key, "spec.ttlAfterLastActivity")
        else time
    )


KEYS = "ownedaccesskeys"

NameArgument = Annotated[
    str, typer.Argument(help="Name of the key, as `fairlead key list` shows it.", autocompletion=names_of(KEYS))
]

group = typer.Typer(help="Create, list, rotate and revoke access keys.", no_args_is_help=True)
group.command("create")(key_create.command)
group.command("explain")(permissions.explain)


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
    everybodys: Annotated[bool, typer.Option("--all", help="All keys that you may read.")] = False
    shown: Shown = field(default_factory=Shown)


@group.command("list")
@takes(Whose)
def list_keys(asked: Whose) -> None:
    """List access keys; by default your own."""
    with connected(asked.shown.context) as session:
        owners = [(kind, name) for kind, name in (("user", asked.user), ("team", asked.team)) if name]
        if len(owners) + asked.everybodys > 1:
            raise WrongUsage("--user, --team and --all are mutually exclusive; choose one")
        selected = owners[0] if owners else identity(session.client.whoami())
        empty = f"no keys of {' '.join(owners[0])} that you may read" if owners else "no keys"
        listing = Listing(
            KEYS,
            "OwnedAccessKey",
            COLUMNS,
            row,
            f"{empty}; create one with `fairlead key create`",
            wanted=lambda each: asked.everybodys or owner(each) == selected,
        )
        show_list(session.client, listing, asked.shown)


@group.command("show")
def show(name: NameArgument, context: ContextFlag = None, output: NamedOutputFlag = NamedOutput.TABLE) -> None:
    """Show one access key. The value is not stored, so it cannot be shown again."""
    with connected(context) as session:
        found = session.client.get(KEYS, name)
        print_object(found, output, described(found, datetime.now(UTC)))


@group.command("disable")
def disable(name: NameArgument, yes: YesFlag = False, context: ContextFlag = None) -> None:
    """Disable a key until it is enabled again."""
    with connected(context) as session:
        _warn_of_own(session, name, yes, "disable")
        session.client.patch(KEYS, name, {"spec": {"disabled": True}})
        note(f"the key {name} is disabled; `fairlead key enable {name}` enables it again")


@group.command("enable")
def enable(name: NameArgument, context: ContextFlag = None) -> None:
    """Enable a disabled key."""
    with connected(context) as session:
        found = session.client.patch(KEYS, name, {"spec": {"disabled": False}})
        if state(found, datetime.now(UTC)) == EXPIRED:
            note(f"the key {name} is enabled, but has expired for good; create another one with `fairlead key create`")
        else:
            note(f"the key {name} is enabled")


@group.command("rotate")
def rotate(
    name: NameArgument,
    overlap: Annotated[
        int | None,
        typer.Option(
            "--overlap",
            help="How long the old value stays valid, like 1h; at most 7d.",
            parser=seconds,
            metavar="TIME",
            show_default="revoked at once",
        ),
    ] = None,
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Rotate a key and print the new value. Name, scope and lifetime do not change.

    With [bold]--overlap[/bold], clients that use the old value have time to switch.
    """
    with connected(context) as session:
        in_use = session.client.whoami().get("accessKey") == name
        spec = {} if overlap is None else {"overlapSeconds": overlap}
        rotated = session.client.act(KEYS, name, "rotate", {"spec": spec})
        value = dig(rotated, "spec.key")
        print_value(rotated, output)
        if in_use and value and session.keep_key(value):
            note(f"the login {session.name!r} now uses the new value")
        note(f"the old value stays valid for {duration(overlap)}" if overlap else "the old value is revoked")


@group.command("revoke")
def revoke(name: NameArgument, yes: YesFlag = False, context: ContextFlag = None) -> None:
    """Revoke a key permanently."""
    with connected(context) as session:
        found = session.client.get(KEYS, name)
        if not _warn_of_own(session, name, yes, "revoke") and not yes:
            prompts.sure(f"Permanently revoke the key {name} of {' '.join(owner(found))}?")
        session.client.delete(KEYS, name_of(found))
        note(f"the key {name} is revoked; clients that used it can no longer authenticate")


def _warn_of_own(session: Session, name: str, yes: bool, verb: str) -> bool:
    """Whether it is the key in use. Asks for confirmation then, to prevent a lockout."""
    if session.client.whoami().get("accessKey") != name:
        return False
    if not yes:
        prompts.sure(f"{name} is the key that you are using now. Really {verb} it?")
    return True
