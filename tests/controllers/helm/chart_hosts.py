"""Chart repositories under host names on loopback, for tests of downloads with the real address policy.

DNS is the only thing that is replaced: `Hosts.names` says which addresses a name has. The policy allows 127.0.0.1,
where the repositories are, as if an operator had listed it; 127.0.0.2 is a service that only this machine reaches.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.controllers.helm.chart import Chart
from fairlead.controllers.helm.fetch import ChartFetcher
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.upstream import address_policy
from fairlead.upstream.address_policy import AddressPolicy
from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.chart_repository import Chart as PackedChart
from tests.fake_cluster.chart_repository import ChartRepository, ChartResponse

ALLOWED, INTERNAL = "127.0.0.1", "127.0.0.2"
REPOSITORY, OTHER, INSIDE = "charts.example", "other.example", "inside.example"
VC = PackedChart("vc", {"templates/x.yaml": "a: b"})


@dataclass
class Hosts:
    folder: Path
    stack: ExitStack
    names: dict[str, list[str]] = field(default_factory=dict)
    """The addresses of names. Each lookup takes the first; the last one is kept."""
    lookups: list[str] = field(default_factory=list)

    def resolve(self, host: str, port: int) -> list[str]:
        self.lookups.append(host)
        if host not in self.names:
            raise OSError("no such host")
        addresses = self.names[host]
        return [addresses.pop(0) if len(addresses) > 1 else addresses[0]]

    def start(self, name: str, *charts: PackedChart, listen: str = ALLOWED, **options: Any) -> ChartRepository:
        self.names.setdefault(name, [listen])
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        repository = ChartRepository(folder, charts, names=(name,), listen=listen, **options)
        return self.stack.enter_context(repository)

    def fetch(self, chart: Chart, seconds: float = 30, **environment: str) -> bytes:
        """The archive that helm gets. Runs on an event loop in real time."""
        run = self.folder / "run"
        run.mkdir()
        policy = AddressPolicy((f"{ALLOWED}/32",), list)
        path = asyncio.run(ChartFetcher(policy.resolve, environment, seconds).fetch(chart, run))
        assert [each.name for each in run.iterdir() if each.suffix == ".tgz"] == [path.name]
        return path.read_bytes()

    def fail(self, chart: Chart, seconds: float = 30, **environment: str) -> InstanceError:
        with pytest.raises(InstanceError) as caught:
            self.fetch(chart, seconds, **environment)
        assert not any(name in caught.value.message for name in (*self.names, ALLOWED, INTERNAL))
        return caught.value


@contextmanager
def open_hosts(folder: Path) -> Iterator[Hosts]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        hosts = Hosts(folder, stack)
        patched.setattr(address_policy, "_getaddrinfo", hosts.resolve)
        ca_file = folder / "trusted.pem"
        ca_file.write_text(get_authority().pem)
        patched.setenv("SSL_CERT_FILE", str(ca_file))
        yield hosts


def https_chart(repository: ChartRepository, version: str = "", username: str = "", password: str = "") -> Chart:
    return Chart("vc", f"https://{REPOSITORY}:{repository.port}", version, username, password)


def oci_chart(repository: ChartRepository, version: str = "", username: str = "", password: str = "") -> Chart:
    return Chart("vc", f"oci://{REPOSITORY}:{repository.port}/charts", version, username, password)


def set_entry(repository: ChartRepository, **changes: Any) -> None:
    """Changes the entry of the chart in the index."""
    index = yaml.safe_load(repository.responses["/index.yaml"].body)
    index["entries"]["vc"][0].update(changes)
    repository.responses["/index.yaml"] = ChartResponse(200, yaml.safe_dump(index).encode())
