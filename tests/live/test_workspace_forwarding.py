"""Where forwarding and commands lead, with a real ssh and real containers: never to the machine of the runner.

A program in the workspace and one on all addresses of the machine listen on the same port. The first word that a
connection gets tells which of them it has reached.
"""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.isolation.network import INTERFACE_PREFIX, NAMESPACES
from tests.harness.eventually import wait_until
from tests.live.ssh_user import WAIT_SECONDS, WITH_SSHD, WITHOUT_SSHD, SshUser, find_port, forwarded_port, host_of, user
from tests.runner.harness.image_registry import running_registry

__all__ = ["user"]
OF_MACHINE, OF_WORKSPACE = b"machine\n", b"workspace\n"
SECONDS = 5.0
METADATA = ("169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254", "100.100.100.200", "168.63.129.16")
OWN = ("localhost", "127.0.0.1", "::1")
"""Names of the workspace's own loopback for the SSH server of the runner."""
VARIANTS = (
    *("localhost.", "LOCALHOST.localdomain", "127.1", "127.0.0.2", "2130706433", "0x7f.1", "0", "0.0.0.0", "::"),
    *("::ffff:127.0.0.1", "::ffff:0.0.0.0"),
)
LISTEN = """
import socket, threading
def serve(server):
    while True:
        connected, _ = server.accept()
        connected.sendall(b"workspace\\n")
        connected.close()
servers = [socket.create_server(("127.0.0.1", {port}))]
try:
    servers.append(socket.create_server(("::1", {port}), family=socket.AF_INET6))
except OSError:
    pass
print("listening", flush=True)
for server in servers:
    threading.Thread(target=serve, args=(server,)).start()
"""


@dataclass(slots=True)
class Machine:
    """A program of the machine that listens on all of its addresses, and on a socket in its file system."""

    port: int
    path: Path
    reached: list[object] = field(default_factory=list)

    @contextmanager
    def listen(self) -> Iterator[None]:
        with ExitStack() as stack:
            everywhere = stack.enter_context(
                socket.create_server(("::", self.port), family=socket.AF_INET6, dualstack_ipv6=True)
            )
            local = stack.enter_context(socket.socket(socket.AF_UNIX))
            local.bind(str(self.path))
            local.listen()
            self.path.chmod(0o777)
            for each in (everywhere, local):
                threading.Thread(target=self._serve, args=(each,), daemon=True).start()
                stack.callback(each.shutdown, socket.SHUT_RDWR)
            yield

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                connected, address = server.accept()
            except OSError:
                return
            self.reached.append(address or str(self.path))
            with connected:
                connected.sendall(OF_MACHINE)


def list_machine_addresses() -> list[str]:
    """Those of the machine, apart from its ends of the networks of workspaces."""
    shown = subprocess.run(["ip", "-j", "addr"], capture_output=True, check=True).stdout
    interfaces = [each for each in json.loads(shown) if not each["ifname"].startswith(INTERFACE_PREFIX)]
    infos = [info for each in interfaces for info in each["addr_info"]]
    return [each["local"] for each in infos if each["scope"] != "link"]


def find_gateway(user: SshUser, name: str) -> str:
    """The machine's end of the workspace's own network. The machine itself does not reach it: the firewall drops all
    packets from such addresses to it."""
    return user.containers.run(user.uids[name], "ip", "-4", "route", "show", "default").split()[2]


@pytest.fixture
def machine(user: SshUser, tmp_path: Path) -> Iterator[Machine]:
    """In both workspaces, a program listens on the same port. The machine reaches its own one, so it is there."""
    machine = Machine(find_port(), Path("/tmp") / f"machine-{os.getpid()}.sock")
    with ExitStack() as stack:
        for name in user.uids:
            listening = user.start("ssh", host_of(name), f"python3 -c '{LISTEN.format(port=machine.port)}'")
            stack.callback(end, listening)
            assert listening.stdout is not None
            assert listening.stdout.readline() == b"listening\n"
        stack.callback(lambda: machine.path.unlink(missing_ok=True))
        stack.enter_context(machine.listen())
        for address in list_machine_addresses():
            with socket.create_connection((address, machine.port), SECONDS) as connected:
                assert connected.recv(100) == OF_MACHINE
        machine.reached.clear()
        yield machine


def end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT_SECONDS)


