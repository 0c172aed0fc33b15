"""server.workers: limits hold across workers, and what a worker held is released when it ends."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.authn.access_keys import LastUse
from fairlead.authn.last_used import LastUsedTracker
from fairlead.core.clock import SystemClock
from fairlead.core.errors import TooManyRequests, Unavailable
from fairlead.core.user import User
from fairlead.server.audit.agent_reports import MAX_CLUSTER_BYTES, MAX_CLUSTER_EVENTS
from fairlead.server.flow.attempts import USER_BACKOFF
from fairlead.server.flow.streams import StreamLimits
from fairlead.server.metrics.endpoint import MetricsEndpoint
from fairlead.server.metrics.exposition import COUNTER, single_value
from fairlead.server.workers import coordinator
from fairlead.server.workers.client import CoordinatorClient
from fairlead.server.workers.coordinator import SharedLimits, serve_coordinator
from tests.harness.calls import call
from tests.harness.eventually import eventually, poll_until_found

ADA, BEN, ADMIN = User("ada"), User("ben"), User("root", ("system:masters",))
LIMITS = SharedLimits(max_streams=100, max_streams_per_user=6)
CLIENT = "192.0.2.1:50000"


@asynccontextmanager
async def run_workers(
    folder: Path, count: int = 3, limits: SharedLimits = LIMITS
) -> AsyncIterator[list[CoordinatorClient]]:
    path = folder / "coordinator.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serve_coordinator(path, limits, SystemClock()))
        workers = [await CoordinatorClient.connect(path, number, count) for number in range(count)]
        for worker in workers:
            stack.push_async_callback(worker.close)
        yield workers


def limit_streams(workers: Sequence[CoordinatorClient]) -> list[StreamLimits]:
    return [worker.limit_streams(lambda user: False) for worker in workers]


async def test_the_limit_per_user_covers_the_streams_of_all_workers(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers, AsyncExitStack() as stack:
        first, second, third = limit_streams(workers)
        for _ in range(2):
            for streams in (first, second, third):
                await stack.enter_async_context(streams.admit(ADA))
        for streams in (first, second, third):
            with pytest.raises(TooManyRequests, match="you have 6 watches and other streams open") as error:
                await streams.require_room(ADA)
            assert error.value.details.retry_after > 0
            await streams.require_room(BEN)
        await stack.aclose()
        await third.require_room(ADA)


async def test_concurrent_opens_on_all_workers_do_not_exceed_the_limit(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers, AsyncExitStack() as stack:
        opens = [stack.enter_async_context(each.admit(ADA)) for _ in range(50) for each in limit_streams(workers)]
        results = await asyncio.gather(*opens, return_exceptions=True)
        assert results.count(None) == 6
        assert sum(isinstance(result, TooManyRequests) for result in results) == 144


async def test_the_reserve_of_administrators_is_that_of_all_workers(tmp_path: Path) -> None:
    async with run_workers(tmp_path, 2, SharedLimits(10, 10)) as workers, AsyncExitStack() as stack:
        first, second = limit_streams(workers)
        for number in range(9):
            await stack.enter_async_context(first.admit(User(f"user-{number}")))
        with pytest.raises(TooManyRequests, match="9 watches and other streams are open"):
            await second.require_room(ADA)
        await second.require_room(ADMIN)


async def test_streams_that_are_only_counted_use_up_the_limit_as_well(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers:
        first, second, _ = limit_streams(workers)
        closes = [first.count_stream(ADA) for _ in range(6)]
        await first.require_room(BEN)  # the coordinator has handled the frames before it
        with pytest.raises(TooManyRequests):
            await second.require_room(ADA)
        closes[0]()
        await first.require_room(ADA)
        await second.require_room(ADA)


async def test_the_streams_of_a_closed_connection_are_released(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers:
        first, second, _ = limit_streams(workers)
        for _ in range(6):
            first.count_stream(ADA)
        await first.require_room(BEN)
        with pytest.raises(TooManyRequests):
            await second.require_room(ADA)
        await workers[0].close()
        await wait_for_room(second)


async def wait_for_room(streams: StreamLimits) -> None:
    async def has_room() -> bool:
        await streams.require_room(ADA)
        return True

    await poll_until_found(has_room, "room for a stream", 60, TooManyRequests)


async def test_a_cancelled_open_leaves_no_stream_behind(tmp_path: Path) -> None:
    async with run_workers(tmp_path, 1) as workers, AsyncExitStack() as stack:
        (streams,) = limit_streams(workers)
        opens = [asyncio.ensure_future(stack.enter_async_context(streams.admit(ADA))) for _ in range(6)]
        await asyncio.sleep(0)  # they have sent their calls
        for each in opens:
            each.cancel()
        await asyncio.gather(*opens, return_exceptions=True)
        for _ in range(6):
            await stack.enter_async_context(streams.admit(ADA))


async def fail_login(worker: CoordinatorClient, user: str = "ada", client: str = CLIENT) -> None:
    async with worker.attempt(user, client):
        pass


async def test_failed_logins_on_all_workers_count_together(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers:
        for number in range(USER_BACKOFF.free_attempts):
            await fail_login(workers[number % 3], client=f"198.51.100.{number}:1")
        for worker in workers:
            with pytest.raises(TooManyRequests, match="too many failed login attempts; wait 1 s") as error:
                await fail_login(worker)
            assert error.value.details.retry_after == 1
            await fail_login(worker, "ben")


async def test_a_successful_login_on_one_worker_resets_the_user_on_all(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers:
        for _ in range(3):
            for worker in workers:
                for _ in range(USER_BACKOFF.free_attempts - 1):
                    await fail_login(worker)
                async with worker.attempt("ada", CLIENT) as attempt:
                    attempt.succeed()


async def test_an_attempt_that_ends_with_an_error_is_not_counted(tmp_path: Path) -> None:
    async with run_workers(tmp_path, 1) as workers:
        for _ in range(USER_BACKOFF.free_attempts * 4):
            with pytest.raises(OSError):
                async with workers[0].attempt("ada", CLIENT):
                    raise OSError("the disk is full")
        await fail_login(workers[0])


async def test_concurrent_guesses_on_all_workers_are_all_counted(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers, AsyncExitStack() as stack:
        attempts = [stack.enter_async_context(each.attempt("ada", CLIENT)) for _ in range(10) for each in workers]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(result, TooManyRequests) for result in results) == 30 - USER_BACKOFF.free_attempts


async def test_logins_and_streams_are_rejected_without_a_coordinator(tmp_path: Path) -> None:
    async with run_workers(tmp_path, 1) as (worker,):
        streams = worker.limit_streams(lambda user: False)
        await streams.require_room(ADA)
    for rejected in (streams.require_room(ADA), fail_login(worker), worker.collect_metrics()):
        with pytest.raises(Unavailable, match="does not respond") as error:
            await rejected
        assert error.value.details.retry_after > 0
    streams.count_stream(ADA)()  # a stream that is already open is not affected


async def test_calls_fail_when_the_coordinator_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_workers(tmp_path, 1) as (worker,):
        monkeypatch.setattr(coordinator.Coordinator, "collect_metrics", asyncio.Event().wait)
        with pytest.raises(Unavailable):
            await worker._channel.call("collect_metrics", seconds=0.01)
        with pytest.raises(Unavailable):
            await asyncio.gather(worker._channel.call("collect_metrics"), worker.close())


async def test_the_quota_for_reports_of_a_cluster_covers_all_workers(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers:
        for worker in workers:
            await worker.charge_events("oslo", MAX_CLUSTER_EVENTS // 3)
        workers[0].charge_bytes("paris", MAX_CLUSTER_BYTES)
        await workers[0].charge_events("rome", 1)
        for worker in workers:
            for cluster in ("oslo", "paris"):
                with pytest.raises(TooManyRequests, match="keep the events and report them later"):
                    await worker.charge_events(cluster, 1)
            await worker.charge_events("rome", 1)


async def test_uses_of_keys_reach_the_other_workers(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers:
        trackers = [LastUsedTracker(SystemClock()) for _ in workers]
        for worker, tracker in zip(workers, trackers, strict=True):
            tracker.share_with(worker.exchange("uses of keys", tracker.merge))
        workers[0]._channel.notify("share", "uses of keys", [("k", 1.5, 100.0)])
        await eventually(lambda: trackers[1].last_use("k") and trackers[2].last_use("k"))
        assert trackers[1].last_use("k") == LastUse(datetime.fromtimestamp(1.5, UTC), 100.0)
        assert trackers[0].last_use("k") is None


def build_endpoint(worker: CoordinatorClient, requests: list[int]) -> MetricsEndpoint:
    endpoint = MetricsEndpoint(
        [lambda: [single_value("requests_total", COUNTER, "Requests.", requests[worker.worker])]], worker
    )
    worker.provide_metrics(endpoint.encode_page)
    return endpoint


async def scrape(endpoint: MetricsEndpoint) -> dict[str, dict[str, float]]:
    """The values of each family by worker, or by an empty string."""
    text = (await endpoint(call("/metrics"))).body.decode()
    return {
        metric.name: {sample.labels.get("worker", ""): sample.value for sample in metric.samples}
        for metric in text_string_to_metric_families(text)
    }


async def test_any_worker_serves_the_metrics_of_all(tmp_path: Path) -> None:
    async with run_workers(tmp_path) as workers:
        requests = [1, 20, 300]
        for endpoint in [build_endpoint(worker, requests) for worker in workers]:
            page = await scrape(endpoint)
            assert page["requests"] == {"": 321}
            assert page["process_resident_memory_bytes"].keys() == {"0", "1", "2", "owner"}


async def test_counters_do_not_decrease_when_workers_end(tmp_path: Path) -> None:
    async with run_workers(tmp_path, 1) as (worker,):
        endpoint = build_endpoint(worker, [1])
        for number in range(1, 11):
            other = await CoordinatorClient.connect(tmp_path / "coordinator.sock", 1, 2)
            build_endpoint(other, [1, 10])
            assert (await scrape(endpoint))["requests"] == {"": 1 + 10 * number}
            await other.close()
            assert (await scrape(endpoint))["requests"] == {"": 1 + 10 * number}


async def test_a_worker_that_does_not_answer_keeps_its_last_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_workers(tmp_path, 2) as workers:
        first, second = (build_endpoint(worker, [1, 20]) for worker in workers)
        assert (await scrape(first))["requests"] == {"": 21}
        stuck = asyncio.Event()

        async def never(worker: str) -> bytes:
            await stuck.wait()
            return b""

        workers[1].provide_metrics(never)
        monkeypatch.setattr(coordinator, "PAGE_TIMEOUT_SECONDS", 0.05)
        assert (await scrape(first))["requests"] == {"": 21}
        stuck.set()
        assert second is not first


async def test_concurrent_scrapes_share_one_collection(tmp_path: Path) -> None:
    async with run_workers(tmp_path, 2) as workers:
        endpoints = [build_endpoint(worker, [1, 20]) for worker in workers]
        encoded = 0

        async def count_pages(worker: str) -> bytes:
            nonlocal encoded
            encoded += 1
            return await endpoints[1].encode_page(worker)

        workers[1].provide_metrics(count_pages)
        pages = await asyncio.gather(*(scrape(endpoints[0]) for _ in range(50)))
        assert all(page["requests"] == {"": 21} for page in pages) and encoded < 10


async def test_what_a_killed_worker_held_is_released(tmp_path: Path) -> None:
    """A real process, which is killed while it has streams and a login attempt open."""
    async with run_workers(tmp_path, 1) as (worker,):
        (streams,) = limit_streams([worker])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __spec__.name, str(tmp_path / "coordinator.sock")), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        with pytest.raises(TooManyRequests):
            await streams.require_room(ADA)
        process.send_signal(signal.SIGKILL)
        await process.wait()

        await wait_for_room(streams)
        with pytest.raises(TooManyRequests):  # its attempts had no outcome, so they still count as failures
            await fail_login(worker)


async def hold_everything(path: Path) -> None:
    """The program of the killed worker."""
    worker = await CoordinatorClient.connect(path, 1, 2)
    streams = worker.limit_streams(lambda user: False)
    async with AsyncExitStack() as stack:
        for _ in range(LIMITS.max_streams_per_user):
            await stack.enter_async_context(streams.admit(ADA))
        for _ in range(USER_BACKOFF.free_attempts):
            await stack.enter_async_context(worker.attempt("ada", CLIENT))
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold_everything(Path(sys.argv[1])))
