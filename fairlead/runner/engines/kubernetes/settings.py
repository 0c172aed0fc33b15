"""The settings of the engine, as the operator of the runner chose them. Templates choose within these bounds."""

from dataclasses import dataclass
from pathlib import Path

from fairlead.runner.engines.contract import Limits

GIGABYTE = 1 << 30
DEFAULT_LIMITS = Limits(memory_bytes=4 * GIGABYTE, cpus=2.0)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds for the steps of a task, and for parts of them."""

    prepare: float = 120
    clone: float = 900
    start: float = 600
    commands: float = 1800
    stop: float = 120
    delete: float = 600
    image_pull: float = 60
    """How long an image that cannot be pulled is tried again."""
    forced_deletion: float = 60
    """How long `delete` waits for a node that does not report the end of a Pod. Then the Pod is removed without it."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Paths inside the containers."""

    private: str = "/run/fairlead"
    """In memory; it has the sessions and secrets of the Pod."""
    workspaces: str = "/workspaces"
    volume: str = "/volume"
    """Where init containers see the whole claim. The workspace sees the work folder only."""


DEFAULT_DEADLINES = Deadlines()
DEFAULT_FOLDERS = Folders()


@dataclass(frozen=True, slots=True)
class Settings:
    state_folder: Path
    runner: str
    """The name of the Runner object: a label of everything that the engine creates."""
    kubeconfig: Path | None = None
    contexts: tuple[str, ...] = ()
    """Contexts of the kubeconfig that templates may choose, besides its current context."""
    namespaces: tuple[str, ...] = ()
    """Namespaces that templates may choose, besides that of the context."""
    clone_image: str = ""
    """Has git and a shell. It clones repositories, unless a trusted template names another image for that."""
    protocols: frozenset[str] = frozenset({"https", "ssh"})
    """What repositories may be cloned over."""
    default_limits: Limits = DEFAULT_LIMITS
    deadlines: Deadlines = DEFAULT_DEADLINES
    folders: Folders = DEFAULT_FOLDERS
    poll_seconds: float = 0.3
    """How often objects are read while a task waits for them."""
    status_seconds: float = 1.0
    """How long an observation is used again."""
    call_seconds: float = 30.0
    """How long a task repeats a request that the cluster or the gateway could not answer."""
