"""The names and addresses of a workspace's network. Tests with containers see that it works."""

from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError
from fairlead.runner.engines.devcontainer.isolation import network
from fairlead.runner.engines.devcontainer.isolation.network import (
    ensure_network,
    find_name_servers,
    network_name,
    read_name_servers,
)
from fairlead.runner.engines.devcontainer.settings import Settings
from tests.runner.harness.grants import make_grant


def make_settings(**changes: object) -> Settings:
    return Settings(state_folder=Path("/state"), runner="r", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("nameserver 10.0.0.1\nnameserver\t10.0.0.2\n", ["10.0.0.1", "10.0.0.2"]),
        ("nameserver 10.0.0.1 # main", ["10.0.0.1"]),
        ("# nameserver 10.0.0.1\n;nameserver 10.0.0.2\nsearch example.com\noptions ndots:1\n", []),
        ("nameserver\nnameserver \nnameserver x\nnameserver 10.0.0\nnameserver 10.0.0.1.\n", []),
        ("nameserver fe80::1%eth0\nnameserver 2001:db8::1\nnameserver 10.0.0.1\n", ["10.0.0.1"]),
        ("nameserver \ufffd\n\xff\nnameserver 10.0.0.1\r\n", ["10.0.0.1"]),
        ("", []),
    ],
)
def test_name_servers_are_those_with_addresses_that_workspaces_have(
    tmp_path: Path, text: str, servers: list[str]
) -> None:
    (tmp_path / "resolv.conf").write_bytes(text.encode("latin-1", errors="replace"))
    assert read_name_servers(tmp_path / "resolv.conf") == servers


def test_a_machine_without_the_file_has_no_name_servers(tmp_path: Path) -> None:
    assert read_name_servers(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("first", "second", "servers"),
    [
        ("10.0.0.1", "10.0.0.2", ["10.0.0.1"]),
        ("127.0.0.53", "10.0.0.2", ["10.0.0.2"]),
        ("0.0.0.0", "10.0.0.2", ["10.0.0.2"]),
        ("::1", "10.0.0.2", ["10.0.0.2"]),
        ("127.0.0.53", "127.0.0.1", []),
    ],
)
def test_a_name_server_on_the_machine_itself_is_replaced_by_those_that_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, servers: list[str]
) -> None:
    files = (tmp_path / "first", tmp_path / "second")
    for path, server in zip(files, (first, second), strict=True):
        path.write_text(f"nameserver {server}\n")
    monkeypatch.setattr(network, "RESOLVERS", files)
    assert find_name_servers(make_settings()) == servers
    assert find_name_servers(make_settings(name_servers=("10.9.9.9",))) == ["10.9.9.9"]


def test_the_name_of_a_network_fits_an_interface_whatever_the_ids() -> None:
    state = Path("/var/lib/fairlead-runner/engines/devcontainer")
    assert network_name(state, 1_000_000_000) != network_name(state, 1_000_065_536)
    assert len(network_name(state, 2**32 - 65536)) <= 15


def test_networks_of_two_runners_have_different_names_whatever_the_ids() -> None:
    states = (Path("/var/lib/a"), Path("/var/lib/b"))
    assert len({network_name(state, 1_000_000_000) for state in states}) == 2


async def test_a_pool_without_a_part_that_is_free_is_named() -> None:
    settings = make_settings(network_pool="10.99.0.0/27")
    grant = make_grant(first_uid=settings.first_uid + 2 * 65536)
    with pytest.raises(EngineError, match="has no part left"):
        await ensure_network(settings, grant)
