"""Keeps workspaces away from the machine of the runner, from each other and from the metadata services of clouds.

The networks of all workspaces are parts of one pool, so a few rules that never change cover them. They are in the table
`mangle`, which podman's own network setup does not touch, and which packets pass before those of podman accept them.
"""

import asyncio
import os.path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shim import PATH

CHAIN = "FAIRLEAD"
IP6TABLES = "/usr/sbin/ip6tables"
BRIDGE_PREFIX = "flws"
"""How the names of the networks' interfaces on the machine begin, unlike those of any other program."""


def list_rules(settings: Settings) -> list[list[str]]:
    """The rules of the chain, first match wins."""
    to_host = ["-m", "addrtype", "--dst-type", "LOCAL"]
    return [
        ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "RETURN"],
        *(["-p", each, "--dport", "53", "-d", settings.network_pool, "-j", "RETURN"] for each in ("udp", "tcp")),
        [*to_host, "-j", "DROP"],
        *(["-d", each, "-j", "DROP"] for each in (settings.network_pool, *settings.refused_networks)),
    ]


async def ensure_firewall(settings: Settings) -> None:
    """Adds what is missing. Two runners with different pools share the chain.

    The rule that leads to the chain is added last, and lost with the others when anything clears the table. So one
    command is enough to see that all is in order.
    """
    jump = ["PREROUTING", "-s", settings.network_pool, "-j", CHAIN]
    if await _iptables("-C", *jump) == 0:
        return
    await _drop_ipv6()
    await _iptables("-N", CHAIN)
    for rule in list_rules(settings):
        await _ensure([CHAIN, "-s", settings.network_pool, *rule])
    await _ensure(jump)


async def _ensure(rule: list[str]) -> None:
    if await _iptables("-C", *rule) != 0 and await _iptables("-A", *rule) != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"iptables refused the rule {' '.join(rule)}")


async def _drop_ipv6() -> None:
    """Workspaces have no addresses of IPv6. One whose template gives it the capability could take one, which the rules
    of the chain do not cover."""
    rule = ["PREROUTING", "-i", f"{BRIDGE_PREFIX}+", "-j", "DROP"]
    if not _has_ipv6() or await _iptables("-C", *rule, program=IP6TABLES) == 0:
        return
    if await _iptables("-A", *rule, program=IP6TABLES) != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"ip6tables refused the rule {' '.join(rule)}")


def _has_ipv6() -> bool:
    return os.path.exists("/proc/net/if_inet6")


async def _iptables(*arguments: str, program: str = "/usr/sbin/iptables") -> int:
    process = await asyncio.create_subprocess_exec(
        program,
        *("--wait", "-t", "mangle", *arguments),
        env={"PATH": PATH},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
