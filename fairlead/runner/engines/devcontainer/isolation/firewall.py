"""Keeps workspaces away from the machine of the runner, from each other and from the metadata services of clouds.

The networks of all workspaces are parts of one pool, so a few rules that never change cover them. They are in the table
`mangle`, which packets pass before those that accept them. Other rules let the workspaces reach other machines with the
address of this one, and let nothing in but answers.
"""

import asyncio
import hashlib
import os.path
from pathlib import Path

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.isolation.network import INTERFACE_PREFIX, find_name_servers
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program
from fairlead.runner.engines.devcontainer.settings import Settings

CHAIN = "FAIRLEAD"
"""How the names of the chains begin."""
IPTABLES, IP6TABLES, IPTABLES_RESTORE = "/usr/sbin/iptables", "/usr/sbin/ip6tables", "/usr/sbin/iptables-restore"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def list_rules(settings: Settings) -> list[list[str]]:
    """The rules of the chain, first match wins. The machine gets what is sent to its addresses, and also what is sent
    to all: broadcasts, and multicasts of 224.0.0.1, reach every program that listens on all addresses."""
    to_host = ["-m", "addrtype", "!", "--dst-type", "UNICAST"]
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
    """Table, command that adds it, and rule. Those that accept come first in their chain: others may refuse all. So
    those of a second runner come before those that protect the workspaces of the first; another table does that."""
    pool, interfaces = settings.network_pool, f"{INTERFACE_PREFIX}+"
    answers = ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED"]
    return [
        ("mangle", "-A", ["FORWARD", "-i", interfaces, "-o", interfaces, "-j", "DROP"]),
        ("nat", "-A", ["POSTROUTING", "-s", pool, "!", "-d", pool, "-j", "MASQUERADE"]),
        ("filter", "-I", ["FORWARD", "-d", pool, "-j", "DROP"]),
        ("filter", "-I", ["FORWARD", "-d", pool, *answers, "-j", "ACCEPT"]),
        ("filter", "-I", ["FORWARD", "-s", pool, "-j", "ACCEPT"]),
    ]


def chain_name(settings: Settings) -> str:
    """Follows from the rules: with other settings, or other name servers, it is another chain."""
    text = "\n".join((settings.network_pool, *(" ".join(each) for each in list_rules(settings))))
    return f"{CHAIN}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


async def ensure_firewall(settings: Settings) -> None:
    """Adds what is missing, and removes the chain of former settings.

    The rule that leads to the chain is added last, and lost with the others when anything clears the table. So one
    command is enough to see that all is in order.
    """
    chain = chain_name(settings)
    if await _iptables("-C", "PREROUTING", "-s", settings.network_pool, "-j", chain) == 0:
        return
    await asyncio.to_thread(FORWARDING.write_text, "1")
    for table, command, rule in list_routing_rules(settings):
        if await _iptables("-C", *rule, table=table) != 0 and await _iptables(command, *rule, table=table) != 0:
            raise EngineError(Reason.ENGINE_UNAVAILABLE, f"iptables refused the rule {' '.join(rule)}")
    await _drop_ipv6()
    await _add_chain(settings, chain)
    await _remove_former_chains(settings, chain)


async def _add_chain(settings: Settings, chain: str) -> None:
    """All of it at once: packets never pass a part of the rules, and another task may be doing the same."""
    lines = [
        "*mangle",
        f":{chain} - [0:0]",
        *(f"-A {chain} {' '.join(rule)}" for rule in list_rules(settings)),
        f"-A PREROUTING -s {settings.network_pool} -j {chain}",
        "COMMIT",
    ]
    given = "".join(f"{line}\n" for line in lines).encode()
    result = await run_program([IPTABLES_RESTORE, "--wait", "--noflush"], {"PATH": PATH}, given)
    if result.code != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"iptables refused the rules: {last_line(result.errors)}")


async def _remove_former_chains(settings: Settings, chain: str) -> None:
    """What an earlier version added to a chain that all runners shared stays, and nothing leads there."""
    listed = await run_program([IPTABLES, "--wait", "-t", "mangle", "-S", "PREROUTING"], {"PATH": PATH})
    begin = f"-A PREROUTING -s {settings.network_pool} -j {CHAIN}"
    for line in listed.output.splitlines():
        target = line.rpartition(" ")[2]
        if line.startswith(begin) and target != chain:
            await _iptables("-D", "PREROUTING", "-s", settings.network_pool, "-j", target)
            if target != CHAIN:
                await _iptables("-F", target)
                await _iptables("-X", target)


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


async def _iptables(*arguments: str, program: str = IPTABLES, table: str = "mangle") -> int:
    process = await asyncio.create_subprocess_exec(
        program,
        "--wait",
        "-t",
        table,
        *arguments,
        env={"PATH": PATH},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
