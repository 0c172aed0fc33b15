"""The packages of Debian that a node and a network namespace need, installed where they are missing."""

import shutil
import subprocess
from pathlib import Path

from tests.harness.server_process import ROOT

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "busybox": "busybox-static",
    "iptables": "iptables",
}
CNI_PLUGINS = Path("/usr/lib/cni")


def install_packages() -> None:
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not CNI_PLUGINS.is_dir():
        missing.append("containernetworking-plugins")
    if missing:
        subprocess.run([str(ROOT / "scripts" / "apt-install.sh"), *missing], check=True)
