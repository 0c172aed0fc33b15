"""A cluster whose Pods are processes of this machine, an engine for it, and a repository that HTTP serves."""

import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.contract import GitSource, Limits, WorkspaceSpec
from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.settings import Deadlines, Settings
from tests.fake_cluster.workspace_node import WorkspaceNode

UID = "0d3f1b52-6a7c-4f0e-9b1d-2c3e4f5a6b7c"
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
FAST = Deadlines(prepare=20, clone=20, start=20, commands=20, stop=20, delete=20, image_pull=0.2, forced_deletion=0.2)

Commit = Callable[[Mapping[str, str]], str]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[WorkspaceNode]:
    with WorkspaceNode(tmp_path / "node") as node:
        yield node


@pytest.fixture
def settings(node: WorkspaceNode, tmp_path: Path) -> Settings:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(node.build_kubeconfig())
    return Settings(
        tmp_path / "state",
        "test",
        kubeconfig,
        protocols=frozenset({"http"}),
        deadlines=FAST,
        folders=node.folders,
        poll_seconds=0.03,
        status_seconds=0.0,
        call_seconds=1.0,
    )


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[KubernetesEngine]:
    engine = KubernetesEngine(settings)
    yield engine
    await engine.contexts.close()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Not to the output of the tests."""


@pytest.fixture
def commit(tmp_path: Path) -> Iterator[Commit]:
    """Commits files to a new repository, and returns its URL."""
    served = tmp_path / "served"
    served.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def create(files: Mapping[str, str]) -> str:
        folder, bare = tmp_path / "source", served / "repository.git"
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        commands = (
            ("-C", str(folder), "init", "-q", "-b", "main"),
            ("-C", str(folder), "add", "-A"),
            ("-C", str(folder), *IDENTITY, "commit", "-qm", "First"),
            ("clone", "-q", "--bare", str(folder), str(bare)),
            ("-C", str(bare), "update-server-info"),
        )
        for command in commands:
            subprocess.run(["git", *command], check=True, capture_output=True)
        return f"http://127.0.0.1:{server.server_port}/repository.git"

    yield create
    server.shutdown()
    server.server_close()


def make_spec(url: str, **changes: Any) -> WorkspaceSpec:
    options = {"image": "default", **changes.pop("options", {})}
    fields: dict[str, Any] = {
        "uid": UID,
        "namespace": "service-p-web",
        "name": "demo",
        "owner": "ada",
        "source": GitSource(url),
        "limits": Limits(memory_bytes=256 << 20, cpus=1.0),
        "options": options,
        "template_hash": "h1",
        "is_trusted": True,
    }
    return WorkspaceSpec(**{**fields, **changes})
