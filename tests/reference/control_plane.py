"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and its controllers, from a folder of binaries.

`ControlPlane` starts them and always stops them. Everything it writes is in its folder. The API server can be stopped,
paused, started again and given another serving certificate during the tests.
Tokens: ADMIN_TOKEN is in `system:masters`, ALICE_TOKEN is user `alice` in group `devs`.
"""

import os
import shutil
import signal
import socket
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fake_cluster.certificates import CertificateAuthority, get_authority
from tests.harness.eventually import seconds_until

ADMIN_TOKEN, ALICE_TOKEN, NODE_TOKEN, PROXY_TOKEN = "admin-token", "alice-token", "node-token", "proxy-token"
KUBELET_CLIENT = "apiserver-to-kubelet"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
CONTROLLERS = "*,-bootstrap-signer-controller,-token-cleaner-controller"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses of the API server and the node in a network of their own, and of pods and services. With a `namespace`
    of the network, all programs run in that one, and only those that enter it reach the API server."""

    host: str = "10.91.0.1"
    node: str = "10.91.0.2"
    pods: str = "10.92.0.0/24"
    services: str = "10.93.0.0/24"
    namespace: str = ""

    @property
    def enter(self) -> tuple[str, ...]:
        """What a command line begins with to run in the namespace."""
        return ("nsenter", f"--net=/run/netns/{self.namespace}") if self.namespace else ()


