"""Lists: selectors, paging through a consistent snapshot with continue tokens, and resourceVersion semantics."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import orjson

from fairlead.core.concurrency import COMPUTE_POOL, iter_slices, large_response_slot, split_by_size
from fairlead.core.errors import BadRequest, Details, Expired, Problem, Timeout
from fairlead.core.objects import Object
from fairlead.registry.codec import convert_entry
from fairlead.registry.kind import Kind
from fairlead.registry.selectors import EVERYTHING, Selector, index_conditions
from fairlead.registry.storage_errors import translate_storage_errors
from fairlead.registry.write_options import ListPage
from fairlead.storage.contract import Compacted
from fairlead.storage.view.collection import MAX_ENTRIES_PER_STEP
from fairlead.storage.view.sorted_chunks import MAX_JOIN_BYTES
from fairlead.storage.view.view import ChunkSlice, Entry, View

_INVALID_TOKEN = (
    "invalid continue token: continue key is not valid: pass metadata.continue of the previous page unchanged"
)

LATEST_REVISION = -1
"""In a continue token sent with a 410: continue in the latest state of the list, which is then inconsistent."""


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """A continue token: the snapshot that is paged through, and the last key of the previous page."""

    revision: int
    after: tuple[str, str]

    def encode(self) -> str:
        document = {"v": "meta.k8s.io/v1", "rv": self.revision, "after": self.after}
        return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


def parse_continue_token(token: str) -> ContinueToken:
    """Decodes a continue token. Anything else is a 400."""
    try:
        padded = token.encode() + b"=" * (-len(token) % 4)
        document = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        revision, (namespace, name) = document["rv"], document["after"]
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise BadRequest(_INVALID_TOKEN) from None
    if type(revision) is not int or not isinstance(namespace, str) or not isinstance(name, str):
        raise BadRequest(_INVALID_TOKEN)
    return ContinueToken(revision, (namespace, name))


WAIT_TIMEOUT_SECONDS = 3.0
"""How long a request waits for a resourceVersion that this server does not have yet."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The options of a list. `version` is None for the latest state; `exact` requests exactly that snapshot."""

    selector: Selector = EVERYTHING
    limit: int = 0
    continue_token: str = ""
    version: int | None = None
    exact: bool = False
    is_visible: Callable[[Entry], bool] | None = None
    """Which entries the requester may see; None for all."""


class ContinueExpired(Expired):
    """An expired continue token, with a new one that continues at the same key in the latest state."""

    def __init__(self, continue_token: str) -> None:
        super().__init__(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were "
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
            "list."
        )
        self.continue_token = continue_token


async def wait_for_version(view: View, version: int | None) -> None:
    """Waits until the view is at least at `version` (None: at everything acknowledged so far)."""
    if version is not None and view.revision >= version:
        return
    try:
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            with translate_storage_errors():
                await (view.wait_current() if version is None else view.wait_for(version))
    except TimeoutError:
        if version is None:
            message = "the server's view of its store is not up to date; try again"
            raise Timeout(message, Details(retry_after=1)) from None
        problem = Problem("", "ResourceVersionTooLarge", "Too large resource version")
        details = Details(problems=(problem,), retry_after=1)
        raise Timeout(f"Too large resource version: {version}, current: {view.revision}", details) from None


async def list_entries(view: View, kind: Kind, namespace: str, query: ListQuery) -> ListPage:
    """One page of a list, or all of it."""
    listed = await _list_page(view, kind, namespace, query)
    if kind.conversion is None:
        return listed
    return replace(listed, entries=await map_entries(listed.entries, lambda entry: convert_entry(kind, entry)))


async def map_entries(entries: Iterable[Entry], change: Callable[[Entry], Entry]) -> list[Entry]:
    """Maps entries, yielding to the event loop between batches."""
    return [change(entry) async for some in iter_slices(entries, _entry_size) for entry in some]


def _entry_size(entry: Entry) -> int:
    return len(entry.body)


async def _list_page(view: View, kind: Kind, namespace: str, query: ListQuery) -> ListPage:
    if query.continue_token:
        return await _next_page(view, kind, namespace, query)
    await wait_for_version(view, query.version)
    if query.selector:
        await view.build_indexes(kind.stored_resource, index_conditions(query.selector))
    at = query.version if query.exact else None
    try:
        return await _page(view, kind, namespace, query, ContinueToken(view.revision if at is None else at, ("", "")))
    except Compacted:
        raise Expired("The resourceVersion for the provided list is too old.") from None


