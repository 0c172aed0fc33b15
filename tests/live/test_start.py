"""Starting on a folder or store in use: it belongs to one server, and its first key is never lost."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.client.admin_kubeconfig import read_key
from tests.harness.server_process import (
    CONFIGMAPS,
    ROOT,
    TIMEOUT_SECONDS,
    expect_startup_error,
    running_server,
    server_command,
    server_environment,
)


def test_a_second_server_on_the_same_folder_or_store_fails_and_the_first_continues(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'data' / 'fairlead.db'}"
    with running_server(tmp_path / "data") as server:
        assert f"in use by another server (process {server.process.pid})" in expect_startup_error(tmp_path / "data")
        assert f"in use by another server (process {server.process.pid})" in expect_startup_error(
            tmp_path / "other", store=store
        )
        with server.client() as client:
            assert client.get(CONFIGMAPS).status_code == 200


def test_a_start_with_a_memory_store_does_not_overwrite_the_first_key(tmp_path: Path) -> None:
    """The kubeconfig has the only copy of the key: if it were overwritten, nobody could log in."""
    with running_server(tmp_path / "data") as server:
        key = server.key
        assert server.stop() == 0
    trial = subprocess.Popen(
        server_command(tmp_path / "data", "--json"),
        cwd=ROOT,
        env=server_environment(store="memory:"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert trial.stdout is not None
    trial.stdout.readline()  # it is ready, or has failed
    trial.terminate()
    trial.communicate(timeout=TIMEOUT_SECONDS)
    keys = [read_key(path) for path in (tmp_path / "data").glob("admin.kubeconfig*")]
    assert key in keys


@pytest.mark.parametrize("processes", [1, 2])
def test_a_data_folder_that_is_read_only_is_an_error(tmp_path: Path, processes: int) -> None:
    """Also one of an earlier start, whose key `up` checks."""
    data = tmp_path / "data"
    with running_server(data) as server:
        assert server.stop() == 0
    with read_only(data):
        error = expect_startup_error(data, workers=processes)
    assert f"fairlead: {data}/" in error and "Read-only file system" in error and "writable" in error


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a folder read-only")
    for options in (["--bind", str(folder)], ["-o", "remount,bind,ro"]):
        subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)
