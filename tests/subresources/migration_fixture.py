"""A server without its web, in which virtual clusters can be moved: real permissions, scopes, rules and audit.

Who asks is said by a header. Controllers do not run, so that nothing moves but what a test moves.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from fairlead.app.admission import build_admission
from fairlead.app.auth import build_auth
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.objects import Object, metadata
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.kinds import KINDS
from fairlead.registry.codec import decode, entry_builder
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.kind import Catalog, Kind
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.registry.write_options import WriteOptions
from fairlead.server.api.actions import Actions
from fairlead.server.audit.intake import AuditLogs
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.stage import AuditStage
from fairlead.server.auth.stages import AuthorizeStage
from fairlead.settings import Settings
from fairlead.storage.contract import Record
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.subresources.migration import MIGRATE_SUBRESOURCE, migration_handlers
from tests.harness.audit import BASICS, MOUNT, MemoryLog, build_audited
from tests.harness.calls import ADMIN, call
from tests.harness.virtual_time import LoopClock

PREFIX = "service-p-"
INSTANCE = "VirtualClusterInstance"
TARGETS = ("b", "c", "d", "e", "f")
BOB = User("bob", ("service:user:bob", "service:user:*", *AUTHENTICATED_GROUPS), key="laptop")


class Town:
    """Projects a to f, and an instance `v` in the first of them."""

    def __init__(self, registry: Registry, store: MemoryStore, run: Handler, notebook: MemoryLog) -> None:
        self.registry = registry
        self.store = store
        self.run = run
        self.notebook = notebook
        self.user = ADMIN

    def of(self, kind: str) -> Resource:
        return next(self.registry.resource_for(each) for each in self.registry.catalog.kinds if each.name == kind)

    async def create(self, kind: str, name: str, project: str = "", **fields: Any) -> Object:
        resource = self.of(kind)
        meta = {"name": name, **fields.pop("metadata", {})}
        body = {"apiVersion": resource.kind.api_version, "kind": kind, "metadata": meta, **fields}
        made = await resource.create(body, f"{PREFIX}{project}" if project else "", WriteOptions(ADMIN, "tests"))
        return dict(orjson.loads(made))

    async def own(self, kind: str, name: str, owner: Object, project: str = "a", **fields: Any) -> Object:
        """Creates an object that depends on another one."""
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        reference |= {"name": metadata(owner)["name"], "uid": metadata(owner)["uid"]}
        return await self.create(kind, name, project, metadata={"ownerReferences": [reference]}, **fields)

    async def change(self, kind: str, name: str, project: str = "", **spec: Any) -> None:
        def edit(old: Object) -> Object:
            return {**old, "spec": {**old.get("spec", {}), **spec}}

        await self.of(kind).modify(f"{PREFIX}{project}" if project else "", name, edit, WriteOptions(ADMIN, "tests"))

    async def allow(self, project: str, verbs: Sequence[str], *resources: str, group: str = GROUP) -> None:
        """Lets bob do something in a project, or (without one) with a cluster-wide object."""
        kind = "Role" if project else "ClusterRole"
        name = f"r-{'-'.join((*verbs, *resources)).replace('/', '-')}"
        rules = [{"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}]
        await self.create(kind, name, project, rules=rules)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]
        await self.create(f"{kind}Binding", name, project, roleRef=reference, subjects=subjects)

    async def migrate(self, target: str = "b", source: str = "a", name: str = "v", *, dry: bool = False) -> Reply:
        return await self.ask(target, {"name": name, "namespace": f"{PREFIX}{source}"}, dry=dry)

    async def ask(self, target: str, source: Any, *, dry: bool = False) -> Reply:
        kind = "ProjectMigrateVirtualClusterInstance"
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "sourceVirtualClusterInstance": source}
        path = f"{MOUNT}/apis/{GROUP}/v1/projects/{target}/{MIGRATE_SUBRESOURCE}"
        asked = call(path, "dryRun=All" if dry else "", method="POST", body=orjson.dumps(body))
        asked.user = self.user
        return await self.run(asked)

    def at(self, project: str, kind: str = INSTANCE) -> dict[str, Object]:
        declared = self.of(kind).kind
        found = self.registry.view.entries(declared.group, declared.plural, f"{PREFIX}{project}")
        return {entry.key[3]: decode(entry) for entry in found}

    def homes(self, name: str = "v") -> list[str]:
        return [project for project in ("a", *TARGETS) if name in self.at(project)]

    async def everything(self) -> list[Record]:
        return list((await self.store.scan(())).records)


def told(reply: Reply) -> tuple[int, str]:
    return reply.status, orjson.loads(reply.body)["message"]


@asynccontextmanager
async def new_town(folder: Path) -> AsyncIterator[Town]:
    settings, clock, store, notebook = Settings(data=folder), LoopClock(), MemoryStore(), MemoryLog()
    catalog = Catalog(_narrowed())
    view = View(store, entry_builder(catalog))
    await view.start()
    people = build_auth(settings, catalog, view, clock)
    chain = build_admission(settings, people)
    registry = Registry(catalog, store, view, chain, clock)
    chain.bind_registry(registry)
    actions = Actions(catalog, migration_handlers(GROUP, registry, PREFIX))
    trail = AuditLogWriter(notebook, 1_000)
    audit = AuditStage(BASICS, AuditLogs.single(trail), catalog, clock, MOUNT)

    async def serve(call: Call) -> Reply:
        kind = catalog.find(call.target.group, call.target.version, call.target.resource)
        assert kind is not None
        return await actions(call, kind)

    allowed = AuthorizeStage(people.authorizer, lambda call: call.user or ADMIN)
    town = Town(registry, store, build_audited(audit, allowed, serve), notebook)
    try:
        for project in ("a", *TARGETS):
            await town.create("Project", project, spec={"requireTemplate": {"disabled": True}})
        await town.create(INSTANCE, "v", "a", spec={"template": {}, "displayName": "V"})
        yield town
    finally:
        audit.finish()
        await trail.close()
        await view.stop()
        await store.close()


def _narrowed() -> list[Kind]:
    """Everything that is stored, and no action but the one."""
    return [
        replace(kind, actions=tuple(each for each in kind.actions if each.name == MIGRATE_SUBRESOURCE))
        for kind in KINDS
        if kind.persisted
    ]
