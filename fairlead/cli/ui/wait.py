"""Waits for objects to reach a state or to be deleted, and shows progress on stderr.

On a terminal, progress is a status line with a spinner; otherwise only the result is printed, by the command. With
`--verbose`, each change is a line.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui.describe import describe_condition
from fairlead.cli.ui.durations import format_duration
from fairlead.cli.ui.output import escape_control, print_note
from fairlead.client import ApiStatusError, Client, ClientError, DeadlineExceeded, Event
from fairlead.client.client import quote_segment
from fairlead.client.watch import DELETED, SYNCED
from fairlead.core.objects import Object, get_path, name_of

INTERRUPTED_EXIT_CODE = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""

NEGATIVE_CONDITIONS = ("Stalled",)
"""Conditions that are True if something is wrong."""
SUMMARY_CONDITIONS = ("Ready", "Stalled")
"""Conditions with the message of the one that decides."""

ProgressCallback = Callable[[str], None]

_is_verbose = ContextVar("VERBOSE", default=False)
"""Whether the running command has the flag --verbose."""


def _set_verbose(value: bool) -> bool:
    _is_verbose.set(value)
    return value


VerboseFlag = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print each step of the wait.", callback=_set_verbose),
]
"""A flag of each command that waits with `show_progress`, which reads it."""


@contextmanager
def show_progress(initial_message: str) -> Iterator[ProgressCallback]:
    """Yields a function that updates the progress message. Ctrl-C stops the wait, not the operation on the server."""
    try:
        with _choose_display(initial_message) as update:
            yield update
    except KeyboardInterrupt:
        print_note("stopped waiting; the operation continues on the server")
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None


def _choose_display(initial_message: str) -> AbstractContextManager[ProgressCallback]:
    if _is_verbose.get():
        return _progress_lines(initial_message)
    return _spinner(initial_message) if sys.stderr.isatty() else nullcontext(_show_nothing)


def _show_nothing(message: str) -> None:
    return None


@contextmanager
def _spinner(initial_message: str) -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True, markup=False, emoji=False, highlight=False).status(
        Text(escape_control(initial_message))
    ) as status:
        yield lambda message: status.update(Text(escape_control(message)))


@contextmanager
def _progress_lines(initial_message: str) -> Iterator[ProgressCallback]:
    last = initial_message
    print_note(initial_message)

    def update(message: str) -> None:
        nonlocal last
        if message != last:
            print_note(message)
            last = message

    yield update


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object, and the path of its resource. The uid distinguishes it from a later object of the same name.
    `version`: its resourceVersion when it was read."""

    path: str
    name: str
    uid: str
    version: str = ""


def object_ref(client: Client, plural: str, obj: Object) -> ObjectRef:
    path = client.path(plural, namespace=str(get_path(obj, "metadata.namespace") or ""))
    version = str(get_path(obj, "metadata.resourceVersion") or "")
    return ObjectRef(path, name_of(obj), str(get_path(obj, "metadata.uid") or ""), version)


def watch_object(client: Client, ref: ObjectRef, seconds: float = math.inf) -> Iterator[Object]:
    """Yields the object, then each new version, until it is deleted. Raises DeadlineExceeded after `seconds`."""
    for event in _watch_events(client, ref, seconds):
        if event.type != DELETED:
            yield event.object


def _watch_events(client: Client, ref: ObjectRef, seconds: float, since: str = "") -> Iterator[Event]:
    """Yields the events of the object. The last one is its deletion, with its last state, if that was not missed: it is
    not with `since`, a resourceVersion from before the deletion."""
    exists = False
    fields = f"metadata.name={ref.name}"
    for event in client.watch_path(ref.path, fields=fields, seconds=seconds, since=since):
        if event.type == SYNCED and exists:
            continue
        if event.type == SYNCED or get_path(event.object, "metadata.uid") != ref.uid:
            return
        yield event
        if event.type == DELETED:
            return
        exists = True


def changed_conditions(before: Object, after: Object) -> list[str]:
    """A line for each condition that is new or has changed."""
    known = {describe_condition(each) for each in _list_conditions(before)}
    return [line for each in _list_conditions(after) if (line := describe_condition(each)) not in known]


def failed_conditions(obj: Object) -> list[str]:
    """A line for each condition that says that something is wrong."""
    return [
        describe_condition(each)
        for each in _list_conditions(obj)
        if each.get("status") == ("True" if each.get("type") in NEGATIVE_CONDITIONS else "False")
    ]


def distinct_failures(obj: Object) -> list[str]:
    """Like `failed_conditions`, but each message once: conditions that summarize others repeat theirs."""
    failed = [each for each in _list_conditions(obj) if describe_condition(each) in failed_conditions(obj)]
    causes = [each for each in failed if each.get("type") not in SUMMARY_CONDITIONS]
    known: list[str] = []
    lines = []
    for each in (*causes, *(each for each in failed if each not in causes)):
        message = str(each.get("message") or "")
        if message and not any(message in other or other in message for other in known):
            lines.append(describe_condition(each))
            known.append(message)
    return lines


def _list_conditions(obj: Object) -> list[Object]:
    return [each for each in get_path(obj, "status.conditions") or () if isinstance(each, dict)]


def wait_deleted(
    client: Client, ref: ObjectRef, describe: Callable[[Object], str], seconds: int, advice: str = ""
) -> Object:
    """Waits until the object is deleted. Returns its last state, which says what is left behind; empty if that was
    missed. The reference is from before the deletion. `describe` returns what that is waiting for, and `advice` says
    how not to wait for it."""
    last = ""
    state: Object = {}

    def explain(obj: Object) -> str:
        return describe(obj) or describe_finalizers(obj)

    try:
        with show_progress(f"waiting for {ref.name} to be deleted") as update:
            for event in _watch_deletion(client, ref, seconds):
                state = event.object
                if event.type != DELETED and (message := explain(state)):
                    last = message
                    update(message)
    except ApiStatusError as problem:
        # Rights that come from the object end with it. The object was read before, so this means that it is gone.
        if problem.code != 403 or _read(client, ref) is not None:
            raise
    except DeadlineExceeded:
        # Nothing has changed since it was read if it was being deleted before.
        last = last or explain(_read(client, ref) or {})
        raise ClientError(
            f"{ref.name} is not deleted after {format_duration(seconds)}"
            + (f": {last}" if last else "")
            + "; the server continues; use a longer --timeout to wait longer"
            + (f"; {advice}" if advice else "")
        ) from None
    return state


def _watch_deletion(client: Client, ref: ObjectRef, seconds: float) -> Iterator[Event]:
    """Begins before the deletion: the object may be gone already, and then only its last event has its last state."""
    try:
        yield from _watch_events(client, ref, seconds, ref.version)
    except ApiStatusError as problem:
        if problem.code != 410 or not ref.version:
            raise
        yield from _watch_events(client, ref, seconds)


def _read(client: Client, ref: ObjectRef) -> Object | None:
    """The object as it is now; None if it cannot be read."""
    try:
        found: Object = client.send("GET", f"{ref.path}/{quote_segment(ref.name)}")
    except ApiStatusError:
        return None
    return found


def abandoned_messages(obj: Object) -> list[str]:
    """What the deletion of an object has left behind in a cluster, by the conditions of its last state."""
    return [str(each.get("message") or "") for each in _list_conditions(obj) if each.get("reason") == "Abandoned"]


def describe_finalizers(obj: Object) -> str:
    finalizers = ", ".join(map(str, get_path(obj, "metadata.finalizers") or ()))
    return f"being deleted: waiting for the finalizers {finalizers}" if finalizers else ""
