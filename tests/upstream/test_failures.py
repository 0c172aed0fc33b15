"""Tests of failures in `fairlead.upstream.upstream`: which requests count as failures, and closing idle connections."""

from dataclasses import replace

import pytest

from fairlead.upstream.dial import DirectDialer
from fairlead.upstream.errors import ClusterLimitExceeded, FailureNotifier, HandshakeRejected, UpstreamError
from fairlead.upstream.upstream import Limits, Request, dialled_upstream
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import build_endpoint, fetch_body, resolve_unchanged, send_request


class FailureCounter:
    def __init__(self, fake_cluster: FakeCluster, limits: Limits | None = None) -> None:
        self.failures = 0
        endpoint = build_endpoint(fake_cluster)
        dialer = DirectDialer(endpoint, resolve_unchanged)
        self.upstream = dialled_upstream(endpoint, dialer, limits or Limits(), self._count)

    def _count(self) -> None:
        self.failures += 1


@pytest.mark.parametrize("path", ["/fake/hang-up", "/fake/garbage", "/fake/long-head?bytes=100000", "/fake/never"])
async def test_a_request_without_a_response_is_a_failure(fake_cluster: FakeCluster, path: str) -> None:
    counter = FailureCounter(fake_cluster, replace(Limits(), response_header_seconds=0.5))
    with pytest.raises(UpstreamError):
        await fetch_body(counter.upstream, path)
    assert counter.failures == 1
    await counter.upstream.close()


async def test_a_response_is_no_failure_unless_the_stored_credential_is_rejected(fake_cluster: FakeCluster) -> None:
    counter = FailureCounter(fake_cluster)
    for status in (200, 302, 403, 404, 409, 500, 503):
        fake_cluster.set_response("/x", CannedResponse(status))
        await fetch_body(counter.upstream, "/x")
    assert counter.failures == 0
    fake_cluster.set_response("/x", CannedResponse(401))
    await fetch_body(counter.upstream, "/x")
    assert counter.failures == 1
    await counter.upstream.close()


@pytest.mark.parametrize(("status", "failures"), [(401, 1), (403, 0)])
async def test_a_rejected_websocket_is_no_failure_unless_the_stored_credential_is_rejected(
    fake_cluster: FakeCluster, status: int, failures: int
) -> None:
    async def reject(request: object, reader: object, writer: object) -> bool:
        writer.write(CannedResponse(status).encode("GET"))  # type: ignore[attr-defined]
        return True

    fake_cluster.set_upgrade_behaviour("/x", reject)
    counter = FailureCounter(fake_cluster)
    with pytest.raises(HandshakeRejected):
        await counter.upstream.open_websocket(Request("GET", "/x"), [])
    assert counter.failures == failures
    await counter.upstream.close()


async def test_a_websocket_to_a_stopped_cluster_is_a_failure(fake_cluster: FakeCluster) -> None:
    fake_cluster.stop()
    counter = FailureCounter(fake_cluster)
    with pytest.raises(UpstreamError):
        await counter.upstream.open_websocket(Request("GET", "/x"), [])
    assert counter.failures == 1
    await counter.upstream.close()


async def test_a_limit_of_the_server_is_no_failure(fake_cluster: FakeCluster) -> None:
    counter = FailureCounter(fake_cluster, Limits(max_requests=1, max_queued=0))
    stream = await send_request(counter.upstream, "/fake/ticks")
    with pytest.raises(ClusterLimitExceeded):
        await fetch_body(counter.upstream, "/version")
    assert counter.failures == 0
    await stream.close()
    await counter.upstream.close()


async def test_after_closing_idle_connections_the_next_request_checks_the_current_certificate(
    fake_cluster: FakeCluster,
) -> None:
    counter = FailureCounter(fake_cluster)
    await fetch_body(counter.upstream, "/version")
    fake_cluster.reload(replace(fake_cluster.options, issuer=get_authority("an unknown authority")))
    await fetch_body(counter.upstream, "/version")
    assert fake_cluster.connection_count == 1
    counter.upstream.close_idle()
    with pytest.raises(UpstreamError, match="certificate"):
        await fetch_body(counter.upstream, "/version")
    assert counter.failures == 1
    await counter.upstream.close()


async def test_closing_idle_connections_does_not_interrupt_requests_in_progress(fake_cluster: FakeCluster) -> None:
    counter = FailureCounter(fake_cluster)
    stream = await send_request(counter.upstream, "/fake/ticks?count=3&seconds=0.05")
    counter.upstream.close_idle()
    assert (await stream.read(1_000)).endswith(b"tick 2\n")
    await counter.upstream.close()


def test_a_notification_without_subscribers_does_nothing() -> None:
    notifier, notified = FailureNotifier(), list[object]()
    unsubscribe = notifier.subscribe(notified.append)
    unsubscribe()
    notifier.notify(("", "", "", ""))
    assert notified == []
