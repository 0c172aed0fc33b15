"""Waits for objects to reach a state or to be deleted, and shows progress on stderr.

On a terminal, progress is a status line with a spinner; otherwise one line for each change.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer

from fairlead.cli.ui.output import note, plain
from fairlead.client import Client
from fairlead.client.watch import DELETED, SYNCED
from fairlead.core.objects import Object, dig, name_of

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""

Tell = Callable[[str], None]


@contextmanager
def progress(first: str) -> Iterator[Tell]:
    """Yields a function that updates the progress message. Ctrl-C stops the wait, not the operation on the server."""
    try:
        with _at_a_terminal(first) if sys.stderr.isatty() else _in_lines(first) as update:
            yield update
    except KeyboardInterrupt:
        note("stopped waiting; the operation continues on the server")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _at_a_terminal(first: str) -> Iterator[Tell]:
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True, markup=False, emoji=False, highlight=False).status(Text(plain(first))) as status:
        yield lambda message: status.update(Text(plain(message)))


@contextmanager
def _in_lines(first: str) -> Iterator[Tell]:
    last = first
    note(first)

    def update(message: str) -> None:
        nonlocal last
        if message != last:
            note(message)
            last = message

    yield update


@dataclass(frozen=True, slots=True)
class Awaited:
    """Reference to an object. The uid distinguishes it from a later object of the same name."""

    plural: str
    name: str
    uid: str
    namespace: str = ""


def awaited(plural: str, obj: Object) -> Awaited:
    namespace = str(dig(obj, "metadata.namespace") or "")
    return Awaited(plural, name_of(obj), str(dig(obj, "metadata.uid") or ""), namespace)


def states(client: Client, what: Awaited, seconds: float = math.inf) -> Iterator[Object]:
    """Yields the object, then each new version, until it is deleted. Raises DeadlinePassed after `seconds`."""
    exists = False
    fields = f"metadata.name={what.name}"
    for event in client.watch(what.plural, namespace=what.namespace, fields=fields, seconds=seconds):
        if event.type == SYNCED and exists:
            continue
        if event.type in (SYNCED, DELETED) or dig(event.object, "metadata.uid") != what.uid:
            return
        exists = True
        yield event.object


def until_gone(client: Client, what: Awaited, told: Callable[[Object], str]) -> None:
    """Waits until the object is deleted. `describe` returns what the deletion is waiting for."""
    with progress(f"waiting for {what.name} to be deleted") as update:
        for state in states(client, what):
            if message := told(state):
                update(message)
