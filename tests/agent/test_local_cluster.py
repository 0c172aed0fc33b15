"""The cluster next door: its credential is read again, and changed over to without breaking anything off."""

from pathlib import Path

import pytest

from fairlead.agent.local_cluster import LocalCluster, in_cluster_source, kubeconfig_source, resolve_host
from fairlead.core.files import FileProblem
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.upstream import Request
from tests.fake_cluster.server import FakeCluster


async def token_seen(nearby: LocalCluster, far: FakeCluster) -> str:
    response = await nearby().send(Request("GET", "/x"))
    await response.read(1024 * 1024)
    return far.seen[-1].header("authorization")


async def test_a_renewed_credential_is_used_from_the_next_look_on(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    file = tmp_path / "config"
    file.write_bytes(fake_cluster.kubeconfig(token="one"))
    nearby = LocalCluster(kubeconfig_source(file))
    assert await token_seen(nearby, fake_cluster) == "Bearer one"
    file.write_bytes(fake_cluster.kubeconfig(token="two"))
    assert await token_seen(nearby, fake_cluster) == "Bearer one"
    await nearby.reload_credentials()
    assert await token_seen(nearby, fake_cluster) == "Bearer two"
    file.unlink()
    await nearby.reload_credentials()
    assert await token_seen(nearby, fake_cluster) == "Bearer two"
    await nearby.close()


def test_a_kubeconfig_that_is_missing_or_no_good_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="--kubeconfig"):
        LocalCluster(kubeconfig_source(tmp_path / "none"))
    (tmp_path / "bad").write_text("kind: Config")
    with pytest.raises(FileProblem, match="bad: "):
        LocalCluster(kubeconfig_source(tmp_path / "bad"))


def test_in_a_pod_everything_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileProblem, match="not running in a pod"):
        in_cluster_source(tmp_path)()
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "ca.crt").write_text("PEM")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    access = in_cluster_source(tmp_path)()
    assert (access.host, access.port, access.token, access.ca_data) == ("10.0.0.1", 6443, "secret-token", "PEM")


async def test_a_name_that_does_not_resolve_is_said_without_naming_it() -> None:
    assert await resolve_host("127.0.0.1", 443) == "127.0.0.1"
    with pytest.raises(Unreachable) as refused:
        await resolve_host("nowhere.invalid", 443)
    assert "nowhere" not in refused.value.message
