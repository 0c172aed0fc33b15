"""Names and values that look like arguments, files or addresses, given to Helm itself: it takes them as what they are.

The variable HELM names the program; otherwise it is the one over Helm's own library, which has a parser of arguments of
ours. So these tests show something with HELM only, and CI leaves them out.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.helm import Helm
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.upstream.access import ClusterEndpoint
from tests.controllers.helm.fake_helm_program import LocalCharts
from tests.fake_cluster.helm_program import write_helm_program

pytestmark = pytest.mark.long
CANARY = "canary-of-the-machine"


@dataclass
class Listener:
    """Answers without TLS, so that clients give up at once. It notes that there were some."""

    port: int
    connections: int = 0


@contextmanager
def listening() -> Iterator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = Listener(server.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                listener.connections += 1
                with connection, suppress(OSError):
                    connection.recv(1)
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@dataclass
class Machine:
    """What Helm must not use: a kubeconfig and a registry of others, and programs that leave a mark."""

    folder: Path
    program: str
    cluster: Listener
    other: Listener
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def mark(self) -> Path:
        return self.folder / "ran"

    def run_all(self, releases: Sequence[Release], command: str = "install") -> list[str]:
        """What the server says of each release."""

        async def run() -> list[str]:
            slots = asyncio.Semaphore(4)
            return await asyncio.gather(*(self._run(each, command, slots) for each in releases))

        return asyncio.run(run())

    async def _run(self, release: Release, command: str, slots: asyncio.Semaphore) -> str:
        endpoint = ClusterEndpoint("127.0.0.1", self.cluster.port, "", "kube.example", "", "token")
        helm = Helm(LocalCharts(), self.program)
        async with slots:
            try:
                await (helm.install if command == "install" else helm.uninstall)(release, endpoint)
            except InstanceError as error:
                return str(error)
        return ""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("arguments")
    with ExitStack() as stack:
        cluster, other = (stack.enter_context(listening()) for _ in range(2))
        program = os.environ.get("HELM") or str(write_helm_program(folder))
        machine = Machine(folder, program, cluster, other)
        script = f"#!/bin/sh\n: >{machine.mark}\ncat\n"
        plugin = folder / "plugins/evil"
        plugin.mkdir(parents=True)
        for path in (folder / "script", plugin / "script"):
            path.write_text(script)
            path.chmod(0o755)
        hooks = {"install": str(plugin / "script"), "update": str(plugin / "script")}
        described = {"name": "evil", "version": "1.0.0", "command": str(plugin / "script"), "hooks": hooks}
        (plugin / "plugin.yaml").write_text(yaml.safe_dump(described))
        (folder / "secret").write_text(CANARY)
        server = f"https://127.0.0.1:{other.port}"
        named = {"name": "x", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [named],
            "users": [
                {
                    "name": "x",
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1",
                            "command": str(folder / "script"),
                            "interactiveMode": "Never",
                        }
                    },
                }
            ],
            "contexts": [context],
            "current-context": "x",
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {
            "KUBECONFIG": str(folder / "kubeconfig"),
            "HELM_KUBEAPISERVER": server,
            "HELM_KUBEINSECURE_SKIP_TLS_VERIFY": "true",
            "HELM_PLUGINS": str(folder / "plugins"),
            "HELM_REPOSITORY_CONFIG": str(folder / "secret"),
            "HTTPS_PROXY": f"http://127.0.0.1:{other.port}",
        }.items():
            patch.setenv(name, value)
        machine.texts = {"SERVER": server, "FOLDER": str(folder)}
        yield machine


NAMES = (
    "--kubeconfig=FOLDER/kubeconfig",
    "--kube-apiserver=SERVER",
    "--post-renderer=FOLDER/script",
    "--repo=SERVER",
    "--values=FOLDER/secret",
    "--set-file=a=FOLDER/secret",
    "--repository-config=FOLDER/secret",
    "--registry-config=FOLDER/secret",
    "--debug",
    "-h",
    "--",
    "evil",
    "plugin",
    "../../FOLDER/secret",
    "file://FOLDER/secret",
    "oci://127.0.0.1/evil",
    "one --post-renderer=FOLDER/script",
    "$(FOLDER/script)",
    "one\n--post-renderer=FOLDER/script",
)
"""In place of the name of a release, of its namespace and of a user."""
VALUES = (
    "a: {{ .Files.Get `FOLDER/secret` }}",
    "a: !!binary FOLDER/secret",
    "a: !include FOLDER/secret",
    "--post-renderer: FOLDER/script",
    "- FOLDER/secret",
    "SERVER/values.yaml",
)


CHART = Chart("vc", "https://charts.example")


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_usual_release_reaches_the_cluster(machine: Machine, command: str) -> None:
    """Else the others would show nothing."""
    before = machine.cluster.connections
    assert "helm could not reach the cluster" in machine.run_all([Release("one", "ns", CHART, "a: b")], command)[0]
    assert machine.cluster.connections > before


@pytest.mark.parametrize("command", ["install", "uninstall"])
@pytest.mark.parametrize("place", ["name", "namespace", "user"])
def test_no_name_is_an_argument_of_helm(machine: Machine, place: str, command: str) -> None:
    releases = []
    for text in NAMES:
        names = {"name": "one", "namespace": "ns", "user": "", place: fill(text, machine)}
        releases.append(Release(names["name"], names["namespace"], CHART, "a: b", names["user"]))
    expect_untouched(machine, machine.run_all(releases, command))


def test_no_value_is_a_file_or_an_address(machine: Machine) -> None:
    expect_untouched(machine, machine.run_all([Release("one", "ns", CHART, fill(each, machine)) for each in VALUES]))


def fill(text: str, machine: Machine) -> str:
    return text.replace("SERVER", machine.texts["SERVER"]).replace("FOLDER", machine.texts["FOLDER"])


def expect_untouched(machine: Machine, said: Sequence[str]) -> None:
    assert all(said), "helm has found nothing to complain about: it took something else for the release"
    assert CANARY not in "".join(said)
    assert not machine.mark.exists(), "a program was started"
    assert machine.other.connections == 0, "another server was asked"
