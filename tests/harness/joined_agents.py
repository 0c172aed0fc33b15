"""Agents that dial out, as real processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.harness.fork_server import ForkedProcess, fork_program
from tests.harness.gateways import M, post_object
from tests.harness.server_process import Server, server_environment


def create_join_token(admin: httpx.Client, cluster: str = "berlin") -> str:
    status: dict[str, Any] = post_object(admin, f"{M}/clusters/{cluster}/agenttoken", {})["status"]
    return str(status["token"])


@contextmanager
def joined_agent(folder: Path, server: Server, kubeconfig: bytes, token: str) -> Iterator[ForkedProcess]:
    """An agent process, when it has a session."""
    folder.mkdir(exist_ok=True)
    (folder / "kubeconfig").write_bytes(kubeconfig)
    log = folder / "agent.log"
    with log.open("ab") as errors:
        arguments = [
            *("agent", "--server", server.url, "--json", "--kubeconfig", str(folder / "kubeconfig")),
            *("--state", str(folder / "state"), *(("--token", token) if token else ("--dial-out",))),
        ]
        process = fork_program("fairlead", arguments, server_environment(), errors)
    try:
        assert process.stdout.readline(), log.read_text()
        yield process
    finally:
        process.close()
