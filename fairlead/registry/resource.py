"""Create, get, update, patch, apply and delete for any kind. All API writes go through here; reads come from the view.

A write is a function of the old object, run in a compare-and-swap loop: schema validation, server-set fields, defaults
of the kind, admission, checks of the kind, managedFields, commit. The store compares revisions; conflicts are retried.

PUT: replaces an object, and for some kinds creates it if there is none.

`server/api/verbs.py` calls this. As in Kubernetes, a body that cannot be decoded is rejected even if the object does
not exist.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

from fairlead.core.clock import Clock, timestamp
from fairlead.core.concurrency import compute
from fairlead.core.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound, Problem, quote_value
from fairlead.core.json.slices import decode_stored
from fairlead.core.objects import Object, deep_copy, json_equal, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry import codec, no_effect, object_metadata, request_body, write_rules
from fairlead.registry.kind import Change, Kind
from fairlead.registry.patching.apply import ApplyEngine
from fairlead.registry.patching.managed_fields import (
    APPLY,
    UPDATE,
    FieldManager,
    keep_unchanged_entries,
    record_apply,
    record_update,
)
from fairlead.registry.patching.merge_schema import MergeSchemas, build_merge_schemas
from fairlead.registry.quota.enforcement import StorageQuota
from fairlead.registry.quota.write_locks import LockQueue, is_lock_key
from fairlead.registry.request_body import BodyContext
from fairlead.registry.secret_fields import restore_write_only
from fairlead.registry.storage_errors import already_exists, translate_storage_errors
from fairlead.registry.validate import Validator, build_builtin_validator, build_validator
from fairlead.registry.write_options import DeleteOptions, DeleteResult, WriteOptions, server_write_options
from fairlead.storage import contract
from fairlead.storage.contract import Key, Store
from fairlead.storage.view.view import Entry, View

_CLIENT_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""The parts of metadata that managers can own."""


def record_ownership(change: Change, options: WriteOptions, manager: FieldManager, schemas: MergeSchemas) -> None:
    """Sets the managedFields of the new object, and brings it into its stored form."""
    kind, obj = change.kind, change.obj
    if options.is_apply:
        record_apply(obj)
    elif change.is_untracked:
        metadata(obj).pop("managedFields", None)
    else:
        written = _as_sent(change)
        shape = schemas.by_subresource[options.subresource]
        record_update(change.old, written, shape, manager, kind.empty_fields, is_custom=not kind.builtin)
        if written is not obj:
            _copy_entries(written, obj)
    if kind.canonicalize is not None:
        kind.canonicalize(obj)
    if options.is_apply or kind.canonicalize is not None:
        keep_unchanged_entries(change.old, obj)


def _as_sent(change: Change) -> Object:
    """The object whose fields the writer owns. As in Kubernetes, a write of /status owns the metadata that it sends,
    although it does not change it."""
    obj, sent = change.obj, change.sent_metadata
    if sent is None or all(sent.get(name) == metadata(obj).get(name) for name in _CLIENT_METADATA):
        return obj
    meta = {name: value for name, value in metadata(obj).items() if name not in _CLIENT_METADATA}
    meta |= {name: sent[name] for name in _CLIENT_METADATA if sent.get(name)}
    return {**obj, "metadata": meta}


def _copy_entries(source: Object, target: Object) -> None:
    entries = metadata(source).get("managedFields")
    metadata(target).pop("managedFields", None)
    if entries:
        metadata(target)["managedFields"] = entries


MAX_ATTEMPTS = 100  # per write that loses races; each lost race is progress of another writer
MAX_NAME_ATTEMPTS = 8  # random names to try for a generateName

Admission = Callable[[Change], Awaitable[None]]
Edit = Callable[[Object], Object]
"""From the current object (not to be changed) to the proposed one (which the registry may change)."""


