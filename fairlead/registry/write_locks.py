"""Tickets: records that all writers of one thing write too, so that of those who decide at once only one gets through.

A rule that counts objects takes the ticket as the view shows it, counts in the same view, and hangs the ticket's next
revision onto the commit. Whoever has committed meanwhile has taken the ticket; the commit is refused, and the write is
decided again. No kind serves these records, so they are seen in no list and by no watch.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakValueDictionary

from fairlead.registry.codec import encode
from fairlead.storage.contract import Change, Key
from fairlead.storage.view.view import View

TICKETS = "quotatickets"


def key_of(api_group: str, project: str) -> Key:
    """Where a project's ticket is stored."""
    return (api_group, TICKETS, "", project)


def is_ticket(key: Key) -> bool:
    return key[1] == TICKETS


def taken(view: View, key: Key) -> Change:
    """The write that takes a ticket in the state that the view shows now."""
    entry = view.get(key)
    value = encode({"apiVersion": f"{key[0]}/v1", "kind": "QuotaTicket", "metadata": {"name": key[3]}})
    return Change(key, value, entry.revision if entry is not None else 0)


def removed(view: View, key: Key) -> Change | None:
    """The write that removes a ticket; None where there is none."""
    entry = view.get(key)
    return None if entry is None else Change(key, None, entry.revision)


class Turns:
    """Those who have lost a ticket to somebody try again one after the other: if all of them did so at once, only one
    of them would get on each time, and the last might give up before its turn."""

    first: AbstractAsyncContextManager[None] = nullcontext()
    """How everybody begins: there is nothing to wait for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    def after(self, lost: Key) -> AbstractAsyncContextManager[None]:
        """What to wait for when a commit was refused because of this key."""
        if not is_ticket(lost):
            return self.first
        lock = self._locks.get(lost)
        if lock is None:
            lock = self._locks[lost] = asyncio.Lock()
        return lock
