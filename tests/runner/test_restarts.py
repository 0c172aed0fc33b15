"""A runner that is killed, cut off from its server, or replaced: no workspace is lost, doubled or stopped."""

import asyncio
import shutil
from datetime import timedelta

import pytest

from fairlead.core.objects import Object
from fairlead.runner import decisions
from fairlead.runner.heartbeat import RELEASE_SECONDS, Heartbeat, Replaced, RunnerIdentity
from tests.harness.eventually import eventually
from tests.harness.virtual_time import LoopClock
from tests.runner.conftest import RunnerFixture
from tests.runner.fake_api import FakeApi
from tests.runner.fake_engine import FakeEngine
from tests.runner.test_workspaces import RUNS, SOURCE, bring_up

MOMENTS = [0.05 + 0.5 * number for number in range(8)]
"""Within each step of an `up`, a stop and a deletion, and after it."""


@pytest.mark.parametrize("is_adopting", [False, True])
@pytest.mark.parametrize("seconds", MOMENTS)
async def test_an_up_goes_on_after_the_runner_was_killed(
    runner: RunnerFixture, seconds: float, is_adopting: bool
) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    task_id = runner.get().request_up({})
    await asyncio.sleep(seconds)
    await runner.kill()
    data, was_running = runner.data(), runner.record().last_task
    runner.engine.is_adopting = is_adopting
    runner.start()
    await eventually(lambda: runner.api.summary("u") == RUNS)
    assert runner.containers() == ["u"]
    assert data in ("", runner.data())
    assert [task.id for task in runner.record().tasks] == [task_id]
    is_unfinished = was_running is not None and was_running.status == "Running" and was_running.attempts
    assert (("adopt", "u") in runner.engine.calls) == bool(is_unfinished)


@pytest.mark.parametrize("seconds", MOMENTS[:4])
async def test_a_stop_goes_on_after_the_runner_was_killed(runner: RunnerFixture, seconds: float) -> None:
    await bring_up(runner)
    data = runner.data()
    runner.get().request_stop()
    await asyncio.sleep(seconds)
    await runner.kill()
    runner.start()
    await eventually(lambda: runner.api.summary("u") == ("Ready", "Stopped", "StopSucceeded"))
    assert (runner.containers(), runner.data()) == (["u"], data)


@pytest.mark.parametrize("seconds", MOMENTS[:6])
async def test_a_deletion_goes_on_after_the_runner_was_killed(runner: RunnerFixture, seconds: float) -> None:
    await bring_up(runner)
    runner.api.request_deletion("u")
    await asyncio.sleep(seconds)
    await runner.kill()
    runner.start()
    await eventually(lambda: "u" not in runner.api.workspaces)
    await eventually(lambda: runner.services.journal.records() == [])
    assert (runner.containers(), runner.data()) == ([], "")


