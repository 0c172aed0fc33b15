"""Tests of `fairlead.app.host_cluster`, with a stand-in for a kube-apiserver that answers as version 1.35."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.app.host_cluster import open_host_cluster
from fairlead.core.backoff import BackoffPolicy
from fairlead.core.call import RequestInfo
from fairlead.core.errors import Unavailable
from fairlead.core.files import FileProblem
from fairlead.core.user import User
from fairlead.settings import Settings
from tests.fake_cluster.aggregation import FakeHost, running_fake_host
from tests.fake_cluster.server import FakeCluster
from tests.harness.certificates import Authority, create_authority
from tests.harness.clock import ManualClock
from tests.harness.eventually import eventually

LIST = RequestInfo("list", "/", "management", "g", "v1", "apps")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return create_authority(tmp_path / "ca")


@pytest.fixture
def kubernetes(authority: Authority) -> FakeHost:
    return FakeHost(authority.file.read_text(), "alice")


@pytest.fixture
def cluster(kubernetes: FakeHost) -> Iterator[FakeCluster]:
    with running_fake_host(kubernetes) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("fairlead.upstream.object_watch.RETRY", BackoffPolicy(first_seconds=0.05, max_seconds=0.05))
    file = tmp_path / "kubeconfig"
    file.write_bytes(cluster.build_kubeconfig())
    return Settings(data=tmp_path / "data", aggregated_api="host", host_kubeconfig=file)


async def test_without_settings_there_is_no_host(tmp_path: Path) -> None:
    async with open_host_cluster(Settings(data=tmp_path, aggregated_api="on"), ManualClock()) as host:
        assert (host.authentication, host.reviews) == (None, None)


async def test_outside_of_a_pod_a_kubeconfig_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for file, message in ((None, "or set host_kubeconfig"), (tmp_path / "none", "no such file; the setting host")):
        with pytest.raises(FileProblem, match=message):
            async with open_host_cluster(Settings(aggregated_api="host", host_kubeconfig=file), ManualClock()):
                pass


async def test_authentication_follows_the_config_map(settings: Settings, kubernetes: FakeHost, tmp_path: Path) -> None:
    renewed = create_authority(tmp_path / "renewed").file.read_text()
    async with open_host_cluster(settings, ManualClock()) as host:
        found = host.authentication
        assert found is not None and host.reviews is None
        assert not found.is_known and found.config() is None
        with pytest.raises(FileProblem):
            found.read()
        await found.wait()
        first, config = found.sign(), found.config()
        assert config is not None and config.allowed_names == {"front-proxy-client"} and config.uid_headers == ()
        assert kubernetes.data is not None
        kubernetes.data = {**kubernetes.data, "requestheader-client-ca-file": renewed}
        await eventually(lambda: found.read() == renewed.encode())
        assert found.sign() != first
        kubernetes.data = {**kubernetes.data, "requestheader-uid-headers": '["X-Remote-Uid"]'}
        await eventually(lambda: (changed := found.config()) and changed.uid_headers == ("x-remote-uid",))


@pytest.mark.parametrize(
    ("data", "is_forbidden", "problem"),
    [
        (None, False, "there is no such ConfigMap"),
        ({"client-ca-file": "x"}, False, "start the kube-apiserver with --requestheader-client-ca-file"),
        ({}, True, "bind the Role extension-apiserver-authentication-reader in the namespace kube-system"),
    ],
)
async def test_what_is_missing_is_logged_once_and_tried_again(
    settings: Settings,
    kubernetes: FakeHost,
    cluster: FakeCluster,
    capsys: pytest.CaptureFixture[str],
    data: dict[str, str] | None,
    is_forbidden: bool,
    problem: str,
) -> None:
    usable, kubernetes.data, kubernetes.is_forbidden = kubernetes.data, data, is_forbidden
    logged = ""

    def has_logged(text: str) -> bool:
        nonlocal logged
        logged += capsys.readouterr().out
        return text in logged

    async with open_host_cluster(settings, ManualClock()) as host:
        found = host.authentication
        await eventually(lambda: has_logged(problem) and (not is_forbidden or len(cluster.requests) > 3))
        assert found is not None and found.config() is None
        kubernetes.data, kubernetes.is_forbidden = usable, False
        await found.wait()
        kubernetes.data = {"requestheader-client-ca-file": "broken"}
        await eventually(lambda: has_logged("contains no certificate"))
        assert found.config() is not None, "what was known last stays in use"
    assert logged.count(problem) == 1, logged


async def test_a_host_that_is_not_reachable_yet_is_waited_for(settings: Settings, cluster: FakeCluster) -> None:
    cluster.stop()
    async with open_host_cluster(replace(settings, aggregated_api_authorization="host"), ManualClock()) as host:
        assert host.reviews is not None and host.authentication is not None
        with pytest.raises(Unavailable):
            await host.reviews.review(User("alice"), LIST)
        cluster.start()
        await host.authentication.wait()
        assert (await host.reviews.review(User("alice"), LIST)).allowed


async def test_the_ca_of_users_must_be_another_one(
    settings: Settings, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_host_cluster(replace(settings, client_ca=authority.file), ManualClock()) as host:
        await eventually(lambda: "use another CA for users" in capsys.readouterr().out)
        assert host.authentication is not None and not host.authentication.is_known


async def test_the_host_reviews_access(
    settings: Settings, kubernetes: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    configured = replace(settings, aggregated_api="on", aggregated_api_authorization="host")
    async with open_host_cluster(configured, ManualClock()) as host:
        assert host.reviews is not None and host.authentication is None
        assert (await host.reviews.review(User("alice"), LIST)).allowed
        assert not (await host.reviews.review(User("bo"), LIST)).allowed
        kubernetes.is_forbidden = True
        with pytest.raises(Unavailable, match="cannot review the access of users"):
            await host.reviews.review(User("cy"), LIST)
    assert "bind the ClusterRole system:auth-delegator" in capsys.readouterr().out