def read_word(port: int) -> bytes:
    """What a forwarded port says first: nothing if the connection was refused, or leads nowhere."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connected:
        try:
            return connected.recv(100)
        except OSError:
            return b""


def forward(user: SshUser, name: str, targets: Sequence[str]) -> tuple[dict[str, bytes], str]:
    """What is reached at each target through `ssh -L`, and the messages of ssh."""
    ports = {target: find_port() for target in targets}
    flags = [word for target, port in ports.items() for word in ("-L", f"127.0.0.1:{port}:{target}")]
    process = user.start("ssh", "-N", "-v", "-o", "ExitOnForwardFailure=yes", *flags, host_of(name))
    messages = bytearray()

    def read_messages() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            messages.extend(line)

    reading = threading.Thread(target=read_messages)
    reading.start()
    try:
        wait_until(lambda: b"Entering interactive session" in messages, WAIT_SECONDS, what="ssh is connected")
        words = dict.fromkeys(targets, b"")
        threads = [
            threading.Thread(target=lambda target=target, port=port: words.update({target: read_word(port)}))
            for target, port in ports.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)
        reading.join()
        process.communicate()
    return words, messages.decode(errors="replace")


def enclose(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@pytest.mark.timeout(240)
def test_the_runner_forwards_to_the_loopback_of_the_workspace_and_nowhere_else(user: SshUser, machine: Machine) -> None:
    own = [f"{enclose(each)}:{machine.port}" for each in OWN]
    foreign = [each for each in list_machine_addresses() if each not in OWN]
    foreign.append(find_gateway(user, WITHOUT_SSHD))
    others = [
        f"{enclose(each)}:{machine.port}" for each in (*foreign, *VARIANTS, *METADATA) if not each.startswith("[")
    ]
    words, messages = forward(user, WITHOUT_SSHD, [*own, *others, str(machine.path)])
    assert {words[each] for each in own} == {OF_WORKSPACE}
    assert {each: word for each, word in words.items() if word and each not in own} == {}
    assert messages.count("only ports of the workspace itself are forwarded") == len(others)
    assert machine.reached == []


@pytest.mark.timeout(240)
def test_an_sshd_of_the_image_forwards_within_the_network_of_the_workspace(user: SshUser, machine: Machine) -> None:
    """Its names and addresses are those of the workspace: many of them are its own loopback."""
    addresses = (*OWN, *list_machine_addresses(), find_gateway(user, WITH_SSHD), *VARIANTS, *METADATA)
    targets = [f"{enclose(each)}:{machine.port}" for each in dict.fromkeys(addresses)]
    words, _ = forward(user, WITH_SSHD, [*targets, str(machine.path)])
    assert words[f"localhost:{machine.port}"] == words[f"127.0.0.1:{machine.port}"] == OF_WORKSPACE
    assert set(words.values()) <= {OF_WORKSPACE, b""}
    assert machine.reached == []


@pytest.mark.timeout(240)
def test_standard_input_is_connected_to_the_workspace_and_nowhere_else(user: SshUser, machine: Machine) -> None:
    host = host_of(WITHOUT_SSHD)
    connected = user.run("ssh", "-W", f"localhost:{machine.port}", host)
    assert (connected.returncode, connected.stdout) == (0, OF_WORKSPACE), connected.stderr
    for target in (f"169.254.169.254:{machine.port}", f"[::ffff:127.0.0.1]:{machine.port}"):
        refused = user.run("ssh", "-W", target, host)
        assert (refused.returncode != 0, refused.stdout) == (True, b"")
        assert b"administratively prohibited" in refused.stderr
    assert machine.reached == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [WITH_SSHD, WITHOUT_SSHD])
def test_nothing_listens_on_the_machine_for_a_client(user: SshUser, name: str) -> None:
    """What listens for a client does so in the workspace. Without sshd, sockets are refused."""
    port, path = find_port(), Path("/tmp") / f"forwarded-{os.getpid()}-{name}.sock"
    for target in (f"0.0.0.0:{port}", f"[::]:{port}", f"127.0.0.1:{port}", str(path)):
        is_refused = name == WITHOUT_SSHD and target == str(path)
        flags = ("-o", "ExitOnForwardFailure=yes", "-R", f"{target}:127.0.0.1:9")
        result = user.start("ssh", *flags, host_of(name), "echo on; cat")
        try:
            assert result.stdout is not None
            assert result.stdout.readline() == (b"" if is_refused else b"on\n")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), SECONDS)
            assert not path.exists()
        finally:
            result.kill()
            _, errors = result.communicate(timeout=WAIT_SECONDS)
        assert (b"forwarding failed" in errors) == is_refused, errors


@pytest.mark.timeout(240)
def test_port_forward_reaches_the_workspace_and_not_the_machine(user: SshUser, machine: Machine) -> None:
    with forwarded_port(user, WITHOUT_SSHD, machine.port) as local:
        assert read_word(local) == OF_WORKSPACE
    only_machine = Machine(find_port(), machine.path.with_suffix(".other"))
    with only_machine.listen():
        with forwarded_port(user, WITHOUT_SSHD, only_machine.port) as local:
            assert read_word(local) == b""
        only_machine.path.unlink()
    assert machine.reached == only_machine.reached == []
    for port in ("0", "65536", "-1"):
        refused = user.fairlead("port-forward", WITHOUT_SSHD, f"0:{port}", "--project", "web")
        assert refused.returncode != 0
        assert b"65535" in refused.stderr or b"port" in refused.stderr


# --- commands ---------------------------------------------------------------------------------------------------------

CONNECT = """
import socket, sys, threading
def connect(address, port):
    try:
        with socket.create_connection((address, port), 3) as connected:
            connected.sendall(b"GET /v2/ HTTP/1.0\\r\\n\\r\\n")
            said = connected.recv(100).decode().partition("\\n")[0] or "connected"
    except OSError:
        said = ""
    print(f"{address} {port}={said}\\n", end="")
