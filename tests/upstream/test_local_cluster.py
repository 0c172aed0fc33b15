"""Tests of `fairlead.upstream.local_cluster`: renewed credentials are used without interrupting requests."""

import asyncio
from pathlib import Path

import pytest

from fairlead.core.files import FileProblem
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.dial import resolve_host
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.local_cluster import LocalCluster, in_cluster_source, kubeconfig_source
from fairlead.upstream.upstream import Request
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import eventually

ADVICE = "specify it with --kubeconfig"


async def read_sent_token(local_cluster: LocalCluster, remote: FakeCluster) -> str:
    response = await local_cluster().send(Request("GET", "/x"))
    await response.read(1024 * 1024)
    return remote.requests[-1].header("authorization")


async def test_a_renewed_credential_is_used_after_the_next_reload(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    file = tmp_path / "config"
    file.write_bytes(fake_cluster.build_kubeconfig(token="one"))
    local_cluster = LocalCluster(kubeconfig_source(file, ADVICE))
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer one"
    file.write_bytes(fake_cluster.build_kubeconfig(token="two"))
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer one"
    await local_cluster.reload_credentials()
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer two"
    file.unlink()
    await local_cluster.reload_credentials()
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer two"
    await local_cluster.close()


async def test_a_credential_that_cannot_be_used_changes_nothing_and_the_next_one_is_used(
    tmp_path: Path, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fairlead.upstream.local_cluster.RELOAD_SECONDS", 0.01)
    file, is_broken = tmp_path / "config", False
    file.write_bytes(fake_cluster.build_kubeconfig(token="one"))
    read_endpoint = kubeconfig_source(file, ADVICE)

    def source() -> ClusterEndpoint:
        if is_broken:
            raise OSError("the disk has failed")
        return read_endpoint()

    local_cluster = LocalCluster(source)
    first, task = local_cluster(), asyncio.create_task(local_cluster.run())
    is_broken, logged = True, ""

    def has_logged(text: str) -> bool:
        nonlocal logged
        logged += capsys.readouterr().out
        return text in logged

    await eventually(lambda: has_logged("the disk has failed"))
    assert local_cluster() is first
    is_broken = False
    file.write_bytes(fake_cluster.build_kubeconfig(token="two"))
    await eventually(lambda: local_cluster() is not first)
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer two"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await local_cluster.close()


async def test_the_old_upstream_stays_open_if_there_cannot_be_a_new_one(
    tmp_path: Path, fake_cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config"
    file.write_bytes(fake_cluster.build_kubeconfig(token="one"))
    local_cluster = LocalCluster(kubeconfig_source(file, ADVICE))
    file.write_bytes(fake_cluster.build_kubeconfig(token="two"))
    with monkeypatch.context() as patched, pytest.raises(ValueError, match="unusable"):
        patched.setattr("fairlead.upstream.local_cluster.Upstream", _raise_unusable)
        await local_cluster.reload_credentials()
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer one"
    await local_cluster.reload_credentials()
    assert await read_sent_token(local_cluster, fake_cluster) == "Bearer two"
    await local_cluster.close()


def _raise_unusable(*_: object, **__: object) -> None:
    raise ValueError("unusable")


def test_a_missing_or_invalid_kubeconfig_fails_at_startup(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="--kubeconfig"):
        LocalCluster(kubeconfig_source(tmp_path / "none", ADVICE))
    (tmp_path / "bad").write_text("kind: Config")
    with pytest.raises(FileProblem, match="bad: "):
        LocalCluster(kubeconfig_source(tmp_path / "bad", ADVICE))


def test_a_pod_uses_its_service_account_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileProblem, match="not running in a pod"):
        in_cluster_source("use a pod", tmp_path)()
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "ca.crt").write_text("PEM")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    access = in_cluster_source("use a pod", tmp_path)()
    assert (access.host, access.port, access.token, access.ca_data) == ("10.0.0.1", 6443, "secret-token", "PEM")


async def test_an_error_about_a_host_that_does_not_resolve_does_not_name_it() -> None:
    assert await resolve_host("127.0.0.1", 443) == "127.0.0.1"
    with pytest.raises(Unreachable) as error:
        await resolve_host("nowhere.invalid", 443)
    assert "nowhere" not in error.value.message
