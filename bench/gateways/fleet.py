"""Processes and connected clusters for the rounds. Whatever is started here is ended here."""

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
from bench.gateways.far import ADDRESS

MANAGEMENT = "/kubernetes/management"
CLUSTERS = f"{MANAGEMENT}/apis/management.service.sh/v1/clusters"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/service-system/secrets"
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Process:
    """A server that answers at `url`, with whatever else it said when it was ready."""

    running: "subprocess.Popen[bytes]"
    url: str
    told: dict[str, Any]

    def memory(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def stop(self) -> dict[str, Any]:
        """Ends it; what it said last, if anything."""
        self.running.send_signal(signal.SIGTERM)
        output, _ = self.running.communicate(timeout=30)
        return json.loads(output.splitlines()[-1]) if output.strip() else {}


@contextmanager
def started(*command: str) -> Iterator[Process]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
    process = subprocess.Popen(
        (sys.executable, "-m", *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
    )
    try:
        line = process.stdout.readline() if process.stdout else b""
        if not line:
            raise Failure(f"{command[0]} ended before it was ready")
        told = json.loads(line)
        yield Process(process, told["url"], told)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@contextmanager
def fairlead(folder: Path) -> Iterator[Process]:
    with started("fairlead", "up", "--data", str(folder), "--port", "0", "--json") as server:
        yield server


def client(server: Process) -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.told['accessKey']}"}
    return httpx.Client(base_url=server.url, verify=False, headers=headers, timeout=30)


def connect(api: httpx.Client, name: str, kubeconfig: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"cluster-{name}"}}
    data = {"config": b64encode(kubeconfig.encode()).decode()}
    made(api.post(SECRETS, json={**secret, "data": data}))
    spec = {"config": {"secretName": f"cluster-{name}", "secretNamespace": "service-system"}}
    body = {"apiVersion": "management.service.sh/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
    made(api.post(CLUSTERS, json=body))


def kubeconfig(url: str, authority: Path) -> str:
    """As JSON, which is YAML, too."""
    ca = b64encode(authority.read_bytes()).decode()
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "far", "cluster": {"server": url, "certificate-authority-data": ca}}],
            "users": [{"name": "far", "user": {"token": "bench"}}],
            "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
            "current-context": "far",
        }
    )


def connect_all(api: httpx.Client, ports: Sequence[int], authority: Path, dead: int) -> None:
    """Those that are there, and as many more at ports that nobody listens on."""
    for number, port in enumerate((*ports, *range(1, dead + 1))):
        place = port if number < len(ports) else _closed_port()
        connect(api, f"far-{number}", kubeconfig(f"https://{ADDRESS}:{place}", authority))


def _closed_port() -> int:
    import socket

    with socket.create_server((ADDRESS, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_until_settled(api: httpx.Client, healthy: int) -> float:
    """Seconds until so many clusters are online."""
    began = time.monotonic()
    while time.monotonic() - began < SETTLE_SECONDS:
        clusters = api.get(CLUSTERS).json()["items"]
        if sum((each.get("status") or {}).get("online") is True for each in clusters) >= healthy:
            return time.monotonic() - began
        time.sleep(0.2)
    raise Failure(f"{healthy} clusters were not online within {SETTLE_SECONDS:.0f} seconds")


def made(answer: httpx.Response) -> None:
    if answer.status_code != httpx.codes.CREATED:
        raise Failure(f"{answer.request.url} answered {answer.status_code}: {answer.text[:200]}")