def send(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            sending.sendto(b"from a workspace", (address, port))
        except OSError:
            pass
targets = [(each.split()[0], int(each.split()[1])) for each in sys.argv[1:]]
threads = [threading.Thread(target=connect, args=each) for each in targets]
for each in threads:
    each.start()
for address, port in targets:
    if ":" not in address:
        send(address, port)
for each in threads:
    each.join()
"""


def connect_inside(user: SshUser, name: str, targets: Sequence[tuple[str, int]]) -> dict[str, str]:
    """What a command of a user gets from each address and port; empty if there is no connection."""
    words = " ".join(f"'{address} {port}'" for address, port in targets)
    result = user.run("ssh", host_of(name), f"cat >connect.py && python3 connect.py {words}", input=CONNECT.encode())
    assert result.returncode == 0, result.stderr
    found = dict(line.split("=", 1) for line in result.stdout.decode().splitlines())
    assert len(found) == len(set(targets))
    return found


def count_dropped(network: str) -> int:
    """Packets to a network that the rules in the networks of workspaces have dropped."""
    found = 0
    for namespace in NAMESPACES.glob(f"{INTERFACE_PREFIX}*"):
        command = ["ip", "netns", "exec", namespace.name, "iptables", "--wait", "-nvxL", "OUTPUT"]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        lines = [line.split() for line in listed.splitlines() if "DROP" in line and network in line]
        found += sum(int(line[0]) for line in lines)
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", [WITH_SSHD, WITHOUT_SSHD])
def test_a_command_reaches_other_machines_and_neither_this_one_nor_metadata_nor_another_workspace(
    user: SshUser, machine: Machine, name: str, tmp_path: Path
) -> None:
    (other,) = set(user.uids) - {name}
    addresses = [
        *(each for each in list_machine_addresses() if not each.startswith("127.") and each != "::1"),
        find_gateway(user, name),
        find_gateway(user, other),
        find_address(user, other),
        *METADATA,
        *("255.255.255.255", "224.0.0.1"),
    ]
    targets = [(address, port) for address in addresses for port in (machine.port, 22, 80)]
    dropped = count_dropped("169.254.0.0/16")
    (tmp_path / "image").mkdir()
    with (
        running_registry(user.containers.number, tmp_path / "image") as registry,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(("0.0.0.0", machine.port))
        datagrams.setblocking(False)
        outside, _, port = registry.address.partition(":")
        found = connect_inside(user, name, [*targets, (outside, int(port)), ("127.0.0.1", machine.port)])
        with pytest.raises(BlockingIOError):
            datagrams.recv(100)
    assert found.pop(f"{outside} {port}").startswith("HTTP/1.0 200")
    assert found.pop(f"127.0.0.1 {machine.port}") == OF_WORKSPACE.decode().strip()
    assert {target: said for target, said in found.items() if said} == {}
    assert machine.reached == []
    assert count_dropped("169.254.0.0/16") > dropped


def find_address(user: SshUser, name: str) -> str:
    shown = user.containers.run(user.uids[name], "ip", "-j", "-4", "address", "show", "dev", "eth0")
    return str(json.loads(shown)[0]["addr_info"][0]["local"])
