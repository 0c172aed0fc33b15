"""Which requests count as failures of the remote cluster, and that idle connections can be closed."""

from dataclasses import replace

import pytest

from fairlead.upstream.errors import ClusterLimitExceeded, FailureNotifier, HandshakeRejected, UpstreamError
from fairlead.upstream.upstream import Limits, Request, Upstream
from tests.fake_cluster.certificates import authority
from tests.fake_cluster.exchange import Answer
from tests.fake_cluster.server import FakeCluster
from tests.upstream.upstreams import access_to, as_it_is, asked, got


class Counting:
    def __init__(self, far: FakeCluster, limits: Limits | None = None) -> None:
        self.failures = 0
        self.upstream = Upstream(access_to(far), as_it_is, limits or Limits(), self._count)

    def _count(self) -> None:
        self.failures += 1


@pytest.mark.parametrize("path", ["/far/hang-up", "/far/garbage", "/far/long-head?bytes=100000", "/far/never"])
async def test_a_request_without_an_answer_is_a_failure(fake_cluster: FakeCluster, path: str) -> None:
    counting = Counting(fake_cluster, replace(Limits(), response_header_seconds=0.5))
    with pytest.raises(UpstreamError):
        await got(counting.upstream, path)
    assert counting.failures == 1
    await counting.upstream.close()


async def test_an_answer_is_no_failure_unless_it_is_about_the_stored_credential(fake_cluster: FakeCluster) -> None:
    counting = Counting(fake_cluster)
    for status in (200, 302, 403, 404, 409, 500, 503):
        fake_cluster.answer("/x", Answer(status))
        await got(counting.upstream, "/x")
    assert counting.failures == 0
    fake_cluster.answer("/x", Answer(401))
    await got(counting.upstream, "/x")
    assert counting.failures == 1
    await counting.upstream.close()


@pytest.mark.parametrize(("status", "failures"), [(401, 1), (403, 0)])
async def test_a_refused_socket_is_no_failure_unless_it_is_about_the_stored_credential(
    fake_cluster: FakeCluster, status: int, failures: int
) -> None:
    async def refuse(asked: object, reader: object, writer: object) -> bool:
        writer.write(Answer(status).wire("GET"))  # type: ignore[attr-defined]
        return True

    fake_cluster.behave_on_upgrade("/x", refuse)
    counting = Counting(fake_cluster)
    with pytest.raises(HandshakeRejected):
        await counting.upstream.open_websocket(Request("GET", "/x"), [])
    assert counting.failures == failures
    await counting.upstream.close()


async def test_a_socket_to_a_cluster_that_is_gone_is_a_failure(fake_cluster: FakeCluster) -> None:
    fake_cluster.stop()
    counting = Counting(fake_cluster)
    with pytest.raises(UpstreamError):
        await counting.upstream.open_websocket(Request("GET", "/x"), [])
    assert counting.failures == 1
    await counting.upstream.close()


async def test_a_limit_of_our_own_is_no_failure(fake_cluster: FakeCluster) -> None:
    counting = Counting(fake_cluster, Limits(max_requests=1, max_queued=0))
    stream = await asked(counting.upstream, "/far/ticks")
    with pytest.raises(ClusterLimitExceeded):
        await got(counting.upstream, "/version")
    assert counting.failures == 0
    await stream.close()
    await counting.upstream.close()


async def test_without_idle_connections_the_next_request_meets_the_certificate_that_is_presented_now(
    fake_cluster: FakeCluster,
) -> None:
    counting = Counting(fake_cluster)
    await got(counting.upstream, "/version")
    fake_cluster.reload(replace(fake_cluster.manner, issuer=authority("a stranger")))
    await got(counting.upstream, "/version")
    assert fake_cluster.connections == 1
    counting.upstream.close_idle()
    with pytest.raises(UpstreamError, match="certificate"):
        await got(counting.upstream, "/version")
    assert counting.failures == 1
    await counting.upstream.close()


async def test_closing_idle_connections_leaves_alone_what_is_under_way(fake_cluster: FakeCluster) -> None:
    counting = Counting(fake_cluster)
    stream = await asked(counting.upstream, "/far/ticks?count=3&seconds=0.05")
    counting.upstream.close_idle()
    assert (await stream.read(1_000)).endswith(b"tick 2\n")
    await counting.upstream.close()


def test_a_notification_that_nobody_waits_for_does_nothing() -> None:
    notifier, heard = FailureNotifier(), list[object]()
    unsubscribe = notifier.subscribe(heard.append)
    unsubscribe()
    notifier.notify(("", "", "", ""))
    assert heard == []
