"""The firewall on the real machine, with the networks of workspaces and without containers."""

import asyncio
import fcntl
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from fairlead.runner.engines.contract import EngineError, ImageSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.cleanup import remove_everything
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE
from fairlead.runner.engines.devcontainer.isolation import firewall
from fairlead.runner.engines.devcontainer.isolation.firewall import (
    CHAIN,
    HOOKS,
    chain_name,
    ensure_firewall,
    forward_chain_name,
    forward_jump,
    keep_firewall,
    list_forward_rules,
    list_jumps,
    list_routing_rules,
    list_rules,
)
from fairlead.runner.engines.devcontainer.isolation.network import (
    INTERFACE_PREFIX,
    network_name,
    network_prefix,
)
from fairlead.runner.engines.devcontainer.isolation.ranges import read_number
from fairlead.runner.engines.devcontainer.layout import open_folder
from fairlead.runner.engines.devcontainer.ports import enter_network_of
from fairlead.runner.engines.devcontainer.preparation import build_grant, prepare
from fairlead.runner.engines.devcontainer.settings import Settings
from tests.harness.eventually import eventually
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
    def number(self) -> int:
        number = read_number(open_folder(self.settings.state_folder, "u"))
        assert number is not None
        return number

    @property
    def network(self) -> str:
        return network_name(self.settings.state_folder, self.settings.first_uid + self.number * IDS_PER_WORKSPACE)

    @property
    def gateway(self) -> str:
        return self.settings.network_pool.removesuffix("0/22") + str(self.number * 16 + 1)

    @property
    def address(self) -> str:
        return self.settings.network_pool.removesuffix("0/22") + str(self.number * 16 + 2)

    async def open(self, has_inner_rules: bool = False) -> None:
        """As `up` does, with the next free number. Without the rules in the network, those of the machine are seen."""
        spec = WorkspaceSpec("u", "project", "demo", "ada", ImageSource("debian"))
        folder = open_folder(self.settings.state_folder, "u")
        grant = build_grant(replace(self.settings, workspace_disk_bytes=0), spec, folder, "task-1")
        await prepare(self.settings, folder, grant)
        if not has_inner_rules:
            await asyncio.to_thread(run, "ip", "netns", "exec", self.network, "iptables", "-F", "OUTPUT")

    async def close(self) -> None:
        """As `delete` does."""
        await remove_everything(self.settings, open_folder(self.settings.state_folder, "u"))

    def run(self, act: Callable[[], Result]) -> Result:
        """Calls the function in this network."""
        results: list[Result] = []

        def enter() -> None:
            enter_network_of(f"/run/netns/{self.network}")
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
def open_place(folder: Path, number: int) -> Iterator[Place]:
    place = Place(replace(Containers(folder, number).settings(), workspace_disk_bytes=0))
    try:
        yield place
    finally:
        asyncio.run(place.close())
        remove_firewall(place.settings)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Place, Place]]:
    """Networks of two runners on one machine, with ranges of their own."""
    require_podman()
    with (
        take_number() as first,
        take_number() as second,
        open_place(tmp_path / "a", first) as place,
        open_place(tmp_path / "b", second) as other,
    ):
        yield place, other


@pytest.fixture
def similar_places(tmp_path: Path) -> Iterator[tuple[Place, Place]]:
    """Networks of two runners with the same settings: only their state folders differ."""
    require_podman()
    with (
        take_number() as number,
        open_place(tmp_path / "a", number) as place,
        open_place(tmp_path / "b", number) as other,
    ):
        yield place, other


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
    after = replace(before, refused_networks=("192.0.2.128/25",), name_servers=("198.51.100.1",))
    try:
        await ensure_firewall(before)
        await ensure_firewall(after)
        listed = run(*MANGLE, "-S").stdout
        assert f"-A {chain_name(after)} -d 192.0.2.128/25 -j DROP" in listed
        assert f"-A {chain_name(after)} -d 198.51.100.1/32 -p udp -m udp --dport 53 -j RETURN" in listed
        interfaces = f"{network_prefix(after.state_folder)}+"
        jumps = [line for line in listed.splitlines() if f" -i {interfaces} " in line]
        assert jumps == [f"-A {hook} -i {interfaces} -j {chain_name(after)}" for hook in HOOKS]
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


