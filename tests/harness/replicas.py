"""Several real servers on one real store, with the same secrets and the same certificate, as operators set them up."""

import asyncio
import base64
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from fairlead.core.crypto.encryption import generate_key
from tests.harness import etcd_server, postgres_server
from tests.harness.eventually import wait_until
from tests.harness.server_process import MANAGEMENT, Server, running_server

LEASE = f"{MANAGEMENT}/apis/coordination.k8s.io/v1/namespaces/service-system/leases/fairlead-controllers"
NAMESPACES = f"{MANAGEMENT}/api/v1/namespaces"
BECAME_LEADER = "became leader: controllers run in this replica"

STORES = ("postgres", "etcd") if os.environ.get("TEST_STORES") == "all" else ("postgres",)
"""The ordinary run has one of them, as what it shows is not up to the store; `make test-faults` has both."""

Found = TypeVar("Found")


def store_address(kind: str, folder: Path) -> str:
    """The address of an empty store that belongs to a folder."""
    if kind == "postgres":
        return postgres_server.address_for(folder)
    cluster = etcd_server.shared_cluster()
    asyncio.run(cluster.wait_until_ready())
    return f"etcd:{cluster.url('tests/' + hashlib.sha256(str(folder).encode()).hexdigest()[:16])}"


def new_secrets() -> dict[str, str]:
    """What all replicas are given in their environment."""
    key = generate_key()
    encryption_keys = f"{key.id} {base64.b64encode(key.secret).decode()}"
    return {"encryption_keys": encryption_keys, "pepper": base64.b64encode(os.urandom(32)).decode()}


@dataclass
class Replicas:
    """`start` adds one. Each has a folder of its own; only the first one is told the administrator's key."""

    folder: Path
    store: str
    stack: ExitStack
    secrets: dict[str, str] = field(default_factory=new_secrets)
    servers: list[Server] = field(default_factory=list)
    started: int = 0
    settings: dict[str, str | int] = field(default_factory=dict)
    """More settings of each of them."""

    def start(self, module: str = "fairlead") -> Server:
        self.started += 1
        data = self.folder / f"replica{self.started}"
        if self.servers:
            self._same_certificate(data)
        server = self.stack.enter_context(
            running_server(
                data,
                module,
                store=self.store,
                log_level="info",
                log_format="json",
                **self.secrets,
                **self.settings,
            )
        )
        if self.servers:
            server = replace(server, key=self.servers[0].key)
        self.servers.append(server)
        return server

    def leader(self) -> Server:
        """Whoever the lease names, once it names a server that runs."""
        return wait_until(self._find_leader)

    def _find_leader(self) -> Server | None:
        alive = [server for server in self.servers if server.process.poll() is None]
        with alive[0].client() as client:
            answer = client.get(LEASE)
        holder = answer.json()["spec"]["holderIdentity"] if answer.status_code == 200 else ""
        return next((server for server in alive if holder and holder in leader_identities(server)), None)

    def others(self, server: Server) -> list[Server]:
        return [each for each in self.servers if each is not server and each.process.poll() is None]

    def _same_certificate(self, data: Path) -> None:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(Path(self.servers[0].ca_file).parent, data / "tls")


def leader_identities(server: Server) -> list[str]:
    """The names under which a server has led."""
    return [line["identity"] for line in read_log(server) if line.get("event") == BECAME_LEADER]


def read_log(server: Server) -> list[dict[str, Any]]:
    lines = server.log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


@contextmanager
def running_replicas(kind: str, folder: Path, count: int, **settings: str | int) -> Iterator[Replicas]:
    with ExitStack() as stack:
        group = Replicas(folder, store_address(kind, folder), stack, settings=settings)
        for _ in range(count):
            group.start()
        yield group