class Resource:
    """The objects of one kind. What is derived from its schema takes milliseconds, and is built when it is needed."""

    def __init__(
        self, kind: Kind, store: Store, view: View, admit: Admission, clock: Clock, quota: StorageQuota | None = None
    ) -> None:
        self.kind = kind
        self.view = view
        self._quota = quota
        self._store = store
        self._admit = admit
        self._clock = clock
        self._lock_queue = LockQueue()

    @cached_property
    def validator(self) -> Validator:
        return self.kind.derive(build_builtin_validator if self.kind.builtin else build_validator)

    @cached_property
    def merge_schemas(self) -> MergeSchemas:
        return self.kind.derive(build_merge_schemas)

    @cached_property
    def _apply_engine(self) -> ApplyEngine:
        return self.kind.derive(ApplyEngine.for_kind)

    @cached_property
    def _ineffective_fields(self) -> no_effect.IneffectiveFields | None:
        return self.kind.derive(no_effect.find_ineffective_fields)

    @cached_property
    def _url_fields(self) -> write_rules.UrlFields:
        return self.kind.derive(write_rules.find_url_fields)

    def get_cached(self, namespace: str, name: str) -> Entry | None:
        """The object as it is in the view now."""
        return self.view.get(self.kind.key(namespace, name))

    def get_if_current(self, namespace: str, name: str) -> Entry | None:
        """Like `get`, but only if the view is current. None if the caller has to wait."""
        return self._get_or_raise(namespace, name) if self.view.is_current() else None

    async def get(self, namespace: str, name: str) -> Entry:
        """The object, including every write acknowledged before the call."""
        with translate_storage_errors():
            await self.view.wait_current()
        return self._get_or_raise(namespace, name)

    def _get_or_raise(self, namespace: str, name: str) -> Entry:
        entry = self.view.get(self.kind.key(namespace, name))
        if entry is None:
            raise NotFound.of(self.kind.plural, self.kind.group, name)
        return entry if self.kind.conversion is None else codec.convert_entry(self.kind, entry)

    async def create(self, body: Any, namespace: str, options: WriteOptions, duplicates: Sequence[str] = ()) -> bytes:
        """Stores a new object and returns the response body."""
        kind = self.kind
        obj = request_body.check_new_type(body, kind, options)
        is_status_empty = obj.get("status") == {}  # some clients send it, and get it back
        context = BodyContext(duplicates)
        found = await compute(
            options.size, request_body.prune_and_validate, obj, kind, self.validator, options, context
        )
        problems = write_rules.relevant_problems(kind, found)
        if kind.status_subresource and not is_status_empty:
            obj.pop("status", None)
        is_untracked = bool(found) and write_rules.has_ignored_type_error(found, problems)
        request_body.check_name_and_namespace(obj, kind, namespace)
        meta = obj["metadata"]
        version = meta.pop("resourceVersion", None) or ""
        prefix = "" if meta.get("name") else meta.get("generateName", "")
        collisions, one_time, lock = 0, dict[str, str](), self._lock_queue.unlocked
        for _ in range(MAX_ATTEMPTS):
            if prefix:
                meta["name"] = object_metadata.generate_name(prefix)
            change = Change("create", kind, options.user, None, obj, dry_run=options.dry_run, one_time_fields=one_time)
            change.is_untracked = is_untracked
            try:
                async with lock:
                    await self._prepare_create(change, problems, options)
                    write_rules.check_no_version(version)
                    options.add_warnings(change.warnings)
                    created = await self._commit_change(change, options, 0, options.size)
                    return codec.with_one_time_fields(created, one_time)
            except contract.RevisionConflict as conflict:
                lock = self._lock_queue.lock_for_retry(conflict.key)
                exists = conflict.expected == 0 and not is_lock_key(conflict.key)
                collisions += exists
                if exists and (not prefix or collisions == MAX_NAME_ATTEMPTS):
                    raise already_exists(self.view, kind, conflict.key) from None
                await self._refresh_view()
        raise Conflict.of(kind.plural, kind.group, name_of(obj), write_rules.MODIFIED_MESSAGE)

    async def build_create_write(self, obj: Object, options: WriteOptions) -> contract.Write:
        """The storage write that creates an object, to be added to the commit of another write."""
        change = Change("create", self.kind, options.user, None, obj, dry_run=options.dry_run)
        await self._prepare_create(change, (), options)
        return contract.Write(self._key(obj), codec.encode(codec.to_stored(self.kind, obj)), 0)

    async def prepare_move_in(self, obj: Object, options: WriteOptions, moves_with: tuple[Object, ...] = ()) -> Change:
        """Admits an object that moves in from another namespace as a create. Its status and managedFields are kept.
        `moves_with` are objects of the same kind that the same commit adds."""
        change = Change("create", self.kind, options.user, None, obj, dry_run=options.dry_run, is_move=True)
        change.moves_with = moves_with
        status = obj.get("status")
        self.kind.default(change)
        await self._admit(change)
        if self.kind.status_subresource and status is not None:
            obj["status"] = status
        write_rules.raise_if_invalid(change, self._url_fields, ())
        return change

    async def prepare_move_out(self, old: Object, options: WriteOptions) -> Change:
        """Admits the removal of an object that moves to another namespace. Finalizers do not block it."""
        change = Change("delete", self.kind, options.user, old, None, dry_run=options.dry_run)
        await self._admit(change)
        return change

    async def _prepare_create(self, change: Change, problems: Sequence[Problem], options: WriteOptions) -> None:
        """Defaults, admission, checks and managedFields of a new object. Safe to run again on a retry."""
        writer, size = self._field_manager(options), options.size
        await compute(size, self._before_create, change, problems, writer)
        await self._admit(change)
        await compute(size, self._after_create, change, problems, options, writer)

    def _before_create(self, change: Change, problems: Sequence[Problem], manager: FieldManager) -> None:
        obj, change.problems = change.obj, problems
        object_metadata.init_metadata(obj, manager.now, self.kind)
        if self.kind.status_subresource and "status" in obj:
            obj["status"] = {}
        if not problems:
            self.kind.default(change)

    def _after_create(
        self, change: Change, problems: Sequence[Problem], options: WriteOptions, manager: FieldManager
    ) -> None:
        write_rules.raise_if_invalid(change, self._url_fields, problems)
        no_effect.add_warnings(change, self._ineffective_fields)
        record_ownership(change, options, manager, self.merge_schemas)

    async def modify(
        self, namespace: str, name: str, edit: Edit, options: WriteOptions, duplicates: Sequence[str] = ()
    ) -> bytes:
        """Replaces an object with the result of `edit`, retrying after every lost race."""
        lock = self._lock_queue.unlocked
        for _ in range(MAX_ATTEMPTS):
            try:
                async with lock:
                    return await self._try_modify((namespace, name), edit, options, duplicates)
            except contract.RevisionConflict as conflict:
                lock = self._lock_queue.lock_for_retry(conflict.key)
                await self._refresh_view()
        raise Conflict.of(self.kind.plural, self.kind.group, name, write_rules.MODIFIED_MESSAGE)

    async def _try_modify(
        self, key: tuple[str, str], edit: Edit, options: WriteOptions, duplicates: Sequence[str]
    ) -> bytes:
        entry = self.get_if_current(*key) or await self.get(*key)
        size = max(options.size, len(entry.body))
        change, problems = await compute(size, self._build_update, entry, edit, key, options, duplicates)
        await compute(size, self._before_update, change, problems, options)
        await self._admit(change)
        is_same = await compute(size, self._after_update, change, problems, options)
        options.add_warnings(change.warnings)
        return entry.body if is_same else await self._commit_change(change, options, entry.revision, size)

    def _build_update(
        self, entry: Entry, edit: Edit, key: tuple[str, str], options: WriteOptions, duplicates: Sequence[str]
    ) -> tuple[Change, list[Problem]]:
        old = codec.decode(entry)
        proposed = edit(self._without_write_only(entry, old, options))
        context = BodyContext(duplicates, old)
        new, problems = request_body.decode_update(proposed, self.kind, self.validator, key, options, context)
        if entry.full_body and options.user != CONTROLLER_USER:  # the server itself sees write-only fields
            problems += restore_write_only(old, new, self.kind)
        found, problems = problems, write_rules.relevant_problems(self.kind, problems, options.subresource)
        change = Change("update", self.kind, options.user, old, new, options.subresource, options.dry_run)
        change.is_untracked = bool(found) and write_rules.has_ignored_type_error(found, problems)
        return change, problems

    def _without_write_only(self, entry: Entry, old: Object, options: WriteOptions) -> Object:
        """A patch must not copy a write-only field to a readable one. Without write-only fields there is no
        `full_body`."""
        visible: Object = old if not entry.full_body or options.user == CONTROLLER_USER else decode_stored(entry.body)
        return visible

    async def apply(
        self, config: Any, namespace: str, name: str, options: WriteOptions, duplicates: Sequence[str] = ()
    ) -> tuple[bytes, bool]:
        """Server-side apply; creates the object if needed. Returns the response body, and whether it was created."""
        if options.subresource and self.get_cached(namespace, name) is None:
            await self.get(namespace, name)
        wanted = await compute(options.size, self._apply_engine.check_config, config)
        if duplicates and options.field_validation == "Strict":
            named = ", ".join(f'duplicate field "{path}"' for path in duplicates)
            raise BadRequest(object_metadata.decode_error_message(self.kind, f"strict decoding error: {named}"))

        def edit(old: Object) -> Object:
            return self._apply_engine.apply_config(old, wanted, self._field_manager(options), force=options.force)

        for _ in range(MAX_ATTEMPTS):
            try:
                return await self.modify(namespace, name, edit, options, duplicates), False
            except NotFound:
                if options.subresource or self.get_cached(namespace, name) is not None:
                    raise
            options.authorize_create()
            new = await compute(options.size, self._apply_engine.build_new, wanted, self._field_manager(options))
            request_body.check_name_and_namespace(new, self.kind, namespace, name)
            try:
                return await self.create(new, namespace, options, duplicates), True
            except AlreadyExists:
                await self._refresh_view()
                if self.get_cached(namespace, name) is None:
                    raise
        raise Conflict.of(self.kind.plural, self.kind.group, name, write_rules.MODIFIED_MESSAGE)

    def _before_update(self, change: Change, problems: Sequence[Problem], options: WriteOptions) -> None:
        """The fields that the server sets, and defaults."""
        kind, old, new, change.problems = self.kind, change.old or {}, change.obj, problems
        write_rules.check_uid_and_version(kind, old, new, options)
        object_metadata.preserve_server_fields(old, new)
        write_rules.separate_status(change, old, is_patch=options.is_patch)
        if not problems:
            kind.default(change)

    def _after_update(self, change: Change, problems: Sequence[Problem], options: WriteOptions) -> bool:
        """Checks and managedFields. True if nothing changes."""
        kind, old, new = self.kind, change.old or {}, change.obj
        rules = chain(object_metadata.update_problems(old, new), write_rules.immutable_problems(kind, old, new))
        write_rules.raise_if_invalid(change, self._url_fields, problems, rules)
        no_effect.add_warnings(change, self._ineffective_fields)
        if kind.tracks_generation and not write_rules.is_same_spec(kind, old, new):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        record_ownership(change, options, self._field_manager(options), self.merge_schemas)
        return json_equal(old, new)

    def _field_manager(self, options: WriteOptions) -> FieldManager:
        now, operation = timestamp(self._clock.now()), APPLY if options.is_apply else UPDATE
        return FieldManager(options.field_manager, self.kind.api_version, now, options.subresource, operation)

    async def _commit_change(self, change: Change, options: WriteOptions, expected: int, size: int) -> bytes:
        """Stores a create or update, or removes an object whose deletion is complete with this write."""
        obj, key, quota = change.obj, self._key(change.obj), self._quota
        if quota is not None and change.old is None:
            quota.charge(change)
        value = await compute(size, codec.encode_within_limits, self.kind, obj)
        is_gone = write_rules.is_deletion_complete(obj, self.kind)
        if quota is not None and not is_gone and await quota.reserve(change, key, len(value)):
            value = await compute(size, codec.encode_within_limits, self.kind, obj)
        if options.dry_run:
            self._check_absent([key] if expected == 0 else [], change)
            return await compute(len(value), codec.render_stored, self.kind, value, expected)
        write = contract.Write(key, None if is_gone else value, expected)
        revision = await self.commit([write, *change.extra_writes], change.preconditions)
        entry = self.view.get(key)
        if entry is not None and entry.revision == revision and self.kind.conversion is None:
            return entry.body  # the view has built it, and no later write has replaced it
        return await compute(len(value), codec.render_stored, self.kind, value, expected if is_gone else revision)

    def _check_absent(self, created: Sequence[Key], change: Change) -> None:
        """In a dry run, checks what the store would: that objects to be created do not exist yet."""
        for key in (*created, *(write.key for write in change.extra_writes if write.expected_revision == 0)):
            if self.view.get(key) is not None:
                raise contract.RevisionConflict(key, 0, 1)

    async def delete(
        self, namespace: str, name: str, delete_options: DeleteOptions, options: WriteOptions
    ) -> DeleteResult:
        """Removes an object, or marks it as deleted if it has finalizers."""
        for _ in range(MAX_ATTEMPTS):
            entry = await self.get(namespace, name)
            old = await compute(len(entry.body), codec.decode, entry)
            write_rules.check_preconditions(old, self.kind, delete_options)
            change = Change("delete", self.kind, options.user, old, None, dry_run=options.dry_run)
            await self._admit(change)
            new = write_rules.mark_deleted(old, self.kind, delete_options, timestamp(self._clock.now()))
            try:
                return await self._commit_delete(entry, old, new, change)
            except contract.RevisionConflict:
                await self._refresh_view()
        raise Conflict.of(self.kind.plural, self.kind.group, name, write_rules.MODIFIED_MESSAGE)

    async def delete_if_exists(self, namespace: str, name: str) -> None:
        """Deletes an object in the name of the server. That another replica was faster is no error."""
        with suppress(NotFound):
            await self.delete(namespace, name, DeleteOptions(), server_write_options())

    async def _commit_delete(self, entry: Entry, old: Object, new: Object | None, change: Change) -> DeleteResult:
        uid = metadata(old)["uid"]
        name = metadata(old)["name"]
        value = codec.encode(codec.to_stored(self.kind, new)) if new is not None else None
        if new is not None and json_equal(old, new):
            return DeleteResult(False, entry.body, uid, name)
        revision = entry.revision
        if not change.dry_run:
            write = contract.Write(entry.key, value, entry.revision)
            revision = await self.commit([write, *change.extra_writes], change.preconditions)
        is_removed = value is None
        if value is None:
            if not self.kind.returns_deleted_object:
                return DeleteResult(is_removed, entry.body, uid, name)
            value = codec.encode(codec.to_stored(self.kind, old))
        body = await compute(len(value), codec.render_stored, self.kind, value, revision)
        return DeleteResult(is_removed, body, uid, name)

    async def commit(self, writes: Sequence[contract.Write], preconditions: Sequence[contract.Precondition]) -> int:
        """Commits storage writes that need no further checks, and returns once the view has them."""
        with translate_storage_errors():
            revision = await self._store.commit(writes, preconditions)
            if self.view.revision < revision:
                await self.view.wait_for(revision)
        return revision

    async def _refresh_view(self) -> None:
        with translate_storage_errors():
            await self.view.wait_current()

    def _key(self, obj: Object) -> Key:
        return self.kind.key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


