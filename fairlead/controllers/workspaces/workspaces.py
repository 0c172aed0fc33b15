"""Binds each workspace of a project to a runner, maintains its phase and conditions, and handles its finalizer.

The runner does the work: it watches the workspaces that are bound to it, and reports through their `/status`. While a
live runner has something of a workspace, a finalizer delays its deletion until the runner reports `NotFound`. If the
runner is gone, has failed, is silent or never started it, there is no finalizer. Templates are resolved by
`controllers/instances/templates.py`.

That there is no runner at all, or no project, is reported after a grace period. Ignored are workspaces with
`status.ignoreReconciliation`, and those outside of projects that name a runner.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from fairlead.controllers.instances.prerequisites import remaining_grace
from fairlead.controllers.workspaces.scheduling import (
    RUNNER_FIELD,
    SCHEDULED,
    Placement,
    blocks_deletion,
    is_template_known,
    next_status,
    schedule,
)
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, add_finalizer, deep_copy, get_path, metadata, name_of, remove_finalizer
from fairlead.core.workspaces import silence_message
from fairlead.domain.typed_objects import TEMPLATE_RESOLVED
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.codec import decode
from fairlead.registry.conditions import TRUE, find_condition, record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

FINALIZER = "service.sh/runner"
ENDPOINT_ANNOTATION = "service.sh/runner-endpoint"


class WorkspaceController:
    # One worker: scheduling counts the workspaces that are already scheduled to each runner.
    name, workers = "workspaces", 1

    def __init__(self, registry: Registry, api_group: str, namespace_prefix: str) -> None:
        self.watches = ((api_group, WORKSPACE.plural), (api_group, RUNNERS), (api_group, PROJECT.plural))
        self._registry = registry
        self._group = api_group
        self._namespace_prefix = namespace_prefix
        self._workspaces = registry.resource(api_group, WORKSPACE.plural)
        self._runners = registry.resource(api_group, RUNNERS)
        self._projects = registry.resource(api_group, PROJECT.plural)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == WORKSPACE.plural:
            return (key,)
        if key[1] == PROJECT.plural:
            return [each.key for each in self._entries(f"{self._namespace_prefix}{key[3]}")]
        return [each.key for each in self._entries() if each.fields.get(RUNNER_FIELD) in ("", key[3])]

    def _entries(self, namespace: str = "") -> list[Entry]:
        return self._registry.view.entries(self._group, WORKSPACE.plural, namespace)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._workspaces.get_cached(key[2], key[3])
        if entry is None:
            return None
        workspace = decode(entry)
        project = self._project(key[2])
        if get_path(workspace, "status.ignoreReconciliation"):
            return None
        if project is None and get_path(workspace, RUNNER_FIELD):
            return None
        if _awaits_template(workspace):
            return None  # the controller of templates writes the status soon
        if self._is_waiting(workspace, project) and (wait := remaining_grace(workspace, self._registry.clock.now())):
            return wait
        with suppress(NotFound):  # it was deleted meanwhile
            await self._bind_runner(workspace, project)
            await self._write_status(workspace, project)
        return None

    def _is_waiting(self, workspace: Object, project: Object | None) -> bool:
        """Whether what it needs does not exist, which has not been reported."""
        if find_condition(workspace.get("status"), SCHEDULED) is not None or get_path(workspace, RUNNER_FIELD):
            return False
        return project is None or not self._registry.view.count(self._group, RUNNERS)

    def _project(self, namespace: str) -> Object | None:
        if not namespace.startswith(self._namespace_prefix):
            return None
        entry = self._projects.get_cached("", namespace.removeprefix(self._namespace_prefix))
        return decode(entry) if entry is not None else None

    def _compute_placement(self, workspace: Object, project: Object | None) -> Placement:
        entries = self._registry.view.entries(self._group, RUNNERS)
        runners = {entry.key[3]: decode(entry) for entry in entries}
        load = Counter(entry.fields.get(RUNNER_FIELD) for entry in self._entries()) if runners else Counter()
        return schedule(workspace, project, runners, {name: load[name] for name in runners})

    async def _bind_runner(self, workspace: Object, project: Object | None) -> None:
        """Writes the parts outside of status: the runner, its endpoint, and the finalizer."""

        def edit(current: Object) -> Object:
            new = deep_copy(current)
            if "deletionTimestamp" not in metadata(new):
                placement = self._compute_placement(current, project)
                if placement.runner and not get_path(new, RUNNER_FIELD):
                    new["spec"] = {**(new.get("spec") or {}), "runnerRef": {"runner": placement.runner}}
                _set_endpoint(metadata(new), placement.endpoint)
            is_at_work = blocks_deletion(new, self._runner(new))
            return add_finalizer(new, FINALIZER) if is_at_work else remove_finalizer(new, FINALIZER)

        if edit(workspace) != workspace:
            namespace = metadata(workspace)["namespace"]
            if left_behind := self._describe_left_behind(workspace):
                await record_event(self._registry, workspace, "RunnerSilent", left_behind, type="Warning")
            await self._workspaces.modify(namespace, name_of(workspace), edit, server_write_options())

    def _describe_left_behind(self, workspace: Object) -> str:
        """What a workspace that is deleted leaves on a silent runner; empty if it is not deleted without its runner."""
        meta = metadata(workspace)
        runner = self._runner(workspace)
        is_waiting = "deletionTimestamp" in meta and FINALIZER in (meta.get("finalizers") or ())
        if not is_waiting or runner is None or not (silence := silence_message(runner)):
            return ""
        when = "when it responds again, and removes its data seven days later"
        return f"deleted without its runner, which stops it {when}: {silence}"

    def _runner(self, workspace: Object) -> Object | None:
        name = get_path(workspace, RUNNER_FIELD)
        entry = self._runners.get_cached("", name) if name else None
        return decode(entry) if entry is not None else None

    async def _write_status(self, workspace: Object, project: Object | None) -> None:
        """Writes the status, and records an Event when the Scheduled condition changes."""
        now = timestamp(self._registry.clock.now())
        transition: Object | None = None

        def edit(current: Object) -> Object:
            nonlocal transition
            placement = self._compute_placement(current, project)
            before = find_condition(current.get("status"), SCHEDULED) or {}
            changed = (before.get("status"), before.get("reason")) != (
                placement.scheduled["status"],
                placement.scheduled["reason"],
            )
            transition = placement.scheduled if changed else None
            return {**current, "status": next_status(current, placement, now)}

        entry = self._workspaces.get_cached(metadata(workspace)["namespace"], name_of(workspace))
        if entry is None or edit(current := decode(entry)) == current:
            return
        options = server_write_options("status")
        await self._workspaces.modify(entry.key[2], entry.key[3], edit, options)
        if transition is not None and "deletionTimestamp" not in metadata(current):
            kind = "Normal" if transition["status"] == TRUE else "Warning"
            await record_event(self._registry, current, transition["reason"], transition["message"], type=kind)


def _awaits_template(workspace: Object) -> bool:
    """Whether the template is about to be resolved. What it wants decides which runners can have the workspace."""
    status = workspace.get("status")
    is_new = find_condition(status, SCHEDULED) is None and find_condition(status, TEMPLATE_RESOLVED) is None
    return is_new and not is_template_known(workspace) and "deletionTimestamp" not in metadata(workspace)


def _set_endpoint(meta: Object, endpoint: str) -> None:
    """The annotation is owned by the server: clients connect to this address, so foreign values are removed."""
    annotations = meta.get("annotations") or {}
    if endpoint:
        meta["annotations"] = {**annotations, ENDPOINT_ANNOTATION: endpoint}
    elif ENDPOINT_ANNOTATION in annotations:
        meta["annotations"] = {name: value for name, value in annotations.items() if name != ENDPOINT_ANNOTATION}
