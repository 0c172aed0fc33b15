"""Lists: selectors, paging through a consistent snapshot with continue tokens, and resourceVersion semantics."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import orjson

from fairlead.core.concurrency import COMPUTE, cut, in_slices, putting_together_large
from fairlead.core.errors import BadRequest, Details, Expired, Problem, Timeout
from fairlead.core.objects import Object
from fairlead.registry.codec import show_entry
from fairlead.registry.kind import Kind
from fairlead.registry.selectors import EVERYTHING, Selection, narrowing
from fairlead.registry.storage_errors import storage_errors
from fairlead.registry.write_options import Listed
from fairlead.storage.contract import Compacted
from fairlead.storage.view.collection import AT_ONCE
from fairlead.storage.view.sorted_chunks import PIECE_BYTES
from fairlead.storage.view.view import Entry, Stretch, View

_NOT_OURS = "invalid continue token: continue key is not valid: pass metadata.continue of the previous page unchanged"

WHATEVER_REVISION = -1
"""In a continue token sent with a 410: continue in the latest state of the list, which is then inconsistent."""


@dataclass(frozen=True, slots=True)
class Position:
    """A continue token: the snapshot that is paged through, and the last key of the previous page."""

    revision: int
    after: tuple[str, str]

    def token(self) -> str:
        document = {"v": "meta.k8s.io/v1", "rv": self.revision, "after": self.after}
        return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


def parse_token(token: str) -> Position:
    """Decodes a continue token. Anything else is a 400."""
    try:
        padded = token.encode() + b"=" * (-len(token) % 4)
        document = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        revision, (namespace, name) = document["rv"], document["after"]
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise BadRequest(_NOT_OURS) from None
    if type(revision) is not int or not isinstance(namespace, str) or not isinstance(name, str):
        raise BadRequest(_NOT_OURS)
    return Position(revision, (namespace, name))


FRESH_SECONDS = 3.0
"""How long a request waits for a resourceVersion that this server does not have yet."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The options of a list. `version` is None for the latest state; `exact` requests exactly that snapshot."""

    selection: Selection = EVERYTHING
    limit: int = 0
    token: str = ""
    version: int | None = None
    exact: bool = False
    sees: Callable[[Entry], bool] | None = None
    """Which entries the requester may see; None for all."""


class TooOld(Expired):
    """An expired continue token, with a new one that continues at the same key in the latest state."""

    def __init__(self, token: str) -> None:
        super().__init__(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were "
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
            "list."
        )
        self.token = token


async def wait_for_version(view: View, version: int | None) -> None:
    """Waits until the view is at least at `version` (None: at everything acknowledged so far)."""
    if version is not None and view.revision >= version:
        return
    try:
        async with asyncio.timeout(FRESH_SECONDS):
            with storage_errors():
                await (view.fresh() if version is None else view.reached(version))
    except TimeoutError:
        if version is None:
            message = "the server's view of its store is not up to date; try again"
            raise Timeout(message, Details(retry_after=1)) from None
        problem = Problem("", "ResourceVersionTooLarge", "Too large resource version")
        details = Details(problems=(problem,), retry_after=1)
        raise Timeout(f"Too large resource version: {version}, current: {view.revision}", details) from None


async def list_entries(view: View, kind: Kind, namespace: str, query: ListQuery) -> Listed:
    """One page of a list, or all of it."""
    listed = await _listed(view, kind, namespace, query)
    if kind.form is None:
        return listed
    return replace(listed, entries=await changed_entries(listed.entries, lambda entry: show_entry(kind, entry)))


async def changed_entries(entries: Iterable[Entry], change: Callable[[Entry], Entry]) -> list[Entry]:
    """Maps entries, yielding to the event loop between batches."""
    return [change(entry) async for some in in_slices(entries, _size) for entry in some]


def _size(entry: Entry) -> int:
    return len(entry.body)


async def _listed(view: View, kind: Kind, namespace: str, query: ListQuery) -> Listed:
    if query.token:
        return await _next_page(view, kind, namespace, query)
    await wait_for_version(view, query.version)
    if query.selection:
        await view.prepare(kind.place, narrowing(query.selection))
    at = query.version if query.exact else None
    try:
        return await _page(view, kind, namespace, query, Position(view.revision if at is None else at, ("", "")))
    except Compacted:
        raise Expired("The resourceVersion for the provided list is too old.") from None


