"""Settings of a runner. The key comes from a file or from the environment, never from the command line.

Command lines are visible to all users of a machine. The file is read for each request, so that a rotated key works
without a restart.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fairlead.core.files import FileProblem, read_file
from fairlead.runner.machine_settings import DEFAULT_MACHINE, MachineSettings

KEY_VARIABLE = "FAIRLEAD_RUNNER_KEY"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Where the engine `kubernetes` runs workspaces. Templates choose among `contexts` and `namespaces`, besides the
    current context and the namespace of each context."""

    kubeconfig: Path | None = None
    contexts: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    clone_image: str = ""


NO_CLUSTERS = ClusterAccess()


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """How much of the disk of this machine workspaces get, and how much has to stay free."""

    min_free_bytes: int = 2 << 30
    """With less free space in the state folder, no workspace is created. 0: never checked."""
    workspace_bytes: int = 32 << 30
    """The disk of a workspace of the engine `devcontainer`. 0: no limit."""
    image_bytes: int = 64 << 30
    """The disk with the images that this engine pulls for all workspaces."""


DEFAULT_DISK = DiskSettings()


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """`engines` are names, or `module:function` for engines of other packages; the first is the default."""

    name: str
    server: str
    state_folder: Path
    key_file: Path | None = None
    ca_file: Path | None = None
    api_group: str = "management.service.sh"
    engines: tuple[str, ...] = ("devcontainer",)
    allowed_folders: tuple[Path, ...] = ()
    """Folders of this machine that workspaces may be created from, with everything below them."""
    allowed_permissions: tuple[str, ...] = ()
    """Permissions of templates that this runner honours."""
    clusters: ClusterAccess = NO_CLUSTERS
    """For the engine `kubernetes`: the clusters in which workspaces run."""
    disk: DiskSettings = DEFAULT_DISK
    machine: MachineSettings = DEFAULT_MACHINE
    """For the engine `devcontainer`: what `--config` says."""
    orphan_retention: timedelta | None = None
    """How long the data of workspaces is kept that the server does not have. None: seven days."""


def key_reader(settings: RunnerSettings, environment: Mapping[str, str] = os.environ) -> Callable[[], str]:
    """Returns the function that reads the key. Fails at once if there is no valid key."""
    path = settings.key_file

    def read_key() -> str:
        if path is None:
            return _check_key(environment.get(KEY_VARIABLE, ""), KEY_VARIABLE)
        content = read_file(path)
        if content is None:
            raise FileProblem(f"{path}: no such file; write the key of the runner into it: `fairlead runner key NAME`")
        return _check_key(content.decode(errors="replace"), str(path))

    read_key()
    return read_key


def _check_key(text: str, source: str) -> str:
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        advice = f"set {KEY_VARIABLE} or use --key-file; `fairlead runner key NAME` prints the key"
        raise FileProblem(f"{source}: does not contain the key of a runner; {advice}")
    return key
