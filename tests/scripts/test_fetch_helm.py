"""`deploy/container/fetch_helm.py`: the pinned Helm, from a file or an address, and only with the right digest."""

import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "container" / "fetch_helm.py"
PROGRAM = b"#!/bin/sh\necho v4.1.4\n"


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("fetch_helm", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fetch_helm = load_script()


def build_archive(member: str = "linux-arm64/helm") -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w:gz") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = len(PROGRAM)
        archive.addfile(entry, io.BytesIO(PROGRAM))
    return output.getvalue()


def settings(folder: Path, content: bytes, **others: str) -> dict[str, str]:
    (folder / "archive").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return {"HELM_ARCHIVE": str(folder / "archive"), "HELM_SHA256": digest, **others}


def test_the_program_is_taken_from_a_file_with_the_right_digest(tmp_path: Path) -> None:
    target = tmp_path / "bin" / "helm"
    message = fetch_helm.fetch(target, settings(tmp_path, build_archive()), "aarch64")
    assert target.read_bytes() == PROGRAM and os.access(target, os.X_OK)
    assert "Helm 4.1.4" in message
    assert sorted(each.name for each in target.parent.iterdir()) == ["helm"]


@pytest.mark.parametrize(
    ("changes", "machine", "message"),
    [
        ({"HELM_SHA256": "0" * 64}, "aarch64", "its SHA-256 is .*, not 0000"),
        ({"HELM_SHA256": ""}, "aarch64", "not 13d03672"),
        ({"HELM_SHA256": ""}, "x86_64", "not 70b2c30a"),
        ({"HELM_SHA256": "", "HELM_VERSION": "3.18.0"}, "aarch64", "set HELM_SHA256 to the digest"),
        ({"HELM_ARCHIVE": "/nonexistent"}, "aarch64", "no such file; HELM_ARCHIVE"),
        ({}, "x86_64", "has no program linux-amd64/helm"),
        ({}, "riscv64", "there is no digest of Helm for riscv64"),
    ],
)
def test_another_archive_is_refused_and_nothing_written(
    tmp_path: Path, changes: dict[str, str], machine: str, message: str
) -> None:
    target = tmp_path / "bin" / "helm"
    with pytest.raises(ValueError, match=message):
        fetch_helm.fetch(target, settings(tmp_path, build_archive(), **changes), machine)
    assert not target.exists()


def test_it_is_fetched_from_an_address_or_the_error_says_how_to_do_without(tmp_path: Path) -> None:
    content = build_archive()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/helm.tar.gz"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(content if found else b"")

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        digest = hashlib.sha256(content).hexdigest()
        target = tmp_path / "helm"
        fetch_helm.fetch(target, {"HELM_URL": f"{url}/helm.tar.gz", "HELM_SHA256": digest}, "aarch64")
        assert target.read_bytes() == PROGRAM
        with pytest.raises(ValueError, match=r"put helm-v4\.1\.4-linux-arm64\.tar\.gz into the folder helm/"):
            fetch_helm.fetch(target, {"HELM_URL": f"{url}/missing", "HELM_SHA256": digest}, "aarch64")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_folder_helm_is_used_without_network(tmp_path: Path) -> None:
    content = build_archive(f"linux-{fetch_helm.ARCHITECTURES[os.uname().machine]}/helm")
    (tmp_path / "helm").mkdir()
    name = f"helm-v4.1.4-linux-{fetch_helm.ARCHITECTURES[os.uname().machine]}.tar.gz"
    (tmp_path / "helm" / name).write_bytes(content)
    environment = {"HELM_SHA256": hashlib.sha256(content).hexdigest(), "HELM_URL": "http://127.0.0.1:9/none"}
    command = [sys.executable, str(SCRIPT), str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_bytes() == PROGRAM
    environment["HELM_SHA256"] = "1" * 64
    failed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stderr.startswith("error: helm/helm-v4.1.4")) == (1, True)
