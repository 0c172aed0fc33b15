"""Create, get, update, patch, apply and delete for any kind. Every write goes through here; reads come from the view.

A write is a function of the old object, run in a compare-and-swap loop: validate, preserve server-set fields, the
kind's own rules, admission, managedFields, commit.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, islice
from typing import Any

import orjson

from fairlead.core.clock import Clock, timestamp
from fairlead.core.concurrency import COMPUTE, LARGE
from fairlead.core.errors import MAX_PROBLEMS, AlreadyExists, BadRequest, Conflict, Invalid, NotFound, Problem, TooLarge
from fairlead.core.json import is_too_deep
from fairlead.core.objects import Object, identical, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry import deletion, request_body, update_rules
from fairlead.registry import metadata as meta
from fairlead.registry.codec import as_stored, decode, encode, served, show_body, show_entry, shown_once, stamped
from fairlead.registry.kind import Change, Kind
from fairlead.registry.patching.apply import Applying
from fairlead.registry.patching.managed_fields import (
    APPLY,
    UPDATE,
    Writer,
    record_apply,
    record_problems,
    record_update,
)
from fairlead.registry.patching.merge_schema import shapes_of
from fairlead.registry.request_body import Sent
from fairlead.registry.storage_errors import storage_errors
from fairlead.registry.url_rules import link_problems, links_of
from fairlead.registry.validate import Validator
from fairlead.registry.write_locks import Turns, is_ticket
from fairlead.registry.write_only_fields import keep_hidden
from fairlead.registry.write_options import Deleted, Deleting, Writing
from fairlead.storage import contract
from fairlead.storage.contract import Key, Store
from fairlead.storage.view.view import Entry, View

ATTEMPTS = 100  # per write that loses races; each lost race is progress of another writer
OBJECT_LIMIT = 6 * 1024 * 1024  # patches may not make an object larger
DRAWS = 8  # random names to try for a generateName

Admission = Callable[[Change], Awaitable[None]]
Edit = Callable[[Object], Object]
"""From the current object (not to be changed) to the proposed one (which the registry may change)."""


class Resource:
    """The objects of one kind."""

    def __init__(self, kind: Kind, store: Store, view: View, admit: Admission, clock: Clock) -> None:
        self.kind = kind
        self.view = view
        self._store = store
        self._admit = admit
        self._clock = clock
        self._validator = Validator(kind.schema())
        self.shapes = shapes_of(kind)
        self._applying = Applying.of(kind, self.shapes)
        self._links = links_of(kind)
        self._turns = Turns()

    def peek(self, namespace: str, name: str) -> Entry | None:
        """The object as it is in the view now."""
        return self.view.get(self.kind.key(namespace, name))

    def at_once(self, namespace: str, name: str) -> Entry | None:
        """Like `get`, but only if the view is current. None if the caller has to wait."""
        return self._existing(namespace, name) if self.view.is_fresh() else None

    async def get(self, namespace: str, name: str) -> Entry:
        """The object, including every write acknowledged before the call."""
        with storage_errors():
            await self.view.fresh()
        return self._existing(namespace, name)

    def _existing(self, namespace: str, name: str) -> Entry:
        entry = self.peek(namespace, name)
        if entry is None:
            raise NotFound.of(self.kind.plural, self.kind.group, name)
        return show_entry(self.kind, entry)

    async def create(self, body: Any, namespace: str, writing: Writing, duplicates: Sequence[str] = ()) -> bytes:
        """Stores a new object and returns the response body."""
        kind = self.kind
        obj = request_body.as_object(body, kind)
        arguments = obj, kind, self._validator, writing, Sent(duplicates)
        small = writing.size <= LARGE
        found = (
            request_body.shape(*arguments) if small else await COMPUTE.run(writing.size, request_body.shape, *arguments)
        )
        problems = update_rules.problems_of_part(kind, found)
        request_body.settle_place(obj, kind, namespace)
        obj_meta = obj["metadata"]
        if obj_meta.pop("resourceVersion", None):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        prefix = "" if obj_meta.get("name") else obj_meta.get("generateName", "")
        collisions, one_time, lock = 0, dict[str, str](), self._turns.first
        for _ in range(ATTEMPTS):
            if prefix:
                obj_meta["name"] = meta.generated_name(prefix)
            change = Change("create", kind, writing.user, None, obj, dry_run=writing.dry_run, once=one_time)
            try:
                async with lock:
                    await self._settle(change, problems, writing)
                    writing.tell(change.warnings)
                    return shown_once(await self._commit(change, writing, 0, writing.size), one_time)
            except contract.Conflict as conflict:
                lock = self._turns.after(conflict.key)
                exists = conflict.expected == 0 and not is_ticket(conflict.key)
                collisions += exists
                if exists and (not prefix or collisions == DRAWS):
                    raise self._taken(conflict.key) from None
                await self._catch_up()
        raise Conflict.of(kind.plural, kind.group, name_of(obj), update_rules.MODIFIED)

    def _taken(self, key: Key) -> AlreadyExists:
        is_same_kind = key[:2] == self.kind.place
        group, plural = (self.kind.group, self.kind.plural) if is_same_kind else key[:2]
        error = AlreadyExists.of(plural, group, key[3])
        entry = self.view.get(key)
        if entry is not None and "deletionTimestamp" in metadata(decode(entry)):
            error.message = f"object is being deleted: {error.message}"
        return error

    async def draft(self, obj: Object, writing: Writing) -> contract.Change:
        """The storage write that creates an object, to be added to the commit of another write."""
        change = Change("create", self.kind, writing.user, None, obj, dry_run=writing.dry_run)
        await self._settle(change, (), writing)
        return contract.Change(self._key(obj), encode(as_stored(self.kind, obj)), 0)

    async def arriving(self, obj: Object, writing: Writing) -> Change:
        """Admits an object that moves in from another namespace as a create. Its status and managedFields are kept."""
        change = Change("create", self.kind, writing.user, None, obj, dry_run=writing.dry_run, arriving=True)
        status = obj.get("status")
        self.kind.prepare(change)
        await self._admit(change)
        if self.kind.status_subresource and status is not None:
            obj["status"] = status
        self._refuse(change, ())
        return change

    async def leaving(self, old: Object, writing: Writing) -> Change:
        """Admits the removal of an object that moves to another namespace. Finalizers do not block it."""
        change = Change("delete", self.kind, writing.user, old, None, dry_run=writing.dry_run)
        await self._admit(change)
        return change

    async def _settle(self, change: Change, problems: Sequence[Problem], writing: Writing) -> None:
        """Defaults, admission, checks and managedFields of a new object. Safe to run again on a retry."""
        writer, size = self._writer(writing), writing.size
        if size <= LARGE:
            self._begin(change, problems, writer)
            await self._admit(change)
            self._conclude(change, problems, writing, writer)
        else:
            await COMPUTE.run(size, self._begin, change, problems, writer)
            await self._admit(change)
            await COMPUTE.run(size, self._conclude, change, problems, writing, writer)

    def _begin(self, change: Change, problems: Sequence[Problem], writer: Writer) -> None:
        obj, change.problems = change.obj, problems
        meta.begin(obj, writer.now, self.kind)
        if self.kind.status_subresource and "status" in obj:
            obj["status"] = {}
        if not problems:
            self.kind.prepare(change)

    def _conclude(self, change: Change, problems: Sequence[Problem], writing: Writing, writer: Writer) -> None:
        self._refuse(change, problems)
        self._record(change, writing, writer)

    async def modify(
        self, namespace: str, name: str, edit: Edit, writing: Writing, duplicates: Sequence[str] = ()
    ) -> bytes:
        """Replaces an object with the result of `edit`, retrying after every lost race."""
        for _ in range(ATTEMPTS):
            entry = self.at_once(namespace, name) or await self.get(namespace, name)
            size, arguments = max(writing.size, len(entry.body)), (entry, edit, (namespace, name), writing, duplicates)
            if size <= LARGE:
                change, problems = self._propose(*arguments)
                is_same = await self._reconcile(change, problems, writing)
            else:
                change, problems = await COMPUTE.run(size, self._propose, *arguments)
                is_same = await self._reconcile_large(size, change, problems, writing)
            writing.tell(change.warnings)
            if is_same:
                return entry.body
            try:
                return await self._commit(change, writing, entry.revision, size)
            except contract.Conflict:
                await self._catch_up()
        raise Conflict.of(self.kind.plural, self.kind.group, name, update_rules.MODIFIED)

    def _propose(
        self, entry: Entry, edit: Edit, place: tuple[str, str], writing: Writing, duplicates: Sequence[str]
    ) -> tuple[Change, list[Problem]]:
        old = decode(entry)
        proposed = edit(self._visible(entry, old, writing))
        try:
            new = request_body.as_object(proposed, self.kind)
            problems = request_body.shape(new, self.kind, self._validator, writing, Sent(duplicates, old))
        except BadRequest as error:
            raise request_body.blamed(error, writing) from None
        request_body.settle_place(new, self.kind, *place)
        if entry.whole and writing.user != CONTROLLER:  # the server itself sees write-only fields
            problems += keep_hidden(old, new, self.kind)
        problems = update_rules.problems_of_part(self.kind, problems, writing.subresource)
        return Change("update", self.kind, writing.user, old, new, writing.subresource, writing.dry_run), problems

    def _visible(self, entry: Entry, old: Object, writing: Writing) -> Object:
        """A patch must not copy a write-only field to a readable one. Without write-only fields there is no
        `full_body`."""
        visible: Object = old if not entry.whole or writing.user == CONTROLLER else orjson.loads(entry.body)
        return visible

    async def apply(
        self, config: Any, namespace: str, name: str, writing: Writing, duplicates: Sequence[str] = ()
    ) -> tuple[bytes, bool]:
        """Server-side apply; creates the object if needed. Returns the response body, and whether it was created."""
        small = writing.size <= LARGE
        wanted = (
            self._applying.checked(config) if small else await COMPUTE.run(writing.size, self._applying.checked, config)
        )
        if duplicates and writing.field_validation == "Strict":
            named = ", ".join(f'duplicate field "{path}"' for path in duplicates)
            raise BadRequest(meta.undecodable(self.kind, f"strict decoding error: {named}"))

        def edit(old: Object) -> Object:
            return self._applying.applied(old, wanted, self._writer(writing), force=writing.force)

        for _ in range(ATTEMPTS):
            try:
                return await self.modify(namespace, name, edit, writing, duplicates), False
            except NotFound:
                if writing.subresource or self.peek(namespace, name) is not None:
                    raise
            writing.before_creating()
            arguments = wanted, self._writer(writing)
            if small:
                new = self._applying.created(*arguments)
            else:
                new = await COMPUTE.run(writing.size, self._applying.created, *arguments)
            request_body.settle_place(new, self.kind, namespace, name)
            try:
                return await self.create(new, namespace, writing, duplicates), True
            except AlreadyExists:
                await self._catch_up()
                if self.peek(namespace, name) is None:
                    raise
        raise Conflict.of(self.kind.plural, self.kind.group, name, update_rules.MODIFIED)

    async def _reconcile(self, change: Change, problems: Sequence[Problem], writing: Writing) -> bool:
        """Server-set fields, defaults, admission, checks and managedFields of an update. Returns whether nothing
        changes."""
        self._before_admission(change, problems, writing)
        await self._admit(change)
        return self._after_admission(change, problems, writing)

    async def _reconcile_large(self, size: int, change: Change, problems: Sequence[Problem], writing: Writing) -> bool:
        """The same in a thread, except for admission, which reads other objects."""
        await COMPUTE.run(size, self._before_admission, change, problems, writing)
        await self._admit(change)
        return await COMPUTE.run(size, self._after_admission, change, problems, writing)

    def _before_admission(self, change: Change, problems: Sequence[Problem], writing: Writing) -> None:
        kind, old, new, change.problems = self.kind, change.old or {}, change.obj, problems
        update_rules.check_versions(kind, old, new, writing)
        meta.carry_over(old, new)
        update_rules.keep_apart(kind, old, new, writing.subresource)
        if not problems:
            kind.prepare(change)

    def _after_admission(self, change: Change, problems: Sequence[Problem], writing: Writing) -> bool:
        kind, old, new = self.kind, change.old or {}, change.obj
        self._refuse(
            change, [*problems, *meta.update_problems(old, new), *update_rules.immutable_problems(kind, old, new)]
        )
        if kind.tracks_generation and not update_rules.same_desire(old, new):
            metadata(new)["generation"] = metadata(old).get("generation", 0) + 1
        self._record(change, writing, self._writer(writing))
        return identical(old, new)

    def _refuse(self, change: Change, problems: Sequence[Problem]) -> None:
        """Raises all problems at once. A kind's own checks rely on a valid schema, so they come last."""
        links = link_problems(self._links, change)
        every = chain(problems, meta.problems(change.obj, self.kind), record_problems(change.obj), links)
        found = list(islice(every, 10 * MAX_PROBLEMS))
        if not problems:
            found.extend(islice(self.kind.check(change), 10 * MAX_PROBLEMS))
        if found:
            raise Invalid.of(self.kind.name, self.kind.place[0], name_of(change.obj), found)

    def _record(self, change: Change, writing: Writing, writer: Writer) -> None:
        if writing.applying:
            record_apply(change.old, change.obj, writer)
        else:
            shape = self.shapes.written[writing.subresource]
            record_update(change.old, change.obj, shape, writer, self.kind.empty)

    def _writer(self, writing: Writing) -> Writer:
        now, operation = timestamp(self._clock.now()), APPLY if writing.applying else UPDATE
        return Writer(writing.manager, self.kind.api_version, now, writing.subresource, operation)

    async def _commit(self, change: Change, writing: Writing, expected: int, size: int) -> bytes:
        """Stores a create or update, or removes an object whose deletion is complete with this write."""
        obj = change.obj
        value = self._encode(obj) if size <= LARGE else await COMPUTE.run(size, self._encode, obj)
        key = self._key(obj)
        gone = deletion.finished(obj, self.kind)
        if writing.dry_run:
            self._check_free([key] if expected == 0 else [], change)
            return await self._serve(value, expected)
        write = contract.Change(key, None if gone else value, expected)
        revision = await self.write_all([write, *change.also], change.checks)
        entry = self.view.get(key)
        if entry is not None and entry.revision == revision and self.kind.form is None:
            return entry.body  # the view has built it, and no later write has replaced it
        return await self._serve(value, expected if gone else revision)

    def _encode(self, obj: Object) -> bytes:
        value = encode(as_stored(self.kind, obj))
        if len(value) > OBJECT_LIMIT:
            raise TooLarge(f"the object would have {len(value)} bytes; {OBJECT_LIMIT} is the limit")
        if is_too_deep(value):  # including managedFields: clients send the stored object back
            raise BadRequest("the object is nested too deeply; reduce its nesting")
        return value

    async def _serve(self, value: bytes, revision: int) -> bytes:
        size = len(value)
        return (
            self._served(value, revision) if size <= LARGE else await COMPUTE.run(size, self._served, value, revision)
        )

    def _served(self, value: bytes, revision: int) -> bytes:
        return show_body(self.kind, served(self.kind, stamped(value, revision) if revision else value))

    def _check_free(self, created: Sequence[Key], change: Change) -> None:
        """In a dry run, checks what the store would: that objects to be created do not exist yet."""
        for key in (*created, *(write.key for write in change.also if write.expected == 0)):
            if self.view.get(key) is not None:
                raise contract.Conflict(key, 0, 1)

    async def delete(self, namespace: str, name: str, deleting: Deleting, writing: Writing) -> Deleted:
        """Removes an object, or marks it as deleted if it has finalizers."""
        for _ in range(ATTEMPTS):
            entry = await self.get(namespace, name)
            size = len(entry.body)
            old = decode(entry) if size <= LARGE else await COMPUTE.run(size, decode, entry)
            deletion.check_preconditions(old, self.kind, deleting)
            change = Change("delete", self.kind, writing.user, old, None, dry_run=writing.dry_run)
            await self._admit(change)
            new = deletion.marked(old, self.kind, deleting, timestamp(self._clock.now()))
            try:
                return await self._take_away(entry, old, new, change)
            except contract.Conflict:
                await self._catch_up()
        raise Conflict.of(self.kind.plural, self.kind.group, name, update_rules.MODIFIED)

    async def _take_away(self, entry: Entry, old: Object, new: Object | None, change: Change) -> Deleted:
        uid, name = metadata(old)["uid"], metadata(old)["name"]
        value = encode(as_stored(self.kind, new)) if new is not None else None
        if new is not None and identical(old, new):
            return Deleted(False, entry.body, uid, name)
        revision = entry.revision
        if not change.dry_run:
            write = contract.Change(entry.key, value, entry.revision)
            revision = await self.write_all([write, *change.also], change.checks)
        if value is None:
            return Deleted(True, entry.body, uid, name)
        return Deleted(False, await self._serve(value, revision), uid, name)

    async def write_all(self, changes: Sequence[contract.Change], checks: Sequence[contract.Check]) -> int:
        """Commits storage writes that need no further checks, and returns once the view has them."""
        with storage_errors():
            revision = await self._store.commit(changes, checks)
            if self.view.revision < revision:
                await self.view.reached(revision)
        return revision

    async def _catch_up(self) -> None:
        with storage_errors():
            await self.view.fresh()

    def _key(self, obj: Object) -> Key:
        return self.kind.key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
