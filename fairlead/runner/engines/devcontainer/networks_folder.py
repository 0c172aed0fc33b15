"""Finds the folder in which podman looks for its networks: `network_config_dir` in its configuration.

No command of podman tells it. So this reads what podman reads: the file that `CONTAINERS_CONF` names and no other, or
else those of the machine, of which later ones override earlier ones.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

DEFAULT_FOLDER = Path("/etc/containers/networks")
"""That of podman, for root."""
SYSTEM_FILES = (Path("/usr/share/containers/containers.conf"), Path("/etc/containers/containers.conf"))
SYSTEM_FOLDER = Path("/etc/containers/containers.conf.d")
MAX_FILE_BYTES = 1 << 20


def find_networks_folder(
    environment: Mapping[str, str], files: tuple[Path, ...] = SYSTEM_FILES, folder: Path = SYSTEM_FOLDER
) -> Path:
    """`environment` is that of podman. Files that cannot be read have no effect: podman itself reports them."""
    chosen = environment.get("CONTAINERS_CONF")
    paths = [Path(chosen)] if chosen else [*files, *sorted(folder.glob("*.conf"))]
    found = [named for path in paths if (named := _read_setting(path))]
    return Path(found[-1]) if found else DEFAULT_FOLDER


def _read_setting(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = tomllib.loads(file.read(MAX_FILE_BYTES).decode())
    except (OSError, ValueError):
        return ""
    network = content.get("network")
    named = network.get("network_config_dir") if isinstance(network, dict) else None
    return named if isinstance(named, str) else ""
