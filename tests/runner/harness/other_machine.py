"""Servers on a machine of their own: a network namespace beside those of the workspaces."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TEST_NET_2 = "198.51.100"
TEST_NET_3 = "203.0.113"


@dataclass(frozen=True, slots=True)
class OtherMachine:
    namespace: str
    address: str

    @contextmanager
    def serve(self, module: str, *arguments: str) -> Iterator[None]:
        """Runs a module of the tests there, with its address as the first argument, until it has said `ready`."""
        program = ("ip", "netns", "exec", self.namespace, sys.executable, "-m", module, self.address, *arguments)
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == b"ready\n"
                yield
            finally:
                server.kill()


@contextmanager
def other_machine(name: str, number: int, network: str) -> Iterator[OtherMachine]:
    """A machine with an address in this network, which machines of other names do not use. `number` is that of the
    test's containers."""
    namespace = f"{name}{number}"
    gateway = f"{network}.{4 * (number % 64) + 1}"
    address = f"{network}.{4 * (number % 64) + 2}"
    commands = (
        f"ip netns add {namespace}",
        f"ip link add {namespace} type veth peer name eth0 netns {namespace}",
        f"ip address add {gateway}/30 dev {namespace}",
        f"ip link set {namespace} up",
        f"ip -n {namespace} address add {address}/30 dev eth0",
        f"ip -n {namespace} link set eth0 up",
        f"ip -n {namespace} route add default via {gateway}",
    )
    remove_namespace(namespace)  # a test that was killed may have left it
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield OtherMachine(namespace, address)
    finally:
        remove_namespace(namespace)


def create_certificate(file: Path, address: str) -> str:
    """The path of a certificate that signs itself, with its key."""
    names = ("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    command = [
        "openssl",
        "req",
        "-x509",
        "-days",
        "1",
        *key,
        *names,
        "-keyout",
        str(file),
        "-out",
        f"{file}.certificate",
    ]
    subprocess.run(command, check=True, capture_output=True)
    with file.open("a") as content:
        content.write(Path(f"{file}.certificate").read_text())
    return str(file)


def remove_namespace(name: str) -> None:
    for command in (["ip", "link", "delete", name], ["ip", "netns", "delete", name]):
        subprocess.run(command, check=False, capture_output=True)
