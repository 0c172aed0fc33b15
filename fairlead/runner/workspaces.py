"""All workspaces of the runner: the watch, and a worker for each uid.

A workspace that the server does not have is known to be missing only after one complete list. It is then stopped, and
its data is kept for a week: it may have been deleted by mistake. If the server has been restored from a backup, which
raises its revisions by a billion, it is kept for three months. What belongs to another installation is left alone.
"""

import asyncio
from collections.abc import Mapping

import structlog

from fairlead.client import ClientError, Event
from fairlead.client.watch import DELETED, SYNCED
from fairlead.core import json
from fairlead.core.backoff import Backoff, BackoffPolicy
from fairlead.core.objects import Object, metadata
from fairlead.runner.answers import check_workspace, parse_revision
from fairlead.runner.engines.contract import EngineError, EngineStatus
from fairlead.runner.engines.records import is_valid_uid
from fairlead.runner.heartbeat import Replaced
from fairlead.runner.reconcile import WorkspaceReconciler
from fairlead.runner.services import RunnerServices

log = structlog.get_logger(__name__)

RESYNC_SECONDS = 60.0
RETRY = BackoffPolicy(first_seconds=0.5, max_seconds=30.0, jitter=0.5)
FAULT_RETRY_SECONDS = 60.0
MAX_WORKSPACES = 10_000
MAX_TOTAL_BYTES = 64 * 1024 * 1024
"""Of the objects of all workspaces. A server that was broken into must not fill the memory or the disk."""
RESTORE_GAP = 500_000_000
"""A restored store starts a billion revisions above its backup. Between two lists, there are far fewer writes."""


class WorkspaceSet:
    def __init__(self, services: RunnerServices) -> None:
        self._services = services
        self._reconcilers: dict[str, WorkspaceReconciler] = {}
        self._listed: set[str] = set()
        """The uids of the current list, and then those that exist."""
        self._is_synced = False
        self._foreign: set[str] = set()
        """The uids of workspaces of other installations, which have been logged."""
        self._group: asyncio.TaskGroup | None = None
        self._sizes: dict[str, int] = {}
        """Bytes of the objects, by uid."""
        self._total_bytes = 0

    @property
    def is_synced(self) -> bool:
        return self._is_synced

    def find(self, uid: str) -> WorkspaceReconciler | None:
        """The workspace with this uid, if the server has it."""
        found = self._reconcilers.get(uid)
        return found if found is not None and found.workspace is not None else None

    def find_orphan(self, uid: str) -> WorkspaceReconciler | None:
        """What this machine has of a workspace that is not, or not any more, one of this runner."""
        found = self._reconcilers.get(uid)
        return found if found is not None and found.workspace is None else None

    def all(self) -> Mapping[str, WorkspaceReconciler]:
        return self._reconcilers

    async def run(self) -> None:
        """Raises Replaced if another process has taken over this runner."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._watch(), name="watch")
            group.create_task(self._resync(), name="resync")

    async def _watch(self) -> None:
        backoff = Backoff(RETRY)
        while True:
            self._listed = set()
            is_listing = True
            try:
                async for event in self._services.api.watch_workspaces():
                    backoff.reset()
                    if event.type == SYNCED:
                        is_listing = False
                        self._is_synced = True
                        await self._compare(metadata(event.object).get("resourceVersion"))
                    else:
                        self._handle(event)
            except ClientError as error:
                log.warning("the watch of workspaces broke off; what runs goes on running", error=str(error))
            if is_listing:
                self._is_synced = False
            await asyncio.sleep(backoff.next_delay())

    def _handle(self, event: Event) -> None:
        uid = str(metadata(event.object).get("uid") or "")
        if not is_valid_uid(uid):
            log.warning("a workspace of the server has no valid uid; it is left alone", uid=uid[:64])
            return
        if event.type == DELETED:
            self._listed.discard(uid)
            if (known := self._reconcilers.get(uid)) is not None:
                known.observe_missing()
            return
        self._listed.add(uid)  # also one that cannot be used: it is not missing
        try:
            check_workspace(event.object)
            self._reserve(uid, event.object)
        except ClientError as error:
            log.warning("a workspace of the server cannot be used; it is left alone", uid=uid, error=str(error))
            return
        self._get(uid).observe(event.object)

    def _reserve(self, uid: str, workspace: Object) -> None:
        """Counts the memory and the record that a workspace needs. Raises ClientError beyond the limits."""
        size = len(json.encode(workspace))
        total = self._total_bytes - self._sizes.get(uid, 0) + size
        if uid not in self._reconcilers and len(self._reconcilers) >= MAX_WORKSPACES:
            raise ClientError(f"this runner has {MAX_WORKSPACES} workspaces, which is the limit; use another runner")
        if total > MAX_TOTAL_BYTES:
            raise ClientError(f"the workspaces of this runner have more than {MAX_TOTAL_BYTES >> 20} MiB together")
        self._sizes[uid] = size
        self._total_bytes = total

    async def _compare(self, version: object) -> None:
        """Compares a new list with what this machine has, and remembers its version afterwards: if this process ends
        before, the next one notices a restore of the server as well."""
        revision, journal = parse_revision(version), self._services.journal
        before = journal.read_revision()
        is_restored = 0 < before < revision - RESTORE_GAP
        if is_restored:
            log.warning("the server has been restored from a backup; what it does not have is kept for longer")
        await self._find_missing(is_restored=is_restored)
        if revision and revision != before:
            journal.write_revision(revision)

    async def _find_missing(self, *, is_restored: bool = False) -> None:
        """Compares a complete list with the journal and the engines."""
        missing = {each.uid: each.engine for each in self._services.journal.records() if each.uid not in self._listed}
        for name, engine in self._services.engines.items():
            try:
                found = await engine.list_workspaces()
            except EngineError as error:
                log.warning("an engine cannot list its workspaces", engine=name, error=error.message)
                continue
            missing |= {uid: name for uid, each in found.items() if self._is_missing(uid, each)}
        for uid, engine_name in missing.items():
            self._get(uid).observe_missing(engine_name, is_restored=is_restored)

    def _is_missing(self, uid: str, status: EngineStatus) -> bool:
        """Whether the server does not have a workspace that an engine has for this runner."""
        if uid in self._listed or not is_valid_uid(uid):
            return False
        if not status.installation or status.installation == self._services.installation:
            return True
        if uid not in self._foreign:
            self._foreign.add(uid)
            log.warning("a workspace of another installation is left alone", uid=uid, installation=status.installation)
        return False

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            if self._is_synced:
                await self._find_missing()

    def _get(self, uid: str) -> WorkspaceReconciler:
        if uid not in self._reconcilers:
            assert self._group is not None
            self._reconcilers[uid] = WorkspaceReconciler(uid, self._services)
            self._group.create_task(self._run(self._reconcilers[uid]), name=f"workspace {uid}")
        return self._reconcilers[uid]

    async def _run(self, reconciler: WorkspaceReconciler) -> None:
        """Runs a worker until nothing is left of its workspace. A fault of one workspace does not end the runner."""
        while True:
            try:
                await reconciler.run()
            except Replaced:
                raise
            except Exception as error:
                log.error("a workspace could not be reconciled", uid=reconciler.uid, exc_info=error)
                await asyncio.sleep(FAULT_RETRY_SECONDS)
                continue
            if reconciler.workspace is None:
                self._reconcilers.pop(reconciler.uid, None)
                self._total_bytes -= self._sizes.pop(reconciler.uid, 0)
                return
