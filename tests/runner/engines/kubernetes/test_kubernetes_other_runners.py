"""Workspaces of another runner in the same namespace: a server that names their uids gets nothing of them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError, ExecOptions, Reason
from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.settings import Settings
from tests.runner.engines.kubernetes.conftest import UID, Commit, make_spec
from tests.runner.harness.tasks import RecordedTask


@pytest.fixture
async def other(settings: Settings, tmp_path: Path) -> AsyncIterator[KubernetesEngine]:
    """The engine of another runner, with the same credentials for the cluster."""
    engine = KubernetesEngine(replace(settings, state_folder=tmp_path / "other", runner="other"))
    yield engine
    await engine.contexts.close()


async def test_what_another_runner_made_is_neither_seen_nor_stopped_nor_deleted(
    engine: KubernetesEngine, other: KubernetesEngine, commit: Commit
) -> None:
    await engine.up(make_spec(commit({"README": ""})), RecordedTask())
    assert (await other.status(UID)).state is ContainerState.NOT_FOUND
    with pytest.raises(EngineError, match="not running"):
        await other.exec(UID, ["true"], ExecOptions())
    await other.stop(UID, RecordedTask())
    await other.delete(UID, RecordedTask())
    engine._observed.clear()
    assert (await engine.status(UID)).state is ContainerState.RUNNING


async def test_what_another_runner_made_is_not_taken_over_by_an_up(
    engine: KubernetesEngine, other: KubernetesEngine, commit: Commit
) -> None:
    """Its claim has the work of another user."""
    spec = make_spec(commit({"README": ""}))
    await engine.up(spec, RecordedTask())
    for wanted in (spec, replace(spec, reset=True), replace(spec, recreate=True)):
        with pytest.raises(EngineError, match="another runner has a workspace") as error:
            await other.up(wanted, RecordedTask())
        assert error.value.reason == Reason.POLICY_VIOLATION
    assert other.records.get(UID) is None
    engine._observed.clear()
    assert (await engine.status(UID)).state is ContainerState.RUNNING