async def test_workspaces_of_two_runners_with_the_same_settings_have_nothing_in_common(
    similar_places: tuple[Place, Place],
) -> None:
    first, second = similar_places
    for place in similar_places:
        await place.open()
    assert first.address != second.address
    with first.run(lambda: socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        assert first.can_connect("127.0.0.1", port)
        assert not second.can_connect("127.0.0.1", port)
    with first.listen() as server:
        assert not second.can_connect(first.address, server.getsockname()[1])
    await second.close()
    with first.listen() as server:
        assert first.can_connect(first.address, server.getsockname()[1])
    assert run("ip", "-n", first.network, "route", "get", "192.0.2.1").returncode == 0


async def test_runners_with_the_same_pool_keep_rules_of_their_own(similar_places: tuple[Place, Place]) -> None:
    first, second = similar_places
    changed = Place(replace(second.settings, refused_networks=("192.0.2.128/25",)))
    try:
        await first.open()
        await changed.open()
        listed = run(*MANGLE, "-S").stdout
        for place in (first, changed):
            chain, interfaces = chain_name(place.settings), network_prefix(place.settings.state_folder)
            assert all(f"-A {hook} -i {interfaces}+ -j {chain}" in listed for hook in HOOKS)
    finally:
        remove_firewall(changed.settings)


@pytest.mark.parametrize("table", ["mangle", "nat", "filter"])
async def test_rules_that_another_program_removed_come_back_while_workspaces_run(
    places: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """As `nft flush ruleset` or the restart of another firewall does; here, only the rules of this test go."""
    monkeypatch.setattr(firewall, "CHECK_SECONDS", 0.05)
    place, _ = places
    await place.open()
    restoring = asyncio.create_task(keep_firewall(place.settings))
    try:
        rules = [rule for each, rule in list_routing_rules(place.settings) if each == table and table != "mangle"]
        rules += list_jumps(place.settings) if table == "mangle" else []
        rules += [forward_jump(place.settings)] if table == "filter" else []
        for rule in rules:
            await asyncio.to_thread(run, "iptables", "--wait", "-t", table, "-D", *rule)
        for rule in rules:
            await eventually(partial(has_rule, table, rule), seconds=20)
        run(*MANGLE, "-F", chain_name(place.settings))
        expected = len(list_rules(place.settings)) + 1
        await eventually(lambda: len(run(*MANGLE, "-S", chain_name(place.settings)).stdout.splitlines()) == expected)
    finally:
        restoring.cancel()


@pytest.mark.parametrize("removed", range(3))
async def test_rules_whose_order_matters_come_back_in_their_order(places: tuple[Place, Place], removed: int) -> None:
    """Another program removes one of them alone. Then answers still reach workspaces, and nothing else does."""
    settings = places[0].settings
    chain = forward_chain_name(settings)
    await ensure_firewall(settings)
    before = run("iptables", "--wait", "-S", chain).stdout
    assert len(before.splitlines()) == 1 + len(list_forward_rules(settings))
    assert run("iptables", "--wait", "-D", chain, *list_forward_rules(settings)[removed]).returncode == 0
    await ensure_firewall(settings)
    assert run("iptables", "--wait", "-S", chain).stdout == before


async def test_rules_that_are_added_at_the_same_time_are_there_once_and_in_order(
    similar_places: tuple[Place, Place],
) -> None:
    """By starts of several workspaces, and by two runners with the same pool."""
    await asyncio.gather(*(ensure_firewall(place.settings) for place in similar_places for _ in range(4)))
    settings = similar_places[0].settings
    listed = run("iptables", "--wait", "-S").stdout.splitlines()
    assert listed.count(f"-A {' '.join(forward_jump(settings))}") == 1
    chain = forward_chain_name(settings)
    targets = [line.split()[-1] for line in listed if line.startswith(f"-A {chain} ")]
    assert targets == ["ACCEPT", "ACCEPT", "DROP"]
    for place in similar_places:
        jumps = [f"-A {' '.join(rule)}" for rule in list_jumps(place.settings)]
        shown = run(*MANGLE, "-S").stdout.splitlines()
        assert [shown.count(jump) for jump in jumps] == [1] * len(jumps)


async def test_a_firewall_that_another_process_has_locked_is_an_error_that_names_the_file(
    places: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = places[0].settings
    monkeypatch.setattr(firewall, "LOCK_SECONDS", 0.1)
    own = replace(settings, ranges_folder=settings.state_folder.parent / "ranges")
    own.ranges_folder.mkdir(parents=True)
    with (own.ranges_folder / "firewall-lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(EngineError, match=r"another process has locked .*/ranges/firewall-lock"):
            await ensure_firewall(own)


def has_rule(table: str, rule: list[str]) -> bool:
    return run("iptables", "--wait", "-t", table, "-C", *rule).returncode == 0


async def test_without_the_rules_of_the_machine_those_in_the_network_still_hold(places: tuple[Place, Place]) -> None:
    place, other = places
    await other.open()
    await place.open(has_inner_rules=True)
    for rule in list_jumps(place.settings):
        assert run(*MANGLE, "-D", *rule).returncode == 0
    with socket.create_server(("0.0.0.0", 0)) as server:
        for address in (place.gateway, other.gateway, *list_addresses()):
            assert not place.can_connect(address, server.getsockname()[1])
    counted = count_dropped(place, "169.254.0.0/16")
    assert not place.can_connect("169.254.169.254", 80)
    assert count_dropped(place, "169.254.0.0/16") > counted


def list_addresses() -> list[str]:
    shown = run("ip", "-4", "-o", "address", "show", "scope", "global").stdout
    return [line.split()[3].partition("/")[0] for line in shown.splitlines() if INTERFACE_PREFIX not in line]


def count_dropped(place: Place, network: str) -> int:
    """Packets that the rule in the network has dropped."""
    listed = run("ip", "netns", "exec", place.network, "iptables", "-t", "filter", "-nvxL", "OUTPUT").stdout
    return next(int(line.split()[0]) for line in listed.splitlines() if network in line)


async def test_a_destination_that_is_translated_to_the_machine_is_not_reached(places: tuple[Place, Place]) -> None:
    """As the addresses of services are on a node of Kubernetes: what arrives has the address of another machine."""
    place, _ = places
    await place.open()
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = str(server.getsockname()[1])
        interface = ("PREROUTING", "-i", place.network, "-p", "tcp", "-d", "192.0.2.7", "--dport", port)
        rule = (*interface, "-j", "REDIRECT", "--to-ports", port)
        assert run("iptables", "--wait", "-t", "nat", "-I", *rule).returncode == 0
        try:
            assert not place.can_connect("192.0.2.7", int(port))
        finally:
            run("iptables", "--wait", "-t", "nat", "-D", *rule)


async def test_a_network_of_a_state_folder_that_was_moved_is_replaced(places: tuple[Place, Place]) -> None:
    place, _ = places
    await place.open()
    former = network_name(Path("/moved"), place.settings.first_uid + place.number * IDS_PER_WORKSPACE)
    run("ip", "link", "delete", place.network)
    run("ip", "netns", "delete", place.network)
    run("ip", "netns", "add", former)
    run("ip", "link", "add", former, "type", "veth", "peer", "name", "eth0", "netns", former)
    run("ip", "address", "add", f"{place.gateway}/28", "dev", former)
    program = await asyncio.create_subprocess_exec("ip", "netns", "exec", former, "sleep", "60")
    try:
        await eventually(lambda: str(program.pid) in run("ip", "netns", "pids", former).stdout.split())
        with pytest.raises(
            EngineError, match=f"{former} has the address .* of another runner run there: {program.pid}"
        ):
            await place.open()
    finally:
        program.kill()
        await program.wait()
    await place.open()
    assert former not in os.listdir("/run/netns") and former not in os.listdir("/sys/class/net")
    assert place.network in os.listdir("/run/netns")
