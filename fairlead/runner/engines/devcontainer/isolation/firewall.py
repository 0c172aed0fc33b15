"""Keeps workspaces away from the machine of the runner, from each other and from the metadata services of clouds.

What workspaces may reach is checked three times:

- when a packet arrives from one of their interfaces, in the table `mangle`, which packets pass before those that accept
  them. One chain for each runner, because the settings of runners differ
- in the same chain once more, when the tables that translate addresses have changed its destination: to the machine
  itself (INPUT), or to another one (FORWARD)
- in the network namespace of the workspace. It belongs to root of the machine, so the workspace cannot change these
  rules, and programs that clear or restore the rules of the machine do not see them

Other rules let the workspaces reach other machines with the address of this one, and let nothing in but answers. While
a runner runs, it adds again what another program has removed.
"""

import asyncio
import fcntl
import hashlib
import ipaddress
import os
import shlex
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.isolation.network import (
    INTERFACE_PREFIX,
    NAMESPACES,
    find_name_servers,
    network_prefix,
)
from fairlead.runner.engines.devcontainer.isolation.ranges import list_pools
from fairlead.runner.engines.devcontainer.programs import PATH, last_line, run_program
from fairlead.runner.engines.devcontainer.settings import Settings

CHAIN = "FAIRLEAD"
"""How the names of the chains begin."""
HOOKS = ("PREROUTING", "INPUT", "FORWARD")
"""Where packets of workspaces pass the chain."""
IPTABLES, IP6TABLES, IPTABLES_RESTORE = "/usr/sbin/iptables", "/usr/sbin/ip6tables", "/usr/sbin/iptables-restore"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
IPV6_RULE = ("PREROUTING", "-i", f"{INTERFACE_PREFIX}+", "-j", "DROP")
CHECK_SECONDS = 10.0
LOCK_SECONDS = 60.0
LOCK_POLL_SECONDS = 0.02

log = structlog.get_logger(__name__)


def list_rules(settings: Settings) -> list[list[str]]:
    """The rules of the chain, first match wins. The machine gets what is sent to its addresses, and also what is sent
    to all: broadcasts, and multicasts of 224.0.0.1, reach every program that listens on all addresses."""
    to_host = ["-m", "addrtype", "!", "--dst-type", "UNICAST"]
    return [
        ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "RETURN"],
        *([*each, "-j", "RETURN"] for each in _list_name_services(settings)),
        [*to_host, "-j", "DROP"],
        *(["-d", each, "-j", "DROP"] for each in (settings.network_pool, *settings.refused_networks)),
    ]


def list_inner_rules(settings: Settings, machine: Iterable[str]) -> list[list[str]]:
    """The rules in the network of a workspace, for what leaves it. `machine` are the addresses of the machine and the
    networks of its workspaces, which cannot be told from others there."""
    refused = (*settings.refused_networks, *machine)
    return [
        ["-o", "lo", "-j", "ACCEPT"],
        ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"],  # answers to the machine
        *([*each, "-j", "ACCEPT"] for each in _list_name_services(settings)),
        ["-m", "addrtype", "!", "--dst-type", "UNICAST", "-j", "DROP"],
        *(["-d", each, "-j", "DROP"] for each in refused),
    ]


def list_routing_rules(settings: Settings) -> list[tuple[str, list[str]]]:
    """Table and rule, in any order."""
    pool, interfaces = settings.network_pool, f"{INTERFACE_PREFIX}+"
    return [
        ("mangle", ["FORWARD", "-i", interfaces, "-o", interfaces, "-j", "DROP"]),
        ("nat", ["POSTROUTING", "-s", pool, "!", "-d", pool, "-j", "MASQUERADE"]),
    ]


def list_forward_rules(settings: Settings) -> list[list[str]]:
    """The rules of the chain in the table `filter`, first match wins: an order that rules beside those of others, each
    added when it is missing, would not keep."""
    pool = settings.network_pool
    return [
        ["-s", pool, "-j", "ACCEPT"],
        ["-d", pool, "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"],
        ["-d", pool, "-j", "DROP"],
    ]


def forward_jump(settings: Settings) -> list[str]:
    """Leads to that chain. It comes first, as rules of others may refuse all. So that of a second runner comes before
    the one that protects the workspaces of the first; another table does that."""
    return ["FORWARD", "-j", forward_chain_name(settings)]


