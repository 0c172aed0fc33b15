"""`fairlead key`: lists, shows, rotates and revokes access keys.

`key_create.py` has `key create`, and `permissions.py` has `key explain`.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli.access import key_create, permissions
from fairlead.cli.access.key_create import write_key_value
from fairlead.cli.access.keys import describe_scope, expiry_time, find_expiry
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import age_cell, print_object, text_of
from fairlead.cli.ui.durations import age, coarse_duration, format_duration
from fairlead.cli.ui.field_flags import name_flags
from fairlead.cli.ui.flags import ContextFlag, ObjectOutputFlag, OutputFlag, YesFlag, flag, options_from, overlap_flag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, Output, print_note
from fairlead.cli.ui.resource_commands import ListOptions, Resource, print_objects
from fairlead.cli.ui.secret_file import OutputFileFlag, open_secret_output
from fairlead.cli.ui.session import Session, UsageError, open_session
from fairlead.core.objects import Object, get_path, name_of

COLUMNS = ("NAME", "OWNER", "TYPE", "STATE", "EXPIRES", "LAST USED", "SCOPE", "DISPLAY NAME", "AGE")
EXPIRED = "expired"


def key_owner(key: Object) -> tuple[str, str]:
    """Type and name of the key's principal: user, team or subject."""
    for kind in ("user", "team", "subject"):
        if name := get_path(key, f"spec.{kind}"):
            return kind, str(name)
    return "none", ""


def key_state(key: Object, now: datetime) -> str:
    """Whether requests with the key are accepted. Expired keys stay expired, so that word comes first."""
    end = expiry_time(key)
    if get_path(key, "status.expired") or (end and end <= now):
        return EXPIRED
    return "disabled" if get_path(key, "spec.disabled") else "active"


def table_row(key: Object, now: datetime) -> tuple[str, ...]:
    kind, name = key_owner(key)
    scope = describe_scope(get_path(key, "spec.scope"), name)
    return (
        name_of(key),
        name if kind == "user" else f"{kind} {name}",
        str(get_path(key, "spec.type") or "-"),
        key_state(key, now),
        _format_expiry(key, now),
        _format_age(get_path(key, "status.lastActivity"), now),
        "all" if get_path(key, "spec.scope") is None else scope[0] + (f" (+{len(scope) - 1})" if scope[1:] else ""),
        str(get_path(key, "spec.displayName") or "-"),
        age_cell(key, now),
    )


def describe_rows(key: Object, now: datetime) -> list[tuple[str, str]]:
    kind, name = key_owner(key)
    scope = describe_scope(get_path(key, "spec.scope"), name)
    pairs = [
        ("name", name_of(key)),
        ("display name", text_of(key, "spec.displayName")),
        ("description", text_of(key, "spec.description")),
        (kind, name),
        ("groups", ", ".join(get_path(key, "spec.groups") or ())),
        ("type", text_of(key, "spec.type")),
        ("state", key_state(key, now)),
        ("expires", _describe_expiry(key, now)),
        ("last used", _format_age(get_path(key, "status.lastActivity"), now)),
        ("created", _format_age(get_path(key, "metadata.creationTimestamp"), now)),
        ("scope", scope[0]),
        *(("", line) for line in scope[1:]),
    ]
    return [pair for pair in pairs if pair[1]]


def _format_expiry(key: Object, now: datetime) -> str:
    end, is_conditional = find_expiry(key)
    if end is None:
        return "never"
    remaining = int((end - now).total_seconds())
    text = f"in {coarse_duration(remaining)}" if remaining > 0 else f"{coarse_duration(-remaining)} ago"
    return f"{text}, unless replaced" if is_conditional and remaining > 0 else text


def _format_age(text: object, now: datetime) -> str:
    elapsed = age(text, now)
    return elapsed if elapsed == "-" else f"{elapsed} ago"


def _describe_expiry(key: Object, now: datetime) -> str:
    end, is_conditional = find_expiry(key)
    if end is None:
        return "never"
    time = _format_time(end)
    if is_conditional:
        return f"{time}, unless there is another way in by then" if end > now else time
    if get_path(key, "spec.ttlAfterLastActivity") and end == expiry_time(key):
        return f"{time}, {format_duration(get_path(key, 'spec.ttl'))} after its last use"
    return time


def _format_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")


KEYS = "ownedaccesskeys"
RESOURCE = Resource(
    plural=KEYS,
    kind="OwnedAccessKey",
    noun="key",
    columns=COLUMNS,
    row=table_row,
    empty_message="no keys",
    details=(),
)

NameArgument = Annotated[
    str, typer.Argument(help="Name of the key, as `fairlead key list` shows it.", autocompletion=complete_names(KEYS))
]

