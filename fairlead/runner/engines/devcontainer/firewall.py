"""Keeps workspaces away from the machine of the runner, from each other and from the metadata services of clouds.

The networks of all workspaces are parts of one pool, so a few rules that never change cover them. They are in the table
`mangle`, which packets pass before those that accept them. Other rules let the workspaces reach other machines with the
address of this one, and let nothing in but answers.
"""

import asyncio
import os.path
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.network import INTERFACE_PREFIX, find_name_servers
from fairlead.runner.engines.devcontainer.programs import PATH
from fairlead.runner.engines.devcontainer.settings import Settings

CHAIN = "FAIRLEAD"
IP6TABLES = "/usr/sbin/ip6tables"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def list_rules(settings: Settings) -> list[list[str]]:
    """The rules of the chain, first match wins."""
    to_host = ["-m", "addrtype", "--dst-type", "LOCAL"]
    return [
        ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "RETURN"],
        *(
            ["-p", protocol, "--dport", "53", "-d", server, "-j", "RETURN"]
            for server in find_name_servers(settings)
            for protocol in ("udp", "tcp")
        ),
        [*to_host, "-j", "DROP"],
        *(["-d", each, "-j", "DROP"] for each in (settings.network_pool, *settings.refused_networks)),
    ]


def list_routing_rules(settings: Settings) -> list[tuple[str, str, list[str]]]:
    """Table, command that adds it, and rule. Those that accept come first in their chain: others may refuse all."""
    pool = settings.network_pool
    answers = ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED"]
    return [
        ("nat", "-A", ["POSTROUTING", "-s", pool, "!", "-d", pool, "-j", "MASQUERADE"]),
        ("filter", "-I", ["FORWARD", "-d", pool, "-j", "DROP"]),
        ("filter", "-I", ["FORWARD", "-d", pool, *answers, "-j", "ACCEPT"]),
        ("filter", "-I", ["FORWARD", "-s", pool, "-j", "ACCEPT"]),
    ]


async def ensure_firewall(settings: Settings) -> None:
    """Adds what is missing. Two runners with different pools share the chain.

    The rule that leads to the chain is added last, and lost with the others when anything clears the table. So one
    command is enough to see that all is in order.
    """
    jump = ["PREROUTING", "-s", settings.network_pool, "-j", CHAIN]
    if await _iptables("-C", *jump) == 0:
        return
    await asyncio.to_thread(FORWARDING.write_text, "1")
    for table, command, rule in list_routing_rules(settings):
        if await _iptables("-C", *rule, table=table) != 0 and await _iptables(command, *rule, table=table) != 0:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"iptables refused the rule {' '.join(rule)}")
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
    rule = ["PREROUTING", "-i", f"{INTERFACE_PREFIX}+", "-j", "DROP"]
    if not _has_ipv6() or await _iptables("-C", *rule, program=IP6TABLES) == 0:
        return
    if await _iptables("-A", *rule, program=IP6TABLES) != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"ip6tables refused the rule {' '.join(rule)}")


def _has_ipv6() -> bool:
    return os.path.exists("/proc/net/if_inet6")


async def _iptables(*arguments: str, program: str = "/usr/sbin/iptables", table: str = "mangle") -> int:
    process = await asyncio.create_subprocess_exec(
        program,
        *("--wait", "-t", table, *arguments),
        env={"PATH": PATH},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
