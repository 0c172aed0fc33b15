"""Prints or watches lists of objects. Every `list` command that queries a server uses a `Listing`."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fairlead.cli.ui.field_flags import name_selector
from fairlead.cli.ui.flags import ContextFlag, ObjectOutputFlag, SelectorFlag, SortFlag, WatchFlag
from fairlead.cli.ui.jsonpath import InvalidTemplate, parse_path
from fairlead.cli.ui.output import (
    TABLE,
    Format,
    ObjectOutput,
    Output,
    build_list,
    column_widths,
    format_cell,
    print_event,
    print_name,
    print_note,
    print_row,
    print_table,
    print_value,
)
from fairlead.cli.ui.session import UsageError
from fairlead.client import Client, Event
from fairlead.client.watch import MODIFIED, SYNCED
from fairlead.core.objects import Object, get_path, name_of


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The flags of every `list` command."""

    selector: SelectorFlag = ""
    sort_by: SortFlag = ""
    watch: WatchFlag = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


def match_all(obj: Object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Listing:
    """Resource, columns and rows of a `list` command. `empty_message` is printed if the list is empty.

    `details` are the headers and fields of further columns for `-o wide`.
    """

    plural: str
    kind: str
    columns: tuple[str, ...]
    row: Callable[[Object, datetime], Sequence[str]]
    empty_message: str
    namespace: str = ""
    matches: Callable[[Object], bool] = match_all
    details: tuple[tuple[str, str], ...] = ()

    def widened(self) -> "Listing":
        """The listing with the columns of `-o wide`."""
        details = [(label.upper(), path) for label, path in self.details if label.upper() not in self.columns]

        def row(obj: Object, now: datetime) -> Sequence[str]:
            return (*self.row(obj, now), *(format_cell(get_path(obj, path)).strip() for _, path in details))

        return replace(self, columns=(*self.columns, *(label for label, _ in details)), row=row)


def print_objects(client: Client, listing: Listing, options: ListOptions) -> None:
    if options.output.format is Format.WIDE:
        listing = listing.widened()
    with name_selector(options.selector):
        _print_or_watch(client, listing, options)


def _print_or_watch(client: Client, listing: Listing, options: ListOptions) -> None:
    if options.watch:
        _watch(client, listing, options)
        return
    found = client.list(listing.plural, namespace=listing.namespace, labels=options.selector)
    objects = [each for each in found if listing.matches(each)]
    if options.sort_by:
        objects.sort(key=sort_key(options.sort_by))
    if options.output.format is Format.NAME:
        for each in objects:
            print_name(listing.kind, name_of(each))
    elif not options.output.is_table:
        print_value(build_list(objects), options.output)
    else:
        now = datetime.now(UTC)
        print_table(listing.columns, [listing.row(each, now) for each in objects], listing.empty_message)


def sort_key(field: str) -> Callable[[Object], tuple[int, Any]]:
    """The key to sort objects by a field: those without it first, then numbers, then text."""
    try:
        path = parse_path(field)
    except InvalidTemplate as error:
        raise UsageError(f"--sort-by: {error}") from None

    def key(obj: Object) -> tuple[int, Any]:
        value = next(iter(path.select(obj)), None)
        if isinstance(value, bool | int | float):
            return 1, value
        return (0, "") if value is None else (2, str(value))

    return key


def _watch(client: Client, listing: Listing, options: ListOptions) -> None:
    """Prints watch events until Ctrl-C, which ends the command with exit code 0."""
    output = options.output
    check_watch_flags(options.sort_by, output)
    events = client.watch(listing.plural, namespace=listing.namespace, labels=options.selector)
    matching = (each for each in events if each.type == SYNCED or listing.matches(each.object))
    with suppress(KeyboardInterrupt):
        if output.is_table:
            watch_table(
                matching, listing.columns, lambda obj: listing.row(obj, datetime.now(UTC)), listing.empty_message
            )
        else:
            watch_objects(matching, listing.kind, output)


def check_watch_flags(sort_by: str, output: ObjectOutput) -> None:
    if sort_by or output.format is Format.JSONPATH:
        raise UsageError("--watch cannot be combined with --sort-by or -o jsonpath; leave one of them out")


def watch_objects(events: Iterable[Event], kind: str, output: ObjectOutput) -> None:
    for event in events:
        if event.type == SYNCED:
            continue
        if output.format is Format.NAME:
            print_name(kind, name_of(event.object))
        else:
            print_event(event.type, event.object, Output(output.format))


def watch_table(
    events: Iterable[Event], columns: Sequence[str], row: Callable[[Object], Sequence[str]], empty_message: str
) -> None:
    """Prints the initial list as a table, then a row for each event with the same column widths."""
    headers = ("EVENT", *columns)
    widths: list[int] | None = None
    rows: list[Sequence[str]] = []
    synced = False
    for event in events:
        if event.type == SYNCED:
            synced = True
        else:
            rows.append((event.type.ljust(len(MODIFIED)), *row(event.object)))
        if not synced:
            continue
        if not rows:
            print_note(empty_message)
        elif widths is None:
            widths = column_widths(headers, rows)
            print_table(headers, rows, empty_message)
        else:
            print_row(headers, rows[-1], widths)
        rows.clear()
