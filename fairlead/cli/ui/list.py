"""Prints or watches lists of objects. Every `list` command that queries a server uses a `Listing`."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from fairlead.cli.ui.flags import ContextFlag, NamedOutputFlag, WatchFlag
from fairlead.cli.ui.output import (
    NamedOutput,
    Output,
    column_widths,
    print_event,
    print_list,
    print_name,
    print_note,
    print_row,
    print_table,
)
from fairlead.client import Client, Event
from fairlead.client.watch import MODIFIED, SYNCED
from fairlead.core.objects import Object, name_of


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The flags of every `list` command."""

    watch: WatchFlag = False
    context: ContextFlag = None
    output: NamedOutputFlag = NamedOutput.TABLE


def match_all(obj: Object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Listing:
    """Resource, columns and rows of a `list` command. `empty_message` is printed if the list is empty."""

    plural: str
    kind: str
    columns: tuple[str, ...]
    row: Callable[[Object, datetime], Sequence[str]]
    empty_message: str
    namespace: str = ""
    matches: Callable[[Object], bool] = match_all


def print_objects(client: Client, listing: Listing, options: ListOptions) -> None:
    if options.watch:
        _watch(client, listing, options.output)
        return
    objects = [each for each in client.list(listing.plural, namespace=listing.namespace) if listing.matches(each)]
    if options.output is NamedOutput.NAME:
        for each in objects:
            print_name(listing.kind, name_of(each))
    elif options.output is not NamedOutput.TABLE:
        print_list(objects, Output(options.output))
    else:
        now = datetime.now(UTC)
        print_table(listing.columns, [listing.row(each, now) for each in objects], listing.empty_message)


def _watch(client: Client, listing: Listing, output: NamedOutput) -> None:
    """Prints watch events until Ctrl-C, which ends the command with exit code 0."""
    events = client.watch(listing.plural, namespace=listing.namespace)
    matching = (each for each in events if each.type == SYNCED or listing.matches(each.object))
    with suppress(KeyboardInterrupt):
        if output is NamedOutput.TABLE:
            _watch_table(matching, listing)
            return
        for event in matching:
            if event.type == SYNCED:
                continue
            if output is NamedOutput.NAME:
                print_name(listing.kind, name_of(event.object))
            else:
                print_event(event.type, event.object, Output(output))


def _watch_table(events: Iterable[Event], listing: Listing) -> None:
    """Prints the initial list as a table, then a row for each event with the same column widths."""
    headers = ("EVENT", *listing.columns)
    widths: list[int] | None = None
    rows: list[Sequence[str]] = []
    synced = False
    for event in events:
        if event.type == SYNCED:
            synced = True
        else:
            rows.append((event.type.ljust(len(MODIFIED)), *listing.row(event.object, datetime.now(UTC))))
        if not synced:
            continue
        if not rows:
            print_note(listing.empty_message)
        elif widths is None:
            widths = column_widths(headers, rows)
            print_table(headers, rows, listing.empty_message)
        else:
            print_row(rows[-1], widths)
        rows.clear()
