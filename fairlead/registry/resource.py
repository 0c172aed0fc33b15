"""What each verb does to objects of any kind: the one path that every write takes.

Verbs, controllers and start-up all come through here. A write is a function of the old object, run in a
compare-and-swap loop: shape and prune, keep what only the server sets, the kind's own rules, admission, field
ownership, commit. Nothing goes around it. Reads come from the view and never wait for the store's disk.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, islice
from typing import Any

import orjson

from fairlead.core.clock import Clock, timestamp
from fairlead.core.errors import MAX_PROBLEMS, AlreadyExists, BadRequest, Conflict, Invalid, NotFound, Problem, TooLarge
from fairlead.core.json import is_too_deep
from fairlead.core.objects import Object, identical, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.core.workers import COMPUTE, LARGE
from fairlead.registry import deletion, intake, meta, updating
from fairlead.registry.forms import as_stored, show_body, show_entry
from fairlead.registry.intake import Sent
from fairlead.registry.kept_secrets import keep_hidden
from fairlead.registry.kind import Change, Kind
from fairlead.registry.links import link_problems, links_of
from fairlead.registry.managed import APPLY, UPDATE, Writer, record_apply, record_problems, record_update
from fairlead.registry.patching.apply import Applying
from fairlead.registry.patching.shape import shapes_of
from fairlead.registry.record import decode, encode, served, shown_once, stamped
from fairlead.registry.tickets import Turns, is_ticket
from fairlead.registry.translate import storage_errors
from fairlead.registry.validate import Validator
from fairlead.registry.writing import Deleted, Deleting, Writing
from fairlead.storage import contract
from fairlead.storage.contract import Key, Store
from fairlead.storage.view import Entry, View

ATTEMPTS = 100
"""How often a write that lost a race is tried again. Each time somebody else has got on, so this ends long before."""
OBJECT_LIMIT = 6 * 1024 * 1024
"""What patches may make an object grow to, in bytes."""
DRAWS = 8
"""How many names are drawn for a generateName before the caller is told that they are taken."""

Admission = Callable[[Change], Awaitable[None]]
Edit = Callable[[Object], Object]
"""From the current object (to be left alone) to the proposed one (the registry's to change)."""


class Resource:
    """One kind's objects."""

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
        """The object as the view has it now."""
        return self.view.get(self.kind.key(namespace, name))

    def at_once(self, namespace: str, name: str) -> Entry | None:
        """What `get` returns, if that needs no waiting. None if it does."""
        return self._existing(namespace, name) if self.view.is_fresh() else None

    async def get(self, namespace: str, name: str) -> Entry:
        """The object as of every write acknowledged before the call."""
        with storage_errors():
            await self.view.fresh()
        return self._existing(namespace, name)

    def _existing(self, namespace: str, name: str) -> Entry:
        entry = self.peek(namespace, name)
        if entry is None:
            raise NotFound.of(self.kind.plural, self.kind.group, name)
        return show_entry(self.kind, entry)

    async def create(self, body: Any, namespace: str, writing: Writing, duplicates: Sequence[str] = ()) -> bytes:
        """Stores a new object and returns it as it is served."""
        kind = self.kind
        obj = intake.as_object(body, kind)
        shaping = obj, kind, self._validator, writing, Sent(duplicates)
        small = writing.size <= LARGE
        found = intake.shape(*shaping) if small else await COMPUTE.run(writing.size, intake.shape, *shaping)
        problems = updating.problems_of_part(kind, found)
        intake.settle_place(obj, kind, namespace)
        about = obj["metadata"]
        if about.pop("resourceVersion", None):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        prefix = "" if about.get("name") else about.get("generateName", "")
        draws, once, turn = 0, dict[str, str](), self._turns.first
        for _ in range(ATTEMPTS):
            if prefix:
                about["name"] = meta.generated_name(prefix)
            change = Change("create", kind, writing.user, None, obj, dry_run=writing.dry_run, once=once)
            try:
                async with turn:
                    await self._settle(change, problems, writing)
                    writing.tell(change.warnings)
                    return shown_once(await self._commit(change, writing, 0, writing.size), once)
            except contract.Conflict as conflict:
                turn = self._turns.after(conflict.key)
                taken = conflict.expected == 0 and not is_ticket(conflict.key)
                draws += taken
                if taken and (not prefix or draws == DRAWS):
                    raise self._taken(conflict.key) from None
                await self._catch_up()
        raise Conflict.of(kind.plural, kind.group, name_of(obj), updating.MODIFIED)

    def _taken(self, key: Key) -> AlreadyExists:
        """Which object has the name; one that is on its way out will free it soon."""
        mine = key[:2] == self.kind.place
        group, plural = (self.kind.group, self.kind.plural) if mine else key[:2]
        error = AlreadyExists.of(plural, group, key[3])
        entry = self.view.get(key)
        if entry is not None and "deletionTimestamp" in metadata(decode(entry)):
            error.message = f"object is being deleted: {error.message}"
        return error

    async def draft(self, obj: Object, writing: Writing) -> contract.Change:
        """The write that would create an object, to be hung onto the commit of another one."""
        change = Change("create", self.kind, writing.user, None, obj, dry_run=writing.dry_run)
        await self._settle(change, (), writing)
        return contract.Change(self._key(obj), encode(as_stored(self.kind, obj)), 0)

    async def arriving(self, obj: Object, writing: Writing) -> Change:
        """The write of an object that comes from another namespace: checked as one that is created there.

        It has a past, so its status and its managedFields stay as they are. What it is called, and when it was made, is
        said already.
        """
        change = Change("create", self.kind, writing.user, None, obj, dry_run=writing.dry_run, arriving=True)
        status = obj.get("status")
        self.kind.prepare(change)
        await self._admit(change)
        if self.kind.status_subresource and status is not None:
            obj["status"] = status
        self._refuse(change, ())
        return change

    async def leaving(self, old: Object, writing: Writing) -> Change:
        """The end of an object where it was, because it goes on elsewhere: nothing that holds it has to let go."""
        change = Change("delete", self.kind, writing.user, old, None, dry_run=writing.dry_run)
        await self._admit(change)
        return change

    async def _settle(self, change: Change, problems: Sequence[Problem], writing: Writing) -> None:
        """Everything that a new object goes through before it may be stored. Running it twice is harmless."""
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
        """Replaces an object by what `edit` makes of it, again and again until nobody came in between."""
        for _ in range(ATTEMPTS):
            entry = self.at_once(namespace, name) or await self.get(namespace, name)
            size, proposing = max(writing.size, len(entry.body)), (entry, edit, (namespace, name), writing, duplicates)
            if size <= LARGE:
                change, problems = self._propose(*proposing)
                is_same = await self._reconcile(change, problems, writing)
            else:
                change, problems = await COMPUTE.run(size, self._propose, *proposing)
                is_same = await self._reconcile_large(size, change, problems, writing)
            writing.tell(change.warnings)
            if is_same:
                return entry.body
            try:
                return await self._commit(change, writing, entry.revision, size)
            except contract.Conflict:
                await self._catch_up()
        raise Conflict.of(self.kind.plural, self.kind.group, name, updating.MODIFIED)

    def _propose(
        self, entry: Entry, edit: Edit, place: tuple[str, str], writing: Writing, duplicates: Sequence[str]
    ) -> tuple[Change, list[Problem]]:
        """The change that an edit makes of the object, and what is wrong with its shape."""
        old = decode(entry)
        proposed = edit(self._visible(entry, old, writing))
        try:
            new = intake.as_object(proposed, self.kind)
            problems = intake.shape(new, self.kind, self._validator, writing, Sent(duplicates, old))
        except BadRequest as error:
            raise intake.blamed(error, writing) from None
        intake.settle_place(new, self.kind, *place)
        if entry.whole and writing.user != CONTROLLER:  # which has seen all of it
            problems += keep_hidden(old, new, self.kind)
        problems = updating.problems_of_part(self.kind, problems, writing.subresource)
        return Change("update", self.kind, writing.user, old, new, writing.subresource, writing.dry_run), problems

    def _visible(self, entry: Entry, old: Object, writing: Writing) -> Object:
        """What an edit may see of the object: a patch must not copy a hidden field to where it can be read.

        The entry keeps a whole beside its body only where the two differ: where something is hidden.
        """
        if not entry.whole or writing.user == CONTROLLER:
            return old
        visible: Object = orjson.loads(entry.body)
        return visible

    async def apply(
        self, config: Any, namespace: str, name: str, writing: Writing, duplicates: Sequence[str] = ()
    ) -> tuple[bytes, bool]:
        """Gives an object the fields that a configuration names, or creates it. Tells whether it was created."""
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
            making = wanted, self._writer(writing)
            new = (
                self._applying.created(*making)
                if small
                else await COMPUTE.run(writing.size, self._applying.created, *making)
            )
            intake.settle_place(new, self.kind, namespace, name)
            try:
                return await self.create(new, namespace, writing, duplicates), True
            except AlreadyExists:
                await self._catch_up()
                if self.peek(namespace, name) is None:
                    raise
        raise Conflict.of(self.kind.plural, self.kind.group, name, updating.MODIFIED)

    async def _reconcile(self, change: Change, problems: Sequence[Problem], writing: Writing) -> bool:
        """Everything that a changed object goes through before it may be stored. Tells whether nothing is changed."""
        self._before_admission(change, problems, writing)
        await self._admit(change)
        return self._after_admission(change, problems, writing)

    async def _reconcile_large(self, size: int, change: Change, problems: Sequence[Problem], writing: Writing) -> bool:
        """The same in a thread, but for the rules that look at other objects."""
        await COMPUTE.run(size, self._before_admission, change, problems, writing)
        await self._admit(change)
        return await COMPUTE.run(size, self._after_admission, change, problems, writing)

    def _before_admission(self, change: Change, problems: Sequence[Problem], writing: Writing) -> None:
        kind, old, new, change.problems = self.kind, change.old or {}, change.obj, problems
        updating.check_versions(kind, old, new, writing)
        meta.carry_over(old, new)
        updating.keep_apart(kind, old, new, writing.subresource)
        if not problems:
            kind.prepare(change)

    def _after_admission(self, change: Change, problems: Sequence[Problem], writing: Writing) -> bool:
        kind, old, new = self.kind, change.old or {}, change.obj
        self._refuse(change, [*problems, *meta.update_problems(old, new), *updating.immutable_problems(kind, old, new)])
        if kind.tracks_generation and not updating.same_desire(old, new):
            metadata(new)["generation"] = metadata(old).get("generation", 0) + 1
        self._record(change, writing, self._writer(writing))
        return identical(old, new)

    def _refuse(self, change: Change, problems: Sequence[Problem]) -> None:
        """Raises with every problem at once. A kind's own checks may rely on the schema, so they come after it."""
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
        """Stores a create or update; an object whose deletion has nothing left to wait for goes instead."""
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
            return entry.body  # made by the view already, unless another write has come after us
        return await self._serve(value, expected if gone else revision)

    def _encode(self, obj: Object) -> bytes:
        value = encode(as_stored(self.kind, obj))
        if len(value) > OBJECT_LIMIT:
            raise TooLarge(f"the object would have {len(value)} bytes; {OBJECT_LIMIT} is the limit")
        if is_too_deep(value):  # with its managedFields; what is stored must also be readable when it is sent back
            raise BadRequest("the object is nested too deeply; make it flatter")
        return value

    async def _serve(self, value: bytes, revision: int) -> bytes:
        """A stored value as its writer is answered; without a revision (0) where there is none yet."""
        size = len(value)
        return (
            self._served(value, revision) if size <= LARGE else await COMPUTE.run(size, self._served, value, revision)
        )

    def _served(self, value: bytes, revision: int) -> bytes:
        return show_body(self.kind, served(self.kind, stamped(value, revision) if revision else value))

    def _check_free(self, created: Sequence[Key], change: Change) -> None:
        """What the store would check: that nothing is there yet where something is to be created."""
        for key in (*created, *(write.key for write in change.also if write.expected == 0)):
            if self.view.get(key) is not None:
                raise contract.Conflict(key, 0, 1)

    async def delete(self, namespace: str, name: str, deleting: Deleting, writing: Writing) -> Deleted:
        """Removes an object, or marks it where finalizers hold it."""
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
        raise Conflict.of(self.kind.plural, self.kind.group, name, updating.MODIFIED)

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
        """Commits writes that have been through everything else, and returns when they can be seen."""
        with storage_errors():
            revision = await self._store.commit(changes, checks)
            if self.view.revision < revision:
                await self.view.reached(revision)
        return revision

    async def _catch_up(self) -> None:
        """After a lost race: looks at the store's newest state, whichever replica wrote it."""
        with storage_errors():
            await self.view.fresh()

    def _key(self, obj: Object) -> Key:
        return self.kind.key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
