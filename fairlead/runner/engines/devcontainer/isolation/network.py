"""The network of a workspace: a namespace of its own, which belongs to root of the machine, with one cable to it.

Nothing in the workspace can change it, not even with all capabilities that a template can give: they count in the user
namespace of the workspace, and the network belongs to another one.
"""

import hashlib
import ipaddress
import os
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE, Grant
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program
from fairlead.runner.engines.devcontainer.settings import Settings

NAMESPACES = Path("/run/netns")
INTERFACE_PREFIX = "flwv"
"""How the names of the networks' interfaces on the machine begin, unlike those of any other program, and of the bridges
of version 0.2."""
ADDRESSES_PER_WORKSPACE = 16
RESOLVERS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
"""The second one has the servers that the resolver on a machine with systemd asks itself."""
SCRIPT = """
set -eu
name=$1 gateway=$2 address=$3 ids=$4 prefix=$5
for other in $(ip -4 -o address show to "${gateway%/*}/32" | awk '{ print $2 }'); do
    case "${other%@*}" in "$name") continue ;; "$prefix"*) other=${other%@*} ;; *) continue ;; esac
    pids=$(ip netns pids "$other" 2>/dev/null | tr '\\n' ' ')
    if [ -n "$pids" ]; then
        echo "$other has the address $gateway, and processes of another runner run there: $pids" >&2
        exit 1
    fi
    ip link delete "$other"
    ip netns delete "$other" 2>/dev/null || true
done
[ -e "/run/netns/$name" ] || ip netns add "$name"
ip link show "$name" >/dev/null 2>&1 || ip link add "$name" type veth peer name eth0 netns "$name"
ip -n "$name" link set lo up
ip netns exec "$name" sh -c '
    if [ -e /proc/sys/net/ipv6/conf/eth0 ]; then echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; fi
    echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
    echo "$1" >/proc/sys/net/ipv4/ping_group_range' - "$ids"
ip address replace "$gateway" dev "$name"
ip link set "$name" up
ip -n "$name" address replace "$address" dev eth0
ip -n "$name" link set eth0 up
ip -n "$name" route replace default via "${gateway%/*}"
"""
"""Without addresses of IPv6, which the firewall does not cover. Root of the workspace may use every port, as it could
in a network of its own, and send pings.

The number of a workspace is its own on the machine (`ranges.py`). So another interface with its address is what a state
folder that was moved has left."""
REMOVAL = """
ip link delete "$1" 2>/dev/null
ip netns delete "$1" 2>/dev/null
[ ! -e "/run/netns/$1" ]
"""


def network_prefix(state_folder: Path) -> str:
    """How the names of the networks of one runner begin."""
    place = hashlib.sha256(os.path.realpath(state_folder).encode()).hexdigest()[:6]
    return f"{INTERFACE_PREFIX}{place}"


def network_name(state_folder: Path, first_uid: int) -> str:
    """Both of the namespace and of the machine's end of the cable. It has at most 15 characters."""
    return f"{network_prefix(state_folder)}{first_uid // IDS_PER_WORKSPACE:04x}"


async def ensure_network(settings: Settings, grant: Grant) -> str:
    """Returns the file of the network namespace."""
    number = (grant.first_uid - settings.first_uid) // IDS_PER_WORKSPACE
    pool = ipaddress.IPv4Network(settings.network_pool)
    if (number + 1) * ADDRESSES_PER_WORKSPACE > pool.num_addresses:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"the network pool {pool} has no part left")
    first = int(pool.network_address) + number * ADDRESSES_PER_WORKSPACE
    gateway, address = (f"{ipaddress.IPv4Address(first + offset)}/28" for offset in (1, 2))
    ids = f"{grant.first_uid} {grant.first_uid + IDS_PER_WORKSPACE - 1}"
    name = network_name(settings.state_folder, grant.first_uid)
    arguments = (name, gateway, address, ids, INTERFACE_PREFIX)
    result = await run_program(["/bin/sh", "-c", SCRIPT, "network", *arguments], {"PATH": PATH})
    if result.code != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"the network cannot be made: {last_line(result.errors)}")
    return str(NAMESPACES / name)


async def remove_network(settings: Settings, first_uid: int) -> None:
    name = network_name(settings.state_folder, first_uid)
    result = await run_program(["/bin/sh", "-c", REMOVAL, "network", name], {"PATH": PATH})
    if result.code != 0:
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE, f"the network {name} cannot be removed: {last_line(result.errors)}"
        )


def find_name_servers(settings: Settings) -> list[str]:
    """Those that the operator lists, or else those of the machine. A server on the machine's own loopback addresses
    cannot be reached from a workspace."""
    if settings.name_servers:
        return list(settings.name_servers)
    for path in RESOLVERS:
        if found := [each for each in read_name_servers(path) if not is_local(each)]:
            return found
    return []


def read_name_servers(path: Path) -> list[str]:
    """Addresses of IPv4 only: workspaces have no others."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    named = (line.split()[1] for line in lines if line.startswith("nameserver") and len(line.split()) > 1)
    return [each for each in named if is_ipv4(each)]


def is_local(address: str) -> bool:
    """Whether the machine itself is meant."""
    parsed = ipaddress.IPv4Address(address)
    return parsed.is_loopback or parsed.is_unspecified


def is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