async def test_a_deletion_that_was_requested_while_the_runner_was_down_is_done(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await asyncio.sleep(1.5)
    await runner.kill()
    runner.api.request_deletion("u")
    runner.start()
    await eventually(lambda: "u" not in runner.api.workspaces)
    assert (runner.containers(), runner.data()) == ([], "")


async def test_a_task_that_ends_the_runner_again_and_again_fails(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    for _ in range(12):
        await asyncio.sleep(0.5)
        await runner.kill()
        runner.start()
    await eventually(lambda: runner.api.summary("u")[2] == "RunnerRestarted")
    assert runner.api.summary("u")[0] == "Failed"


async def test_nothing_is_stopped_while_the_server_cannot_be_reached(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.api.disconnect()
    await asyncio.sleep(3600)
    assert (runner.engine.calls, runner.containers()) == ([("up", "u")], ["u"])
    runner.raise_failure()
    runner.api.reconnect()
    runner.get().request_stop()
    await eventually(lambda: runner.api.summary("u") == ("Ready", "Stopped", "StopSucceeded"))


async def test_an_up_goes_on_while_the_server_cannot_be_reached(runner: RunnerFixture) -> None:
    runner.api.create("u", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get().request_up({})
    await asyncio.sleep(0.5)
    runner.api.disconnect()
    await eventually(lambda: (runner.record().last_task or runner.record().tasks[0]).status == "Succeeded")
    runner.api.reconnect()
    await eventually(lambda: runner.api.summary("u") == RUNS)


RETENTION_SECONDS = 3600
"""A week would be too many polls."""


@pytest.fixture
def _short_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "ORPHAN_RETENTION", timedelta(seconds=RETENTION_SECONDS))


@pytest.mark.usefixtures("_short_retention")
async def test_a_workspace_that_the_server_has_lost_is_stopped_and_kept_for_a_while(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await runner.kill()
    lost = runner.api.workspaces.pop("u")
    data = runner.data()
    runner.start()
    await eventually(lambda: ("stop", "u") in runner.engine.calls)
    await asyncio.sleep(0.8 * RETENTION_SECONDS)
    assert (runner.containers(), runner.data()) == (["u"], data)
    runner.api.workspaces["u"] = lost
    runner.api.change("u", spec={})
    await asyncio.sleep(0.4 * RETENTION_SECONDS)
    assert runner.data() == data
    runner.api.remove("u")
    await asyncio.sleep(1.2 * RETENTION_SECONDS)
    assert (runner.containers(), runner.data()) == ([], "")
    assert runner.services.journal.records() == []


@pytest.mark.usefixtures("_short_retention")
async def test_what_an_engine_has_without_a_record_is_stopped_and_kept_for_a_while(runner: RunnerFixture) -> None:
    await runner.kill()
    (runner.engine.volumes / "unknown").write_text("data")
    (runner.engine.containers / "unknown.1").write_text("running")
    runner.start()
    await eventually(lambda: ("stop", "unknown") in runner.engine.calls)
    await asyncio.sleep(0.8 * RETENTION_SECONDS)
    assert runner.data("unknown") == "data"
    await asyncio.sleep(0.4 * RETENTION_SECONDS)
    assert (runner.containers(), runner.data("unknown")) == ([], "")


async def test_a_list_that_breaks_off_is_no_reason_to_stop_anything(runner: RunnerFixture) -> None:
    await bring_up(runner)
    await runner.kill()
    runner.api.is_reachable = False
    runner.start()
    await asyncio.sleep(3600)
    assert runner.engine.calls == [("up", "u")]


@pytest.mark.parametrize("is_engine_lost", [False, True])
async def test_without_its_journal_a_runner_repeats_no_requests(runner: RunnerFixture, is_engine_lost: bool) -> None:
    """The journal is damaged; or the runner was started on another machine, which has no data of the workspace."""
    runner.api.create("u", **SOURCE, **{"service.sh/workspace-up": "1"})
    await eventually(lambda: runner.api.summary("u") == RUNS)
    await runner.kill()
    shutil.rmtree(runner.folder / "workspaces")
    if is_engine_lost:
        runner.engine = FakeEngine(runner.folder / "other")
    runner.start()
    await asyncio.sleep(120)
    assert runner.api.summary("u")[1] == ("NotFound" if is_engine_lost else "Running")
    assert runner.engine.calls == ([] if is_engine_lost else [("up", "u")])
    runner.get().request_up({})
    await eventually(lambda: runner.api.summary("u")[1] == "Running")
    assert len(runner.containers()) == 1


@pytest.mark.parametrize("was_stopped", [False, True])
async def test_after_a_reboot_comes_up_what_ran_before(runner: RunnerFixture, was_stopped: bool) -> None:
    await bring_up(runner)
    if was_stopped:
        runner.get().request_stop()
        await eventually(lambda: runner.api.summary("u")[1] == "Stopped")
    await runner.kill()
    runner.host_boot = "second"
    next(runner.engine.containers.iterdir()).write_text("stopped")
    runner.start()
    await asyncio.sleep(60)
    assert runner.api.summary("u")[1] == ("Stopped" if was_stopped else "Running")


# --- two processes with one key ---------------------------------------------------------------------------------------


def build_heartbeat(api: FakeApi, machine: str, boot: str) -> Heartbeat:
    return Heartbeat(api, RunnerIdentity("r", machine, boot), LoopClock())


async def test_the_next_process_on_a_machine_takes_over_at_once_and_fences_the_earlier_one() -> None:
    api = FakeApi()
    first, second = build_heartbeat(api, "m", "1"), build_heartbeat(api, "m", "2")
    await first.acquire()
    began = asyncio.get_running_loop().time()
    await second.acquire()
    assert asyncio.get_running_loop().time() == began
    assert api.lease is not None and api.lease["spec"]["holderIdentity"] == "m_2"
    assert api.lease["spec"]["leaseTransitions"] == 1
    with pytest.raises(Replaced, match="has taken over the runner r"):
        await first.run()


async def test_a_process_on_another_machine_waits_until_the_first_is_silent() -> None:
    api = FakeApi()
    first, second = build_heartbeat(api, "m", "1"), build_heartbeat(api, "n", "1")
    await first.acquire()
    working, waiting = asyncio.create_task(first.run()), asyncio.create_task(second.acquire())
    await asyncio.sleep(600)
    assert not waiting.done() and not working.done()
    working.cancel()
    await asyncio.sleep(50)
    assert not waiting.done()
    await asyncio.sleep(15)
    assert waiting.done()
    assert api.lease is not None and api.lease["spec"]["holderIdentity"] == "n_1"


async def test_a_process_on_another_machine_takes_over_at_once_after_a_clean_stop() -> None:
    api = FakeApi()
    first, second = build_heartbeat(api, "m", "1"), build_heartbeat(api, "n", "1")
    await first.acquire()
    assert api.lease is not None
    renewed = api.lease["spec"]["renewTime"]
    await asyncio.sleep(1)
    await first.release()
    assert (api.lease["spec"]["holderIdentity"], api.lease["spec"]["renewTime"]) == ("", renewed)
    began = asyncio.get_running_loop().time()
    await second.acquire()
    assert asyncio.get_running_loop().time() == began
    assert (api.lease["spec"]["holderIdentity"], api.lease["spec"]["leaseTransitions"]) == ("n_1", 1)


async def test_a_process_that_was_replaced_releases_nothing() -> None:
    api = FakeApi()
    first, second = build_heartbeat(api, "m", "1"), build_heartbeat(api, "m", "2")
    await first.acquire()
    await second.acquire()
    await first.release()
    assert api.lease is not None and api.lease["spec"]["holderIdentity"] == "m_2"


async def test_a_release_wins_over_a_renewal_that_was_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    heartbeat = build_heartbeat(api, "m", "1")
    await heartbeat.acquire()
    get_lease, reads = api.get_lease, 0

    async def read_before_a_renewal() -> Object | None:
        nonlocal reads
        lease, reads = await get_lease(), reads + 1
        if reads == 1:
            await heartbeat.require_current()
        return lease

    monkeypatch.setattr(api, "get_lease", read_before_a_renewal)
    await asyncio.sleep(100)  # so long that the next write renews the Lease first
    await heartbeat.release()
    assert api.lease is not None and (api.lease["spec"]["holderIdentity"], reads) == ("", 2)


async def test_a_stop_does_not_wait_for_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    heartbeat = build_heartbeat(api, "m", "1")
    await heartbeat.acquire()
    api.is_reachable = False
    await heartbeat.release()

    async def hang() -> Object | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(api, "get_lease", hang)
    await heartbeat.release()
    assert api.request_seconds == RELEASE_SECONDS, "the process would wait for the thread of the request"
    assert api.lease is not None and api.lease["spec"]["holderIdentity"] == "m_1"


async def test_a_process_that_was_suspended_learns_that_it_was_replaced_before_it_writes() -> None:
    api = FakeApi()
    first, second = build_heartbeat(api, "m", "1"), build_heartbeat(api, "n", "1")
    await first.acquire()
    await first.require_current()
    await second.acquire()  # the first one does not renew: it is suspended
    with pytest.raises(Replaced):
        await first.require_current()
    await second.require_current()


async def test_a_replaced_runner_ends_and_leaves_everything_running(runner: RunnerFixture) -> None:
    await bring_up(runner)
    runner.api.create("v", "other", **SOURCE)
    await asyncio.sleep(0.1)
    runner.get("v").request_up({})
    await asyncio.sleep(1.5)
    await build_heartbeat(runner.api, "machine", "later").acquire()
    with pytest.raises(ExceptionGroup) as raised:
        while True:
            await asyncio.sleep(1)
            runner.raise_failure()
    assert raised.value.subgroup(Replaced) is not None
    assert "u" in runner.containers()
    await runner.kill()
    runner.start()  # another process of this machine takes over again
    await eventually(lambda: runner.api.summary("v") == RUNS)
    assert runner.containers() == ["u", "v"]


async def test_the_lease_survives_a_server_that_is_away() -> None:
    api = FakeApi()
    heartbeat = build_heartbeat(api, "m", "1")
    api.is_reachable = False
    acquiring = asyncio.create_task(heartbeat.acquire())
    await asyncio.sleep(600)
    api.is_reachable = True
    await acquiring
    working = asyncio.create_task(heartbeat.run())
    api.is_reachable = False
    await asyncio.sleep(600)
    api.is_reachable = True
    await asyncio.sleep(11)
    assert not working.done()
    before = api.lease
    await asyncio.sleep(10)
    assert api.lease is not None and api.lease != before
    working.cancel()
