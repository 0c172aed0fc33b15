"""Waits for objects to reach a state or to be deleted, and shows progress on stderr.

On a terminal, progress is a status line with a spinner; otherwise one line for each change.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer

from fairlead.cli.ui.output import escape_control, print_note
from fairlead.client import Client
from fairlead.client.watch import DELETED, SYNCED
from fairlead.core.objects import Object, get_path, name_of

INTERRUPTED_EXIT_CODE = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""

ProgressCallback = Callable[[str], None]


@contextmanager
def show_progress(initial_message: str) -> Iterator[ProgressCallback]:
    """Yields a function that updates the progress message. Ctrl-C stops the wait, not the operation on the server."""
    try:
        with _spinner(initial_message) if sys.stderr.isatty() else _progress_lines(initial_message) as update:
            yield update
    except KeyboardInterrupt:
        print_note("stopped waiting; the operation continues on the server")
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None


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
    """Reference to an object. The uid distinguishes it from a later object of the same name."""

    plural: str
    name: str
    uid: str
    namespace: str = ""


def object_ref(plural: str, obj: Object) -> ObjectRef:
    namespace = str(get_path(obj, "metadata.namespace") or "")
    return ObjectRef(plural, name_of(obj), str(get_path(obj, "metadata.uid") or ""), namespace)


def watch_object(client: Client, ref: ObjectRef, seconds: float = math.inf) -> Iterator[Object]:
    """Yields the object, then each new version, until it is deleted. Raises DeadlineExceeded after `seconds`."""
    exists = False
    fields = f"metadata.name={ref.name}"
    for event in client.watch(ref.plural, namespace=ref.namespace, fields=fields, seconds=seconds):
        if event.type == SYNCED and exists:
            continue
        if event.type in (SYNCED, DELETED) or get_path(event.object, "metadata.uid") != ref.uid:
            return
        exists = True
        yield event.object


def wait_deleted(client: Client, ref: ObjectRef, describe: Callable[[Object], str]) -> None:
    """Waits until the object is deleted. `describe` returns what the deletion is waiting for."""
    with show_progress(f"waiting for {ref.name} to be deleted") as update:
        for state in watch_object(client, ref):
            if message := describe(state):
                update(message)
