"""The agent's connection to its local cluster: renewed credentials are used without interrupting requests."""

from pathlib import Path

import pytest

from fairlead.agent.local_cluster import LocalCluster, in_cluster_source, kubeconfig_source, resolve_host
from fairlead.core.files import FileProblem
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.upstream import Request
from tests.fake_cluster.server import FakeCluster


async def read_sent_token(local_cluster: LocalCluster, remote: FakeCluster) -> str:
    response = await local_cluster().send(Request("GET", "/x"))
    await response.read(1024 * 1024)
    return remote.requests[-1].header("authorization")


async def test_a_renewed_credential_is_used_after_the_next_reload(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    file = tmp_path / "config"
    file.write_bytes(fake_cluster.build_kubeconfig(token="one"))
    local_cluster = LocalCluster(kubeconfig_source(file))
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer one"
    file.write_bytes(fake_cluster.build_kubeconfig(token="two"))
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer one"
    await local_cluster.reload_credentials()
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer two"
    file.unlink()
    await local_cluster.reload_credentials()
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer two"
    await local_cluster.close()


def test_a_missing_or_invalid_kubeconfig_fails_at_startup(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="--kubeconfig"):
        LocalCluster(kubeconfig_source(tmp_path / "none"))
    (tmp_path / "bad").write_text("kind: Config")
    with pytest.raises(FileProblem, match="bad: "):
        LocalCluster(kubeconfig_source(tmp_path / "bad"))


def test_a_pod_uses_its_service_account_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileProblem, match="not running in a pod"):
        in_cluster_source(tmp_path)()
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "ca.crt").write_text("PEM")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    access = in_cluster_source(tmp_path)()
    assert (access.host, access.port, access.token, access.ca_data) == ("10.0.0.1", 6443, "secret-token", "PEM")


async def test_an_error_about_a_host_that_does_not_resolve_does_not_name_it() -> None:
    assert await resolve_host("127.0.0.1", 443) == "127.0.0.1"
    with pytest.raises(Unreachable) as error:
        await resolve_host("nowhere.invalid", 443)
    assert "nowhere" not in error.value.message
