"""Processes and connected clusters for the rounds. Everything started here is stopped here."""

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.failure import Failure
from bench.gateways.bare_clusters import ADDRESS

MANAGEMENT = "/kubernetes/management"
CLUSTERS = f"{MANAGEMENT}/apis/management.service.sh/v1/clusters"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets"
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Process:
    """A server at `url`, with the rest of its output at the start."""

    running: "subprocess.Popen[bytes]"
    url: str
    output: dict[str, Any]

    def memory(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def stop(self) -> dict[str, Any]:
        """Stops it and returns its last output, if any."""
        self.running.send_signal(signal.SIGTERM)
        output, _ = self.running.communicate(timeout=30)
        return json.loads(output.splitlines()[-1]) if output.strip() else {}


@contextmanager
def run_process(*command: str) -> Iterator[Process]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
    process = subprocess.Popen(
        (sys.executable, "-m", *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
    )
    try:
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            raise Failure(f"{command[0]} ended before it was ready")
        output = json.loads(line)
        yield Process(process, output["url"], output)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@contextmanager
def run_fairlead(folder: Path) -> Iterator[Process]:
    with run_process("fairlead", "up", "--data", str(folder), "--port", "0", "--json") as server:
        yield server


def build_client(server: Process) -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.output['accessKey']}"}
    return httpx.Client(base_url=server.url, verify=False, headers=headers, timeout=30)


def connect_cluster(api: httpx.Client, name: str, build_kubeconfig: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"cluster-{name}"}}
    data = {"config": b64encode(build_kubeconfig.encode()).decode()}
    expect_created(api.post(SECRETS, json={**secret, "data": data}))
    spec = {"config": {"secretName": f"cluster-{name}", "secretNamespace": "service-system"}}
    body = {"apiVersion": "management.service.sh/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
    expect_created(api.post(CLUSTERS, json=body))


def build_kubeconfig(url: str, authority: Path) -> str:
    """Builds a kubeconfig as JSON, which is valid YAML."""
    ca = b64encode(authority.read_bytes()).decode()
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bare", "cluster": {"server": url, "certificate-authority-data": ca}}],
            "users": [{"name": "bare", "user": {"token": "bench"}}],
            "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
            "current-context": "bare",
        }
    )


def connect_clusters(api: httpx.Client, ports: Sequence[int], authority: Path, dead: int) -> None:
    """Connects the running clusters, and `dead` more at closed ports."""
    for number, port in enumerate((*ports, *range(1, dead + 1))):
        actual_port = port if number < len(ports) else _closed_port()
        connect_cluster(api, f"bare-{number}", build_kubeconfig(f"https://{ADDRESS}:{actual_port}", authority))


def _closed_port() -> int:
    import socket

    with socket.create_server((ADDRESS, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until_settled(api: httpx.Client, healthy: int) -> float:
    """Waits until this many clusters are online. Returns the seconds."""
    start = time.monotonic()
    while time.monotonic() - start < SETTLE_SECONDS:
        clusters = api.get(CLUSTERS).json()["items"]
        if sum((each.get("status") or {}).get("online") is True for each in clusters) >= healthy:
            return time.monotonic() - start
        time.sleep(0.2)
    raise Failure(f"{healthy} clusters were not online within {SETTLE_SECONDS:.0f} seconds")


def expect_created(response: httpx.Response) -> None:
    if response.status_code != httpx.codes.CREATED:
        raise Failure(f"{response.request.url} responded with {response.status_code}: {response.text[:200]}")
