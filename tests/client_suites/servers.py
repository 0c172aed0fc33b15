"""The servers that clients are run against: a Fairlead of our own, and a reference if there is one."""

import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.conformance.generated.connection import Target
from tests.conformance.generated.servers import prepare_reference
from tests.harness.server_process import MANAGEMENT, running_server
from tests.reference.control_plane import ADMIN_TOKEN, ControlPlane

CONTROLLERS = (
    *("namespace-controller", "garbage-collector-controller", "serviceaccount-controller"),
    "clusterrole-aggregation-controller",
)
"""Those that do what Fairlead does, too. Others would put objects of their own into every namespace."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A server, and the token of an administrator. Without `ca_file`, its certificate is not verified."""

    name: str
    url: str
    """Where the API is, without a slash at the end."""
    token: str
    ca_file: str = ""

    def kubeconfig(self, namespace: str = "default") -> str:
        content = {
            **{"apiVersion": "v1", "kind": "Config", "current-context": "tour"},
            "clusters": [{"name": "tour", "cluster": {"server": self.url, **self._trust()}}],
            "users": [{"name": "tour", "user": {"token": self.token}}],
            "contexts": [{"name": "tour", "context": {"cluster": "tour", "user": "tour", "namespace": namespace}}],
        }
        return yaml.safe_dump(content)

    def _trust(self) -> dict[str, object]:
        if not self.ca_file:
            return {"insecure-skip-tls-verify": True}
        return {"certificate-authority-data": b64encode(Path(self.ca_file).read_bytes()).decode()}


@contextmanager
def running_fairlead(folder: Path) -> Iterator[ApiServer]:
    with running_server(folder / "data") as server:
        yield ApiServer("fairlead", server.url + MANAGEMENT, server.key, server.ca_file)
        log = server.log.read_text()
    if "Traceback" in log:
        raise RuntimeError(f"the server has logged a traceback: {server.log}")


@contextmanager
def running_reference(binaries: Path) -> Iterator[ApiServer]:
    """A kube-apiserver with the kinds of Fairlead, from a folder of binaries."""
    flags = ["--disable-admission-plugins=ServiceAccount"]  # the tests of clients create pods without accounts
    with tempfile.TemporaryDirectory(prefix="fairlead-reference-") as folder:
        control_plane = ControlPlane(binaries, Path(folder), flags, controllers=",".join(CONTROLLERS))
        with control_plane as plane:
            server = ApiServer("reference", plane.url, ADMIN_TOKEN, str(plane.folder / "ca.crt"))
            prepare_reference(Target(server.url, server.token, ca_file=server.ca_file))
            yield server


@contextmanager
def existing_reference(url: str, token: str, ca_file: str) -> Iterator[ApiServer]:
    """A kube-apiserver that runs already. It gets the kinds of Fairlead."""
    prepare_reference(Target(url, token, ca_file=ca_file))
    yield ApiServer("reference", url.rstrip("/"), token, ca_file)
