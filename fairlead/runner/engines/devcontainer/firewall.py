"""Keeps workspaces away from the machine of the runner, from each other and from the metadata services of clouds.

The networks of all workspaces are parts of one pool, so a few rules that never change cover them. They are in the table
`mangle`, which podman's own network setup does not touch, and which packets pass before those of podman accept them.
"""

import asyncio

from fairlead.runner.engines.contract import EngineError, Reason
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shim import PATH

CHAIN = "FAIRLEAD"


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
    await _iptables("-N", CHAIN)
    for rule in list_rules(settings):
        await _ensure([CHAIN, "-s", settings.network_pool, *rule])
    await _ensure(jump)


async def _ensure(rule: list[str]) -> None:
    if await _iptables("-C", *rule) != 0 and await _iptables("-A", *rule) != 0:
        raise EngineError(Reason.ENGINE_UNAVAILABLE, f"iptables refused the rule {' '.join(rule)}")


async def _iptables(*arguments: str) -> int:
    process = await asyncio.create_subprocess_exec(
        "/usr/sbin/iptables",
        *("--wait", "-t", "mangle", *arguments),
        env={"PATH": PATH},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