async def replace_object(
    resource: Resource, body: Any, key: tuple[str, str], options: WriteOptions, duplicates: Sequence[str]
) -> tuple[bytes, bool]:
    """Replaces the object with this namespace and name. Returns the response body, and whether it was created."""
    kind, (namespace, name) = resource.kind, key
    for _ in range(MAX_ATTEMPTS):
        try:
            return await resource.modify(namespace, name, lambda old: _copy(body), options, duplicates), False
        except NotFound:
            if resource.get_cached(namespace, name) is not None:
                raise
            _check_decodable(resource, body, key, options, duplicates)
            if not kind.allows_create_on_update or options.subresource:
                raise
        new = _copy(body)
        uid = metadata(new).get("uid")
        if uid:
            reason = f"Precondition failed: UID in precondition: {uid}, and no existing object was found"
            raise Conflict.of(kind.plural, kind.group, name, reason)
        version = metadata(new).pop("resourceVersion", None)
        if version and not version.isdecimal():
            raise BadRequest(f"metadata.resourceVersion: {quote_value(version)} is not a version")
        options.authorize_create()
        try:
            return await resource.create(new, namespace, options, duplicates), True
        except AlreadyExists:
            if resource.get_cached(namespace, name) is None:
                raise
    raise Conflict.of(kind.plural, kind.group, name, write_rules.MODIFIED_MESSAGE)


def _copy(body: Any) -> Any:
    """A copy for each attempt, as the registry modifies its argument."""
    return deep_copy(body) if isinstance(body, dict) else body


def _check_decodable(
    resource: Resource, body: Any, key: tuple[str, str], options: WriteOptions, duplicates: Sequence[str]
) -> None:
    """Raises BadRequest if the body is not an object of the kind, with the name in the URL."""
    kind, new = resource.kind, _copy(body)
    try:
        request_body.check_type_meta(new, kind)
        request_body.prune_and_validate(new, kind, resource.validator, options, BodyContext(duplicates))
    except Invalid:
        return  # the object would have been decoded, and then rejected
    request_body.check_name_and_namespace(new, kind, *key)