async def _next_page(view: View, kind: Kind, namespace: str, query: ListQuery) -> Listed:
    if query.version:
        raise BadRequest("specifying resource version is not allowed when using continue")
    position = parse_token(query.token)
    if position.revision == WHATEVER_REVISION:
        position = Position(view.revision, position.after)
    await wait_for_version(view, position.revision)
    if query.selection:
        await view.prepare(kind.place, narrowing(query.selection))
    try:
        return await _page(view, kind, namespace, query, position)
    except Compacted:
        raise TooOld(Position(WHATEVER_REVISION, position.after).token()) from None


async def _page(view: View, kind: Kind, namespace: str, query: ListQuery, position: Position) -> Listed:
    revision, limit = position.revision, max(0, query.limit)
    if query.selection or query.sees:
        selected = await _chosen(view, kind, namespace, query, position)
        if not limit or len(selected) <= limit:
            return Listed(selected, revision)
        return Listed(selected[:limit], revision, _token(selected[limit - 1], revision))
    entries, rest = view.page(kind.place, namespace, after=position.after, at=revision, limit=limit)
    if rest <= 0:
        return Listed(entries, revision)
    last = entries.last if isinstance(entries, Stretch) else entries[-1]
    return Listed(entries, revision, _token(last, revision), rest)


def _token(last: Entry, revision: int) -> str:
    return Position(revision, (last.key[2], last.key[3])).token()


async def _chosen(view: View, kind: Kind, namespace: str, query: ListQuery, position: Position) -> list[Entry]:
    """The entries after the position that match the selector and that the requester may see."""
    selection, sees = query.selection, query.sees
    entries = view.candidates(kind.place, namespace, narrowing(selection), after=position.after, at=position.revision)
    entries = await _filtered(entries, selection.takes, selection.rows_at_once(AT_ONCE)) if selection else entries
    return await _filtered(entries, lambda entry: sees(entry) and _still(view, entry, sees)) if sees else entries


async def _filtered(entries: list[Entry], takes: Callable[[Entry], bool], at_once: int = AT_ONCE) -> list[Entry]:
    """Filters entries, yielding to the event loop between batches."""
    if len(entries) <= at_once:
        return [entry for entry in entries if takes(entry)]
    selected: list[Entry] = []
    for start in range(0, len(entries), at_once):
        selected += [entry for entry in entries[start : start + at_once] if takes(entry)]
        await asyncio.sleep(0)
    return selected


def _still(view: View, entry: Entry, sees: Callable[[Entry], bool]) -> bool:
    """Whether the requester may see the entry's current state: an old snapshot must not show objects no longer
    permitted."""
    current = view.get(entry.key)
    return current is entry or (current is not None and sees(current))


def list_metadata(listed: Listed) -> Object:
    """The metadata of a list."""
    metadata: Object = {"resourceVersion": str(listed.revision)}
    if listed.token:
        metadata["continue"] = listed.token
    if listed.remaining:
        metadata["remainingItemCount"] = listed.remaining
    return metadata


async def list_body(kind: Kind, listed: Listed) -> bytes:
    """The list as JSON, joined from the encoded objects.

    A large list is joined in a thread: joining more than a megabyte releases the GIL, so the event loop is not blocked.
    """
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": list_metadata(listed)}
    prefix = orjson.dumps(head)[:-1] + b',"items":['
    groups = cut(_items(kind, listed), len, PIECE_BYTES)
    first = next(groups, [])
    if next(groups, None) is None:
        return b"%b%b]}" % (prefix, b",".join(first))
    del groups, first  # hold no large data while waiting
    async with putting_together_large():
        pieces, size = [prefix], 0
        async for some in in_slices(_items(kind, listed), len, PIECE_BYTES):
            for piece in some:
                size += len(piece)
                pieces += (piece, b",")
        pieces[-1] = b"]}"
        return await COMPUTE.run(size, b"".join, pieces)


def _items(kind: Kind, listed: Listed) -> Iterable[bytes]:
    """The encoded objects, joined in groups."""
    join, entries = partial(_without_types, kind) if kind.builtin else _joined, listed.entries
    return entries.joined(join) if isinstance(entries, Stretch) else map(join, cut(entries, _size, PIECE_BYTES))


def _joined(entries: Sequence[Entry]) -> bytes:
    return b",".join([entry.body for entry in entries])


def _without_types(kind: Kind, entries: Sequence[Entry]) -> bytes:
    """Items of built-in kinds have no apiVersion and kind."""
    types = len(b'{"apiVersion":"%b","kind":"%b",' % (kind.api_version.encode(), kind.name.encode()))
    return b",".join([b"{" + entry.body[types:] for entry in entries])
