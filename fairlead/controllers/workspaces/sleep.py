"""Puts workspaces to sleep that are not used, wakes those whose sleep is over, and deletes those not used for long.

This is the only place that decides that. `sleep_decisions.py` says what, from what the runner reports; the runner stops
the workspace when it sees the annotations.
"""

from collections.abc import Iterable

from fairlead.controllers.instances.sleep import SleepController
from fairlead.controllers.workspaces.scheduling import RUNNER_FIELD
from fairlead.controllers.workspaces.sleep_decisions import build_sleep_mode, decide
from fairlead.core.objects import Object, get_path
from fairlead.core.workspaces import silence_message
from fairlead.domain.sleep_decisions import SleepDecision
from fairlead.kinds.clusters.runner import RUNNERS
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry


class WorkspaceSleepController(SleepController):
    name, workers = "workspace-sleep", 1

    def __init__(self, registry: Registry, api_group: str) -> None:
        super().__init__(registry, api_group)
        self.watches = ((api_group, WORKSPACE.plural), (api_group, RUNNERS))
        self._runners = registry.resource(api_group, RUNNERS)

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        if key[1] == WORKSPACE.plural:
            return (key,)
        entries = self._registry.view.entries(self._group, WORKSPACE.plural)
        return [each.key for each in entries if each.fields.get(RUNNER_FIELD) == key[3]]

    def _decide(self, key: Key, instance: Object) -> SleepDecision:
        return decide(instance, self._is_silent(instance), self._now())

    def _build_sleep_mode(self, key: Key, instance: Object) -> Object:
        return build_sleep_mode(instance, self._decide(key, instance), self._now())

    def _is_silent(self, workspace: Object) -> bool:
        """Whether nothing is known about the workspace: its runner is silent or gone, or there is none."""
        name = get_path(workspace, RUNNER_FIELD)
        entry = self._runners.get_cached("", name) if name else None
        return entry is None or bool(silence_message(decode(entry)))