async def _next_page(view: View, kind: Kind, namespace: str, query: ListQuery) -> ListPage:
    if query.version:
        raise BadRequest("specifying resource version is not allowed when using continue")
    position = parse_continue_token(query.continue_token)
    if position.revision == LATEST_REVISION:
        position = ContinueToken(view.revision, position.after)
    await wait_for_version(view, position.revision)
    if query.selector:
        await view.build_indexes(kind.stored_resource, index_conditions(query.selector))
    try:
        return await _page(view, kind, namespace, query, position)
    except Compacted:
        raise ContinueExpired(ContinueToken(LATEST_REVISION, position.after).encode()) from None


async def _page(view: View, kind: Kind, namespace: str, query: ListQuery, token: ContinueToken) -> ListPage:
    revision, limit = token.revision, max(0, query.limit)
    if query.selector or query.is_visible:
        selected = await _select_entries(view, kind, namespace, query, token)
        if not limit or len(selected) <= limit:
            return ListPage(selected, revision)
        return ListPage(selected[:limit], revision, _continue_token(selected[limit - 1], revision))
    entries, rest = view.page(kind.stored_resource, namespace, after=token.after, at=revision, limit=limit)
    if rest <= 0:
        return ListPage(entries, revision)
    last = entries.last if isinstance(entries, ChunkSlice) else entries[-1]
    return ListPage(entries, revision, _continue_token(last, revision), rest)


def _continue_token(last: Entry, revision: int) -> str:
    return ContinueToken(revision, (last.key[2], last.key[3])).encode()


async def _select_entries(
    view: View, kind: Kind, namespace: str, query: ListQuery, token: ContinueToken
) -> list[Entry]:
    """The entries after the position that match the selector and that the requester may see."""
    selection, is_visible = query.selector, query.is_visible
    entries = view.index_scan(
        kind.stored_resource, namespace, index_conditions(selection), after=token.after, at=token.revision
    )
    entries = (
        await _filter_entries(entries, selection.matches, selection.batch_size(MAX_ENTRIES_PER_STEP))
        if selection
        else entries
    )
    return (
        await _filter_entries(entries, lambda entry: is_visible(entry) and _is_still_visible(view, entry, is_visible))
        if is_visible
        else entries
    )


async def _filter_entries(
    entries: list[Entry], predicate: Callable[[Entry], bool], batch_size: int = MAX_ENTRIES_PER_STEP
) -> list[Entry]:
    """Filters entries, yielding to the event loop between batches."""
    if len(entries) <= batch_size:
        return [entry for entry in entries if predicate(entry)]
    selected: list[Entry] = []
    for start in range(0, len(entries), batch_size):
        selected += [entry for entry in entries[start : start + batch_size] if predicate(entry)]
        await asyncio.sleep(0)
    return selected


def _is_still_visible(view: View, entry: Entry, is_visible: Callable[[Entry], bool]) -> bool:
    """Whether the requester may see the entry's current state: an old snapshot must not show objects no longer
    permitted."""
    current = view.get(entry.key)
    return current is entry or (current is not None and is_visible(current))


def list_metadata(page: ListPage) -> Object:
    """The metadata of a list."""
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining_count:
        metadata["remainingItemCount"] = page.remaining_count
    return metadata


async def encode_list(kind: Kind, page: ListPage) -> bytes:
    """The list as JSON, joined from the encoded objects.

    A large list is joined in a thread: joining more than a megabyte releases the GIL, so the event loop is not blocked.
    """
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": list_metadata(page)}
    prefix = orjson.dumps(head)[:-1] + b',"items":['
    groups = split_by_size(_join_items(kind, page), len, MAX_JOIN_BYTES)
    first = next(groups, [])
    if next(groups, None) is None:
        return b"%b%b]}" % (prefix, b",".join(first))
    del groups, first  # hold no large data while waiting
    async with large_response_slot():
        pieces, size = [prefix], 0
        async for some in iter_slices(_join_items(kind, page), len, MAX_JOIN_BYTES):
            for piece in some:
                size += len(piece)
                pieces += (piece, b",")
        pieces[-1] = b"]}"
        return await COMPUTE_POOL.run(size, b"".join, pieces)


def _join_items(kind: Kind, page: ListPage) -> Iterable[bytes]:
    """The encoded objects, joined in groups."""
    join, entries = partial(_join_without_types, kind) if kind.builtin else _join_bodies, page.entries
    return (
        entries.iter_joined(join)
        if isinstance(entries, ChunkSlice)
        else map(join, split_by_size(entries, _entry_size, MAX_JOIN_BYTES))
    )


def _join_bodies(entries: Sequence[Entry]) -> bytes:
    return b",".join([entry.body for entry in entries])


def _join_without_types(kind: Kind, entries: Sequence[Entry]) -> bytes:
    """Items of built-in kinds have no apiVersion and kind."""
    types = len(b'{"apiVersion":"%b","kind":"%b",' % (kind.api_version.encode(), kind.name.encode()))
    return b",".join([b"{" + entry.body[types:] for entry in entries])
