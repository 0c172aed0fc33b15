"""A server without HTTP: store, view, registry and admission, connected as in the application, on virtual time.

In addition to the real kinds there is the Gadget, a kind with every feature that the registry implements.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import orjson

from fairlead.admission import AdmissionChain, Rule
from fairlead.admission.namespaces import manage_project_namespace, require_active_namespace
from fairlead.core.errors import Problem
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds import KINDS
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry import resource
from fairlead.registry.codec import decode, entry_builder
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog, Change, Kind, Sensitivity
from fairlead.registry.quota.enforcement import StorageLimits, StorageQuota, WriterRules
from fairlead.registry.quota.usage import StorageUsage
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.schema import any_value, boolean, integer, obj, open_object, string
from fairlead.registry.write_options import DeleteOptions, DeleteResult, WriteOptions
from fairlead.storage import contract
from fairlead.storage.contract import Precondition, Store
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.storage.wrapper import StoreWrapper
from tests.harness.virtual_time import LoopClock

ADA = User("ada")
NAMESPACE = "demo"


def _warn(change: Change) -> None:
    if change.spec.get("size", 0) > 100:
        change.warnings.append("spec.size is large")


def _check(change: Change) -> list[Problem]:
    size = change.spec.get("size", 0)
    return [Problem.invalid("spec.size", size, "must not be negative")] if size < 0 else []


GADGET = Kind(
    name="Gadget",
    plural="gadgets",
    namespaced=False,
    fields={
        "spec": obj(
            size=integer(),
            color=string(),
            on=boolean(),
            free=open_object(),
            any=any_value(),
            mode=string(default="plain"),
        ),
        "status": obj(phase=string(), size=integer()),
    },
    description="One of everything.",
    status_subresource=True,
    selectable=("spec.color", "status.phase"),
    immutable=("spec.color",),
    default=_warn,
    check=_check,
    sensitivity=Sensitivity.NORMAL,
)


class RacingStore(StoreWrapper):
    """A store with concurrent writers: each commit first runs the next function in `before`."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before: list[Callable[[], Awaitable[object]]] = []
        self.commits: list[tuple[Sequence[contract.Write], Sequence[Precondition]]] = []

    async def commit(self, writes: Sequence[contract.Write], preconditions: Sequence[Precondition] = ()) -> int:
        if self.before:
            await self.before.pop(0)()
        self.commits.append((writes, preconditions))
        return await self.inner.commit(writes, preconditions)


class RegistryFixture:
    def __init__(self, store: RacingStore, view: View, registry: Registry, clock: LoopClock) -> None:
        self.store = store
        self.view = view
        self.registry = registry
        self.clock = clock

    def with_rules(self, *rules: Rule) -> "RegistryFixture":
        """The same objects behind a registry with these admission rules only."""
        chain = AdmissionChain()
        registry = Registry(self.registry.catalog, self.store, self.view, chain, self.clock)
        chain.bind(registry, rules)
        return RegistryFixture(self.store, self.view, registry, self.clock)

    def with_quota(self, limits: StorageLimits | None = None, *rules: Rule) -> "RegistryFixture":
        """The same objects behind a registry that limits what is stored."""
        usage = StorageUsage()
        chain = AdmissionChain()
        self.view.observe(usage)
        writers = WriterRules(is_component=lambda user: "service:runners" in user.groups)
        quota = StorageQuota(self.view, usage, MANAGEMENT_GROUP, limits, writers)
        registry = Registry(self.registry.catalog, self.store, self.view, chain, self.clock, quota)
        chain.bind(registry, (require_active_namespace, *rules))
        return RegistryFixture(self.store, self.view, registry, self.clock)

    def resource(self, name: str) -> Resource:
        """The resource of a kind, by the kind's name."""
        return next(self.registry.resource_for(kind) for kind in self.registry.catalog.kinds if kind.name == name)

    def build_object(self, kind: str, name: str = "", namespace: str = "", **fields: Any) -> Object:
        declared = self.resource(kind).kind
        meta: Object = {"name": name} if name else {}
        if declared.namespaced:
            meta["namespace"] = namespace or NAMESPACE
        meta.update(fields.pop("metadata", {}))
        return {"apiVersion": declared.api_version, "kind": kind, "metadata": meta, **fields}

    async def create(self, kind: str, name: str = "", namespace: str = "", **fields: Any) -> Object:
        """Creates an object of the kind and returns it as it is served."""
        body = self.build_object(kind, name, namespace, **fields)
        return await self.submit(kind, body)

    async def submit(self, kind: str, body: Object, writing: WriteOptions | None = None) -> Object:
        created = await self.resource(kind).create(
            body, body["metadata"].get("namespace", ""), writing or write_options()
        )
        return _parse(created)

    async def patch(
        self, kind: str, name: str, patch: Callable[[Object], object], writing: WriteOptions | None = None
    ) -> Object:
        """Lets `patch` change a copy of the object in place, as patches do, and stores that."""

        def edit(old: Object) -> Object:
            new = _parse(orjson.dumps(old))
            patch(new)
            return new

        return _parse(await self.resource(kind).modify(self._namespace(kind), name, edit, writing or write_options()))

    async def replace(self, kind: str, body: Object, writing: WriteOptions | None = None) -> Object:
        """Replaces the object by the body, as it is."""
        namespace, name = self._namespace(kind), body["metadata"]["name"]
        text = orjson.dumps(body)
        return _parse(
            await self.resource(kind).modify(namespace, name, lambda _: _parse(text), writing or write_options())
        )

    async def delete(
        self, kind: str, name: str, deleting: DeleteOptions | None = None, user: User = ADA
    ) -> DeleteResult:
        return await self.resource(kind).delete(
            self._namespace(kind), name, deleting or DeleteOptions(), WriteOptions(user)
        )

    def get(self, kind: str, name: str) -> Object | None:
        """The object as the view has it, or None."""
        entry = self.resource(kind).get_cached(self._namespace(kind), name)
        return decode(entry) if entry is not None else None

    def list_names(self, kind: str) -> list[str]:
        declared = self.resource(kind).kind
        return [entry.key[3] for entry in self.view.entries(declared.group, declared.plural)]

    def _namespace(self, kind: str) -> str:
        return NAMESPACE if self.resource(kind).kind.namespaced else ""


def _parse(text: bytes) -> Object:
    value: Object = orjson.loads(text)
    return value


def write_options(**options: Any) -> WriteOptions:
    return WriteOptions(ADA, "tests", **options)


async def compute_on_the_loop(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


@asynccontextmanager
async def open_registry(store: Store | None = None, rules: Sequence[Rule] = ()) -> AsyncIterator[RegistryFixture]:
    """A registry with the namespaces `default` and `demo`, unless it is opened on a store that has them.

    `rules` are checked after those that every registry has.
    """
    clock = LoopClock()
    racing_store = RacingStore(store or MemoryStore())
    catalog = Catalog((*KINDS, GADGET))
    view = View(racing_store, entry_builder(catalog))
    await view.start()
    chain = AdmissionChain()
    registry = Registry(catalog, racing_store, view, chain, clock)
    chain.bind(
        registry, (require_active_namespace, manage_project_namespace(NAMESPACE_PREFIX, MANAGEMENT_GROUP), *rules)
    )
    api = RegistryFixture(racing_store, view, registry, clock)
    if store is None:
        await api.create("Namespace", "default")
        await api.create("Namespace", NAMESPACE)
    try:
        # Large objects are encoded in threads, where the loop's clock is not available.
        with patch.object(resource, "compute", compute_on_the_loop):
            yield api
    finally:
        await view.stop()
        await racing_store.close()