def forward_chain_name(settings: Settings) -> str:
    """Runners with the same pool have the same rules, and this chain in common."""
    return f"{CHAIN}-{hashlib.sha256(settings.network_pool.encode()).hexdigest()[:12]}"


def list_jumps(settings: Settings) -> list[list[str]]:
    """The rules that lead to the chain."""
    chain = chain_name(settings)
    interfaces = f"{network_prefix(settings.state_folder)}+"
    return [[hook, "-i", interfaces, "-j", chain] for hook in HOOKS]


def chain_name(settings: Settings) -> str:
    """Follows from the runner and the rules: with other settings, or other name servers, it is another chain."""
    rules = (" ".join(each) for each in list_rules(settings))
    text = "\n".join((network_prefix(settings.state_folder), settings.network_pool, *rules))
    return f"{CHAIN}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


async def keep_firewall(settings: Settings) -> None:
    """For ever: adds what other programs have removed, as long as there are networks of workspaces."""
    inner = b""
    while True:
        try:
            if networks := await asyncio.to_thread(_list_networks, settings):
                await ensure_firewall(settings)
                latest = await _describe_inner_rules(settings)
                if latest != inner:  # the machine has got another address, or there are other name servers
                    for each in networks:
                        await _set_inner_rules(each, latest)
                    inner = latest
        except (EngineError, OSError) as error:
            log.error("the firewall of workspaces is not complete", error=str(error))
        await asyncio.sleep(CHECK_SECONDS)


async def ensure_firewall(settings: Settings) -> None:
    """Adds what is missing, and removes the chain of former settings."""
    if await _is_complete(settings):
        return
    async with _lock(settings):
        if await _is_complete(settings):  # another task, or another runner, has added it meanwhile
            return
        await asyncio.to_thread(FORWARDING.write_text, "1")
        for table, rule in list_routing_rules(settings):
            if await _iptables("-C", *rule, table=table) != 0 and await _iptables("-A", *rule, table=table) != 0:
                raise EngineError(Reason.ENGINE_UNAVAILABLE, f"iptables refused the rule {' '.join(rule)}")
        await _drop_ipv6()
        await _add_chains(settings)
        await _remove_former_chains(settings)


@asynccontextmanager
async def _lock(settings: Settings) -> AsyncIterator[None]:
    """For one task of one runner of the machine. The event loop does not wait for it. Not the lock of the ranges: this
    one is kept while programs run. Raises EngineError if another runner has it for too long."""
    settings.ranges_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = settings.ranges_folder / "firewall-lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise EngineError(
                    Reason.ENGINE_UNAVAILABLE,
                    f"another process has locked {path} for more than {LOCK_SECONDS:.0f} seconds, so the firewall "
                    "cannot be changed; look for a runner of this machine that is stopped (`fuser` names it)",
                )
            await asyncio.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def protect_network(settings: Settings, network: str) -> None:
    """Sets the rules in the network namespace with this file."""
    await _set_inner_rules(os.path.basename(network), await _describe_inner_rules(settings))


async def _is_complete(settings: Settings) -> bool:
    """Whether each rule is there: what clears a table may leave a part of it. Rules of the chains are only counted, as
    these have no others, in no other order, and their names follow from them."""
    rules = [*(("mangle", rule) for rule in list_jumps(settings)), *list_routing_rules(settings)]
    rules.append(("filter", forward_jump(settings)))
    checks = [[IPTABLES, "--wait", "-t", table, "-C", *rule] for table, rule in rules]
    if _has_ipv6():
        checks.append([IP6TABLES, "--wait", "-t", "mangle", "-C", *IPV6_RULE])
    counts = [
        f"[ $({IPTABLES} --wait -t {table} -S {chain} | wc -l) = {len(contained) + 1} ]"
        for table, chain, contained in _list_chains(settings)
    ]
    script = " && ".join((*(shlex.join(each) for each in checks), *counts))
    return (await run_program(["/bin/sh", "-c", script], {"PATH": PATH})).code == 0


def _list_chains(settings: Settings) -> list[tuple[str, str, list[list[str]]]]:
    """Table, name and rules."""
    return [
        ("mangle", chain_name(settings), list_rules(settings)),
        ("filter", forward_chain_name(settings), list_forward_rules(settings)),
    ]


