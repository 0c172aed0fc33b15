"""Waiting for the server: what it is about at the moment, and when it is over.

At a terminal that is one line which changes, elsewhere a line for each piece of news; on stderr both.
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
"""The exit code of what Ctrl-C has ended, as shells have it."""

Tell = Callable[[str], None]


@contextmanager
def progress(first: str) -> Iterator[Tell]:
    """Hands over a function to be called with each piece of news. Ctrl-C ends the waiting, not what is waited for."""
    try:
        with _at_a_terminal(first) if sys.stderr.isatty() else _in_lines(first) as tell:
            yield tell
    except KeyboardInterrupt:
        note("stopped waiting; it goes on without you")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _at_a_terminal(first: str) -> Iterator[Tell]:
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True, markup=False, emoji=False, highlight=False).status(Text(plain(first))) as status:
        yield lambda news: status.update(Text(plain(news)))


@contextmanager
def _in_lines(first: str) -> Iterator[Tell]:
    said = first
    note(first)

    def tell(news: str) -> None:
        nonlocal said
        if news != said:
            note(news)
            said = news

    yield tell


@dataclass(frozen=True, slots=True)
class Awaited:
    """One object, and no later one of its name."""

    plural: str
    name: str
    uid: str
    namespace: str = ""


def awaited(plural: str, obj: Object) -> Awaited:
    place = str(dig(obj, "metadata.namespace") or "")
    return Awaited(plural, name_of(obj), str(dig(obj, "metadata.uid") or ""), place)


def states(client: Client, what: Awaited, seconds: float = math.inf) -> Iterator[Object]:
    """The object now and each time it changes; ends when the object is gone. Raises DeadlinePassed."""
    there = False
    fields = f"metadata.name={what.name}"
    for event in client.watch(what.plural, namespace=what.namespace, fields=fields, seconds=seconds):
        if event.type == SYNCED and there:
            continue
        if event.type in (SYNCED, DELETED) or dig(event.object, "metadata.uid") != what.uid:
            return
        there = True
        yield event.object


def until_gone(client: Client, what: Awaited, told: Callable[[Object], str]) -> None:
    """`told` says what the object waits for."""
    with progress(f"waiting for {what.name} to be gone") as tell:
        for state in states(client, what):
            if news := told(state):
                tell(news)
