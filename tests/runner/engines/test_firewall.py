"""The firewall on the real machine, with the networks of workspaces and without containers."""

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from fairlead.runner.engines.devcontainer.isolation.firewall import CHAIN, chain_name, ensure_firewall
from fairlead.runner.engines.devcontainer.isolation.network import ensure_network, network_name
from fairlead.runner.engines.devcontainer.ports import enter_network_of
from fairlead.runner.engines.devcontainer.settings import Settings
from tests.runner.harness.grants import make_grant
from tests.runner.harness.podman import Containers, remove_firewall, require_podman, take_number

Result = TypeVar("Result")
SECONDS = 1.0
MANGLE = ("iptables", "--wait", "-t", "mangle")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


@dataclass(frozen=True, slots=True)
class Place:
    """The network of the first workspace of a runner."""

    settings: Settings

    @property
    def gateway(self) -> str:
        return self.settings.network_pool.removesuffix("0/22") + "1"

    @property
    def address(self) -> str:
        return self.settings.network_pool.removesuffix("0/22") + "2"

    async def open(self) -> None:
        await ensure_firewall(self.settings)
        await ensure_network(self.settings, make_grant(first_uid=self.settings.first_uid))

    def run(self, act: Callable[[], Result]) -> Result:
        """Calls the function in this network."""
        results: list[Result] = []

        def enter() -> None:
            enter_network_of(f"/run/netns/{network_name(self.settings.first_uid)}")
            results.append(act())

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return results[0]

    def listen(self) -> socket.socket:
        return self.run(lambda: socket.create_server(("0.0.0.0", 0)))

    def can_connect(self, address: str, port: int) -> bool:
        def connect() -> bool:
            try:
                socket.create_connection((address, port), SECONDS).close()
            except OSError:
                return False
            return True

        return self.run(connect)

    def send_to_all(self, port: int, *addresses: str) -> None:
        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                for address in addresses:
                    sender.sendto(address.encode(), (address, port))

        self.run(send)


@contextmanager
def open_place(folder: Path) -> Iterator[Place]:
    with take_number() as number:
        place = Place(Containers(folder, number).settings())
        try:
            yield place
        finally:
            run("ip", "link", "delete", network_name(place.settings.first_uid))
            run("ip", "netns", "delete", network_name(place.settings.first_uid))
            remove_firewall(place.settings)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Place, Place]]:
    """Networks of two runners on one machine."""
    require_podman()
    with ExitStack() as stack:
        yield stack.enter_context(open_place(tmp_path)), stack.enter_context(open_place(tmp_path))


async def test_a_workspace_reaches_no_program_of_the_machine_by_sending_to_all(places: tuple[Place, Place]) -> None:
    place, _ = places
    await place.open()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", 0))
        port = server.getsockname()[1]
        broadcast = place.gateway.rpartition(".")[0] + ".15"
        place.send_to_all(port, "255.255.255.255", "224.0.0.1", place.gateway, broadcast)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.sendto(b"of the machine", ("127.0.0.1", port))
        assert server.recv(100) == b"of the machine"  # packets of a veth are delivered in order, before this one


async def test_workspaces_of_two_runners_do_not_reach_each_other(places: tuple[Place, Place]) -> None:
    for place in places:
        await place.open()
    for place, other in (places, places[::-1]):
        with other.listen() as server:
            assert other.can_connect(other.address, server.getsockname()[1])
            assert not place.can_connect(other.address, server.getsockname()[1])


async def test_changed_settings_change_the_rules_of_a_machine_that_has_some(places: tuple[Place, Place]) -> None:
    before = places[0].settings
    after = Containers(before.state_folder, int(before.runner.removeprefix("test-"))).settings(
        refused_networks=("192.0.2.128/25",), name_servers=("198.51.100.1",)
    )
    try:
        await ensure_firewall(before)
        await ensure_firewall(after)
        listed = run(*MANGLE, "-S").stdout
        assert f"-A {chain_name(after)} -d 192.0.2.128/25 -j DROP" in listed
        assert f"-A {chain_name(after)} -d 198.51.100.1/32 -p udp -m udp --dport 53 -j RETURN" in listed
        jumps = [line for line in listed.splitlines() if line.startswith(f"-A PREROUTING -s {after.network_pool} ")]
        assert jumps == [f"-A PREROUTING -s {after.network_pool} -j {chain_name(after)}"]
        assert chain_name(before) not in listed
    finally:
        remove_firewall(after)


async def test_the_rules_of_an_earlier_version_are_replaced(places: tuple[Place, Place]) -> None:
    settings = places[0].settings
    jump = ["PREROUTING", "-s", settings.network_pool, "-j", CHAIN]
    run(*MANGLE, "-N", CHAIN)
    assert run(*MANGLE, "-A", *jump).returncode == 0
    await ensure_firewall(settings)
    assert run(*MANGLE, "-C", *jump).returncode != 0
