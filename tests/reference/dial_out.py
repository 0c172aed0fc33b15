"""A network namespace for a control plane and its node from which connections are opened, and into which none are.

Its only link leads to this machine, where one address stands for loopback. So a Fairlead that listens on loopback is
reached from within, by an agent that runs there, and reaches nothing there by itself. Needs root.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.harness.server_process import ROOT, TIMEOUT_SECONDS, Server, server_environment
from tests.reference.control_plane import Network
from tests.reference.packages import install_packages

NAMESPACE, LINK, TABLE = "fairlead-inside", "dialout0", "fairlead-dial-out"
OUTSIDE, INSIDE = "10.95.0.1", "10.95.0.2"
"""The addresses of this machine and of the namespace on their link."""


@contextmanager
def dial_out_network() -> Iterator[Network]:
    """Creates the namespace, and removes it at the end."""
    install_packages()
    _remove()
    network = Network(namespace=NAMESPACE)
    try:
        _run("ip", "netns", "add", NAMESPACE)
        _run("ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", NAMESPACE)
        _run("ip", "addr", "add", f"{OUTSIDE}/30", "dev", LINK)
        _run("ip", "link", "set", LINK, "up")
        Path(f"/proc/sys/net/ipv4/conf/{LINK}/route_localnet").write_text("1")
        target = f"iifname {LINK} ip daddr {OUTSIDE} ip protocol tcp dnat to 127.0.0.1"
        chain = f"chain in {{ type nat hook prerouting priority dstnat; {target}; }}"
        _run("nft", f"table ip {TABLE} {{ {chain}; }}")
        inside = (*network.enter, "ip")
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "addr", "add", f"{INSIDE}/30", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        refused = "iifname eth0 ct state new drop"
        chains = "; ".join(
            f"chain {hook} {{ type filter hook {hook} priority 0; {refused}; }}" for hook in ("input", "forward")
        )
        _run(*network.enter, "nft", f"table ip {TABLE} {{ {chains}; }}")
        yield network
    finally:
        _remove()


@contextmanager
def agent_inside(network: Network, folder: Path, server: Server, kubeconfig: str, token: str) -> Iterator[None]:
    """An agent in the namespace, when it has a session. The server's certificate must have the address OUTSIDE."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kubeconfig").write_text(kubeconfig)
    url = f"https://{OUTSIDE}:{urlsplit(server.url).port}"
    arguments = (
        *("agent", "--server", url, "--json", "--token", token),
        *("--kubeconfig", str(folder / "kubeconfig"), "--state", str(folder / "state")),
    )
    log = folder / "agent.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [*network.enter, sys.executable, "-m", "fairlead", *arguments],
            cwd=ROOT,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), log.read_text()
            yield
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0, log.read_text()
        finally:
            process.kill()


def _remove() -> None:
    _run("nft", "delete", "table", "ip", TABLE, check=False)
    _run("ip", "netns", "delete", NAMESPACE, check=False)
    _run("ip", "link", "delete", LINK, check=False)


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=not check)