class ControlPlane:
    """A context manager. `flags` are for kube-apiserver, `controller_flags` for kube-controller-manager; with a
    `network` it can have a node (`node.py`)."""

    def __init__(
        self,
        binaries: Path,
        folder: Path,
        flags: Sequence[str] = (),
        network: Network | None = None,
        port: int = 0,
        controllers: str = CONTROLLERS,
        controller_flags: Sequence[str] = (),
    ) -> None:
        self.binaries = binaries
        self.folder = folder
        self.flags = list(flags)
        self.network = network
        self.port = port or free_port()
        self.controllers = controllers
        self.controller_flags = controller_flags
        self.authority: CertificateAuthority = get_authority("reference CA")
        self._etcd_port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    # --- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> "ControlPlane":
        self._write_files()
        try:
            self._start_etcd()
            self.start_api_server()
            self._start_controllers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for name in ("scheduler", "controllers", "apiserver", "etcd"):
            self.end(name)

    def start_api_server(self) -> float:
        """Returns the seconds until it was ready."""
        self.start("apiserver", "kube-apiserver", *self._api_server_flags())
        return seconds_until(self.is_ready, START_SECONDS, "kube-apiserver is ready")

    def stop_api_server(self) -> None:
        self.end("apiserver")

    def pause_api_server(self) -> None:
        self._processes["apiserver"].send_signal(signal.SIGSTOP)

    def resume_api_server(self) -> None:
        self._processes["apiserver"].send_signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        if self.enter:
            kubectl = (str(self.binaries / "kubectl"), f"--kubeconfig={self.folder / 'admin.kubeconfig'}")
            command = [*self.enter, *kubectl, "get", "--raw", "/readyz"]
            return subprocess.run(command, capture_output=True, check=False).stdout == b"ok"
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        try:
            with urlopen(f"{self.url}/readyz", context=context, timeout=5) as response:
                return bool(response.read() == b"ok")
        except (URLError, OSError, TimeoutError):
            return False

    # --- for tests ---------------------------------------------------------------------------------------------------

    @property
    def enter(self) -> tuple[str, ...]:
        return self.network.enter if self.network else ()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_pem(self) -> str:
        return self.authority.pem

    def kubeconfig(self, token: str = ADMIN_TOKEN, host: str = "127.0.0.1") -> str:
        cluster = {
            "server": f"https://{host}:{self.port}",
            "certificate-authority-data": b64encode(self.ca_pem.encode()).decode(),
        }
        content = {
            **{"apiVersion": "v1", "kind": "Config", "current-context": "it"},
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": token}}],
        }
        return yaml.safe_dump(content)

    def write_serving_certificate(self, signer: CertificateAuthority | None = None) -> None:
        """kube-apiserver notices the new files and serves them to new connections, without a restart."""
        names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        if self.network is not None:
            names += [self.network.host, self.network.services.removesuffix("0/24") + "1"]
        self._write_pair("serving", (signer or self.authority), *names)

    # --- processes ---------------------------------------------------------------------------------------------------

    def start(self, name: str, program: str, *arguments: str, **variables: str) -> "subprocess.Popen[bytes]":
        path = self.binaries / program
        executable = str(path) if path.exists() else shutil.which(program)
        assert executable, f"{program} is neither in {self.binaries} nor on the PATH"
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.enter, executable, *arguments],
                cwd=self.folder,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes[name] = process
        return process

    def end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        flags = {
            "data-dir": self.folder / "etcd",
            **{"listen-client-urls": client, "advertise-client-urls": client, "unsafe-no-fsync": "true"},
            **{"listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}"},
        }
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        self.start("etcd", "etcd", *arguments, ETCD_UNSUPPORTED_ARCH="arm64")

    def _start_controllers(self) -> None:
        config = str(self.folder / "admin.kubeconfig")
        self.start(
            "controllers",
            "kube-controller-manager",
            *(f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0", f"--controllers={self.controllers}"),
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.folder / 'ca.crt'}",
            f"--flex-volume-plugin-dir={self.folder / 'plugins'}",
            *self.controller_flags,
        )
        if self.network is not None:
            flags = (f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0")
            self.start("scheduler", "kube-scheduler", *flags)

    def _api_server_flags(self) -> list[str]:
        at = self.folder
        flags = {
            "etcd-servers": f"http://127.0.0.1:{self._etcd_port}",
            "secure-port": self.port,
            "bind-address": "127.0.0.1",
            "advertise-address": self.network.host if self.network else "127.0.0.1",
            "tls-cert-file": at / "serving.crt",
            "tls-private-key-file": at / "serving.key",
            "client-ca-file": at / "ca.crt",
            "token-auth-file": at / "tokens.csv",
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": self.url,
            "service-account-key-file": at / "sa.key",
            "service-account-signing-key-file": at / "sa.key",
            "service-cluster-ip-range": self.network.services if self.network else "10.0.0.0/24",
            "allow-privileged": "true",
        }
        if self.network is not None:
            flags |= {
                "kubelet-preferred-address-types": "InternalIP",
                "kubelet-certificate-authority": at / "ca.crt",
                "kubelet-client-certificate": at / "kubelet-client.crt",
                "kubelet-client-key": at / "kubelet-client.key",
            }
        return [*(f"--{name}={value}" for name, value in flags.items()), *self.flags]

    # --- files -------------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        at = self.folder
        (at / "ca.crt").write_text(self.ca_pem)
        self.write_serving_certificate()
        self._write_pair("kubelet-client", self.authority, common_name=KUBELET_CLIENT)
        if self.network is not None:
            self._write_pair("kubelet", self.authority, self.network.node, common_name="kubelet")
        (at / "sa.key").write_bytes(_private_pem(rsa.generate_private_key(65537, 2048)))
        users = (
            f'{ADMIN_TOKEN},admin,admin-uid,"system:masters"',
            f'{ALICE_TOKEN},alice,alice-uid,"devs"',
            f'{NODE_TOKEN},system:node:node,node-uid,"system:nodes"',
            f"{PROXY_TOKEN},system:kube-proxy,proxy-uid",
        )
        (at / "tokens.csv").write_text("\n".join(users) + "\n")
        (at / "admin.kubeconfig").write_text(self.kubeconfig())

    def _write_pair(
        self, name: str, signer: CertificateAuthority, *names: str, common_name: str = "kube-apiserver"
    ) -> None:
        pem = signer.issue(*names, common_name=common_name)
        for suffix, text in (("key", pem.key), ("crt", pem.certificate)):
            written = self.folder / f"{name}.{suffix}.new"
            written.write_text(text)
            written.replace(self.folder / f"{name}.{suffix}")


def _private_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