group = create_group("Create, list, rotate and revoke access keys.")
group.command("create")(key_create.command)
group.command("explain")(permissions.explain)


@dataclass(frozen=True, slots=True)
class KeyListOptions:
    user: Annotated[str | None, flag("--user", help="Keys of this user.", complete="users")] = None
    team: Annotated[str | None, flag("--team", help="Keys of this team.", complete="teams")] = None
    all_owners: Annotated[bool, typer.Option("--all", help="All keys that you may read.")] = False
    list_options: ListOptions = field(default_factory=ListOptions)


@group.command("list")
@options_from(KeyListOptions)
def list_keys(options: KeyListOptions) -> None:
    """List access keys; by default your own."""
    with open_session(options.list_options.context) as session:
        owners = [(kind, name) for kind, name in (("user", options.user), ("team", options.team)) if name]
        if len(owners) + options.all_owners > 1:
            raise UsageError("--user, --team and --all are mutually exclusive; choose one")
        selected = owners[0] if owners else identity(session.client.whoami())
        empty = f"no keys of {' '.join(owners[0])} that you may read" if owners else "no keys"
        print_objects(
            session.client,
            replace(RESOURCE, empty_message=f"{empty}; create one with `fairlead key create`"),
            options.list_options,
            matches=lambda each: options.all_owners or key_owner(each) == selected,
        )


@group.command("show")
def show(name: NameArgument, context: ContextFlag = None, output: ObjectOutputFlag = TABLE) -> None:
    """Show one access key. The value is not stored, so it cannot be shown again."""
    with open_session(context) as session:
        found = session.client.get(KEYS, name)
        print_object(found, output, describe_rows(found, datetime.now(UTC)))


@group.command("disable")
def disable(name: NameArgument, yes: YesFlag = False, context: ContextFlag = None) -> None:
    """Disable a key until it is enabled again."""
    with open_session(context) as session:
        _confirm_own_key(session, name, yes, "disable")
        session.client.patch(KEYS, name, {"spec": {"disabled": True}})
        print_note(f"the key {name} is disabled; `fairlead key enable {name}` enables it again")


@group.command("enable")
def enable(name: NameArgument, context: ContextFlag = None) -> None:
    """Enable a disabled key."""
    with open_session(context) as session:
        found = session.client.patch(KEYS, name, {"spec": {"disabled": False}})
        if key_state(found, datetime.now(UTC)) == EXPIRED:
            print_note(
                f"the key {name} is enabled, but has expired for good; create another one with `fairlead key create`"
            )
        else:
            print_note(f"the key {name} is enabled")


@group.command("rotate")
def rotate(
    name: NameArgument,
    overlap: Annotated[int | None, overlap_flag("How long the old value stays valid, like 1h; at most 7d.")] = None,
    context: ContextFlag = None,
    output: OutputFlag = Output.TABLE,
    output_file: OutputFileFlag = None,
) -> None:
    """Rotate a key and print the new value. Name, scope and lifetime do not change.

    With `--overlap`, clients that use the old value have time to switch.
    """
    with open_session(context) as session, open_secret_output(output_file) as write:
        in_use = session.client.whoami().get("accessKey") == name
        spec = {} if overlap is None else {"overlapSeconds": overlap}
        with name_flags(session.client):
            rotated = session.client.invoke_action(KEYS, name, "rotate", {"spec": spec})
        value = get_path(rotated, "spec.key")
        # Before it is printed, which may fail: the login has no other key.
        is_saved = in_use and value and session.save_key(value)
        write_key_value(rotated, output, write, output_file)
        if is_saved:
            print_note(f"the login {session.name!r} now uses the new value")
        print_note(
            f"the old value stays valid for {format_duration(overlap)}" if overlap else "the old value is revoked"
        )


@group.command("revoke")
def revoke(name: NameArgument, yes: YesFlag = False, context: ContextFlag = None) -> None:
    """Revoke a key permanently."""
    with open_session(context) as session:
        found = session.client.get(KEYS, name)
        if not _confirm_own_key(session, name, yes, "revoke") and not yes:
            prompts.confirm(f"Permanently revoke the key {name} of {' '.join(key_owner(found))}?")
        session.client.delete(KEYS, name_of(found))
        print_note(f"the key {name} is revoked; clients that used it can no longer authenticate")


def _confirm_own_key(session: Session, name: str, yes: bool, verb: str) -> bool:
    """Whether it is the key in use. Asks for confirmation then, to prevent a lockout."""
    if session.client.whoami().get("accessKey") != name:
        return False
    if not yes:
        prompts.confirm(f"{name} is the key that you are using now. Really {verb} it?")
    return True
