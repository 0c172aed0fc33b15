"""Programs of another architecture than this machine's: Linux runs them with qemu (binfmt_misc)."""

import platform
import subprocess
from pathlib import Path

import pytest

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The kernel's names of architectures, by Debian's names, which images use, too."""
BINFMT = Path("/proc/sys/fs/binfmt_misc")
RULES = Path("/usr/lib/binfmt.d")


def is_emulated(architecture: str) -> bool:
    return MACHINES[architecture] != platform.machine()


def require_architecture(architecture: str) -> None:
    """Makes this machine run programs of the architecture, also in containers, or skips the test.

    The rule for qemu stays registered after the test, until the machine restarts. Where systemd runs, installing qemu
    registers the same one, and a second test at the same time needs it, too.
    """
    if not is_emulated(architecture):
        return
    entry = BINFMT / f"qemu-{MACHINES[architecture]}"
    if not entry.exists():
        register(RULES / entry.name)
    state = read_state(entry)
    if "enabled" not in state:
        pytest.skip(f"{entry} is disabled; write 1 to it")
    if not any(line.startswith("flags:") and "F" in line for line in state):
        pytest.skip(f"{entry} lacks the flag F, without which containers cannot use the emulator")


def register(rule: Path) -> None:
    file = rule.with_name(f"{rule.name}.conf")
    if not file.exists():
        pytest.skip(f"there is no {file}; `make test-container` installs it with qemu-user-static")
    register = BINFMT / "register"
    if not register.exists():
        mount = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT)]
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"no emulator for programs of other architectures: {mounted.stderr.strip()}")
    try:
        register.write_text(file.read_text())
    except OSError as error:
        pytest.skip(f"qemu cannot be registered for programs of other architectures: {error}")


def read_state(entry: Path) -> list[str]:
    return entry.read_text().splitlines()