async def _add_chains(settings: Settings) -> None:
    """Each of them at once: packets never pass a part of the rules. The chains are emptied first, and nothing leads
    there twice."""
    jumps = {"mangle": list_jumps(settings), "filter": [forward_jump(settings)]}
    lines: list[str] = []
    for table, chain, rules in _list_chains(settings):
        missing = [rule for rule in jumps[table] if await _iptables("-C", *rule, table=table) != 0]
        lines += [
            f"*{table}",
            f":{chain} - [0:0]",
            *(f"-A {chain} {' '.join(rule)}" for rule in rules),
            *(f"-I {' '.join(rule)}" for rule in missing),
            "COMMIT",
        ]
    given = "".join(f"{line}\n" for line in lines).encode()
    result = await run_program([IPTABLES_RESTORE, "--wait", "--noflush"], {"PATH": PATH}, given)
    if result.code != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"iptables refused the rules: {last_line(result.errors)}")


async def _remove_former_chains(settings: Settings) -> None:
    """Those of other settings of this runner, and of version 0.2, which led to them by address. What that version added
    to a chain that all runners shared stays, and nothing leads there."""
    listed = await run_program([IPTABLES, "--wait", "-t", "mangle", "-S"], {"PATH": PATH})
    wanted = {" ".join(rule) for rule in list_jumps(settings)}
    matches = (f"-i {network_prefix(settings.state_folder)}+ ", f"-s {settings.network_pool} ")
    removed: set[str] = set()
    for line in listed.output.splitlines():
        command, _, rule = line.partition(" ")
        target = rule.rpartition(" ")[2]
        is_own = any(rule.startswith(f"{hook} {match}-j {CHAIN}") for hook in HOOKS for match in matches)
        if command == "-A" and is_own and rule not in wanted:
            await _iptables("-D", *rule.split())
            removed.add(target)
    for target in removed - {CHAIN, chain_name(settings)}:
        await _iptables("-F", target)
        await _iptables("-X", target)


async def _describe_inner_rules(settings: Settings) -> bytes:
    """The input of `iptables-restore`, which replaces the table."""
    pools = await asyncio.to_thread(list_pools, settings)
    rules = list_inner_rules(settings, (*pools, *await _list_machine_addresses(pools)))
    lines = ["*filter", ":INPUT ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"]
    lines += [*(f"-A OUTPUT {' '.join(rule)}" for rule in rules), "COMMIT"]
    return "".join(f"{line}\n" for line in lines).encode()


async def _set_inner_rules(network: str, rules: bytes) -> None:
    entered = ("ip", "netns", "exec", network)
    result = await run_program([*entered, IPTABLES_RESTORE, "--wait"], {"PATH": PATH}, rules)
    if result.code != 0 and (NAMESPACES / network).exists():
        raise EngineError(
            Reason.ENGINE_UNAVAILABLE,
            f"iptables refused the rules of the network {network}: {last_line(result.errors)}",
        )


async def _list_machine_addresses(pools: Iterable[str]) -> list[str]:
    """Those of IPv4, without those of loopback and of the networks of workspaces, which come and go."""
    listed = await run_program(["ip", "-4", "-o", "address", "show"], {"PATH": PATH})
    if listed.code != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"ip failed: {last_line(listed.errors)}")
    networks = [ipaddress.IPv4Network(each) for each in pools]
    words = [line.split() for line in listed.output.splitlines()]
    found = {ipaddress.IPv4Interface(each[each.index("inet") + 1]).ip for each in words if "inet" in each[:-1]}
    return [
        str(each) for each in sorted(found) if not each.is_loopback and not any(each in network for network in networks)
    ]


def _list_networks(settings: Settings) -> list[str]:
    """The names of the networks of this runner."""
    prefix = network_prefix(settings.state_folder)
    names = os.listdir(NAMESPACES) if NAMESPACES.is_dir() else []
    return [name for name in names if name.startswith(prefix)]


def _list_name_services(settings: Settings) -> list[list[str]]:
    servers = find_name_servers(settings)
    return [["-p", each, "--dport", "53", "-d", server] for server in servers for each in ("udp", "tcp")]


async def _drop_ipv6() -> None:
    """Workspaces have no addresses of IPv6. One whose template gives it the capability could take one, which the rules
    of the chain do not cover."""
    if not _has_ipv6() or await _iptables("-C", *IPV6_RULE, program=IP6TABLES) == 0:
        return
    if await _iptables("-A", *IPV6_RULE, program=IP6TABLES) != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"ip6tables refused the rule {' '.join(IPV6_RULE)}")


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
