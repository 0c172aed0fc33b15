"""A server without HTTP for migrations of virtual clusters: real permissions, scopes, admission rules and audit.

The fixture sets the user of each request. Controllers do not run, so that nothing moves unless a test moves it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from fairlead.core.call import Call, Handler, Reply
from fairlead.core.objects import Object, metadata
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.kinds import KINDS
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.kind import Kind
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
from fairlead.subresources.migration import MIGRATE_SUBRESOURCE, migration_handlers
from tests.harness.audit import BASICS, MOUNT, MemoryLog, build_audited_pipeline
from tests.harness.calls import ADMIN, call
from tests.harness.services import open_services

PREFIX = "service-p-"
INSTANCE = "VirtualClusterInstance"
TARGETS = ("b", "c", "d", "e", "f")
BOB = User("bob", ("service:user:bob", "service:user:*", *AUTHENTICATED_GROUPS), key="laptop")


class MigrationFixture:
    """Projects a to f, and an instance `v` in project a."""

    def __init__(self, registry: Registry, store: MemoryStore, run: Handler, audit_log: MemoryLog) -> None:
        self.registry = registry
        self.store = store
        self.run = run
        self.audit_log = audit_log
        self.user = ADMIN

    def of(self, kind: str) -> Resource:
        return next(self.registry.resource_for(each) for each in self.registry.catalog.kinds if each.name == kind)

    async def create(self, kind: str, name: str, project: str = "", **fields: Any) -> Object:
        resource = self.of(kind)
        meta = {"name": name, **fields.pop("metadata", {})}
        body = {"apiVersion": resource.kind.api_version, "kind": kind, "metadata": meta, **fields}
        created = await resource.create(body, f"{PREFIX}{project}" if project else "", WriteOptions(ADMIN, "tests"))
        return dict(orjson.loads(created))

    async def create_dependent(self, kind: str, name: str, owner: Object, project: str = "a", **fields: Any) -> Object:
        """Creates an object that depends on another one."""
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        reference |= {"name": metadata(owner)["name"], "uid": metadata(owner)["uid"]}
        return await self.create(kind, name, project, metadata={"ownerReferences": [reference]}, **fields)

    async def update_spec(self, kind: str, name: str, project: str = "", **spec: Any) -> None:
        def merge_spec(old: Object) -> Object:
            return {**old, "spec": {**old.get("spec", {}), **spec}}

        await self.of(kind).modify(
            f"{PREFIX}{project}" if project else "", name, merge_spec, WriteOptions(ADMIN, "tests")
        )

    async def grant(self, project: str, verbs: Sequence[str], *resources: str, group: str = GROUP) -> None:
        """Grants bob verbs in a project, or (without one) on cluster-scoped objects."""
        kind = "Role" if project else "ClusterRole"
        name = f"r-{'-'.join((*verbs, *resources)).replace('/', '-')}"
        rules = [{"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}]
        await self.create(kind, name, project, rules=rules)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]
        await self.create(f"{kind}Binding", name, project, roleRef=reference, subjects=subjects)

    async def migrate(self, target: str = "b", source: str = "a", name: str = "v", *, dry_run: bool = False) -> Reply:
        return await self.send_migration(target, {"name": name, "namespace": f"{PREFIX}{source}"}, dry_run=dry_run)

    async def send_migration(self, target: str, source: Any, *, dry_run: bool = False) -> Reply:
        kind = "ProjectMigrateVirtualClusterInstance"
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "sourceVirtualClusterInstance": source}
        path = f"{MOUNT}/apis/{GROUP}/v1/projects/{target}/{MIGRATE_SUBRESOURCE}"
        request = call(path, "dryRun=All" if dry_run else "", method="POST", body=orjson.dumps(body))
        request.user = self.user
        return await self.run(request)

    def objects_in(self, project: str, kind: str = INSTANCE) -> dict[str, Object]:
        declared = self.of(kind).kind
        entries = self.registry.view.entries(declared.group, declared.plural, f"{PREFIX}{project}")
        return {entry.key[3]: decode(entry) for entry in entries}

    def projects_with(self, name: str = "v") -> list[str]:
        return [project for project in ("a", *TARGETS) if name in self.objects_in(project)]

    async def all_records(self) -> list[Record]:
        return list((await self.store.scan(())).records)


def status_and_message(reply: Reply) -> tuple[int, str]:
    return reply.status, orjson.loads(reply.body)["message"]


@asynccontextmanager
async def open_migration(data_directory: Path) -> AsyncIterator[MigrationFixture]:
    audit_log = MemoryLog()
    async with open_services(Settings(data=data_directory), migration_kinds()) as server:
        registry = server.services.registry
        catalog = registry.catalog
        actions = Actions(catalog, migration_handlers(GROUP, registry, PREFIX))
        log_writer = AuditLogWriter(audit_log, 1_000)
        audit = AuditStage(BASICS, AuditLogs.single(log_writer), catalog, registry.clock, MOUNT)

        async def serve(call: Call) -> Reply:
            kind = catalog.find(call.target.group, call.target.version, call.target.resource)
            assert kind is not None
            return await actions(call, kind)

        authorize = AuthorizeStage(server.services.auth.authorizer, lambda call: call.user or ADMIN)
        pipeline = build_audited_pipeline(audit, authorize, serve)
        fixture = MigrationFixture(registry, server.store, pipeline, audit_log)
        try:
            for project in ("a", *TARGETS):
                await fixture.create("Project", project, spec={"requireTemplate": {"disabled": True}})
            await fixture.create(INSTANCE, "v", "a", spec={"template": {}, "displayName": "V"})
            yield fixture
        finally:
            audit.finish()
            await log_writer.close()


def migration_kinds() -> list[Kind]:
    """All persisted kinds, with no action but the migration."""
    return [
        replace(kind, actions=tuple(each for each in kind.actions if each.name == MIGRATE_SUBRESOURCE))
        for kind in KINDS
        if kind.persisted
    ]
