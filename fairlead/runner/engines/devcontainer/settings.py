"""The settings of the engine, as the operator of the machine chose them. Templates choose within these bounds."""

from dataclasses import dataclass
from pathlib import Path

from fairlead.core.addresses import LINK_LOCAL_IPV4, METADATA_SERVICES_IPV4
from fairlead.runner.engines.contract import Limits

GIGABYTE = 1 << 30
DEFAULT_FIRST_UID = 1_000_000_000
DEFAULT_NETWORK_POOL = "10.213.0.0/16"
DEFAULT_FEATURE_SOURCES = ("ghcr.io/devcontainers/features",)
"""Those of the dev container project itself. A feature is a script that runs in a build, as the instructions of any
Dockerfile; what its metadata asks for is checked like the repository's own."""
RANGES_FOLDER = Path("/var/lib/fairlead-ranges")

DEFAULT_LIMITS = Limits(memory_bytes=4 * GIGABYTE, cpus=2.0, processes=4096)
NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """How fast one workspace reads, and how fast it writes. 0: no limit."""

    bytes_per_second: int = 256 << 20
    operations_per_second: int = 10_000


DEFAULT_DISK_LIMITS = DiskLimits()
REFUSED_NETWORKS = (LINK_LOCAL_IPV4, *METADATA_SERVICES_IPV4)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds for the steps of a task."""

    prepare: float = 60
    clone: float = 900
    snapshot: float = 900
    configure: float = 300
    build: float = 3600
    start: float = 300
    commands: float = 1800
    stop: float = 60
    delete: float = 600


DEFAULT_DEADLINES = Deadlines()


@dataclass(frozen=True, slots=True)
class Settings:
    state_folder: Path
    """Everything of the engine. Only root can enter it."""
    runner: str
    """The name of the Runner object: a label of everything that the engine creates."""
    cli: tuple[str, ...] = ("devcontainer",)
    """The command of the dev container CLI, for example `node` and the path of its script."""
    podman: str = "/usr/bin/podman"
    former_podman: str = "/usr/bin/podman"
    """Podman of root, which ran containers of earlier versions."""
    registries: Path = Path("/etc/containers/registries.conf")
    """Podman's list of registries and mirrors."""
    registries_folder: Path = Path("/etc/containers/registries.conf.d")
    """Further files of it, among them the short names of images that distributions define, such as `debian`."""
    registry_mirrors: tuple[tuple[str, str], ...] = ()
    """Registries, and where their images are fetched first: a URL for one without TLS."""
    image_stores: tuple[Path, ...] = ()
    """Image stores of podman on this machine, whose images every workspace can use without a copy."""
    allowed_folders: tuple[Path, ...] = ()
    """Folders below which local sources and repositories on disk may be. Empty: they are refused."""
    protocols: frozenset[str] = frozenset({"https", "ssh"})
    feature_sources: tuple[str, ...] = DEFAULT_FEATURE_SOURCES
    """Prefixes of the features that every repository may use, for example the name of a registry and a path."""
    feature_pins: tuple[tuple[str, str], ...] = ()
    """Names of features without a version, and the digest that each has, whichever version a repository names."""
    default_limits: Limits = DEFAULT_LIMITS
    max_limits: Limits = NO_LIMITS
    """What a template can choose at most. None: no bound."""
    workspace_disk_bytes: int = 32 * GIGABYTE
    """The size of a workspace's disk, and what a template can choose at most. 0: no disk, and no limit."""
    disk_limits: DiskLimits = DEFAULT_DISK_LIMITS
    """For disks of workspaces, and of images that they read."""
    image_disk_bytes: int = 64 * GIGABYTE
    """The size of the disk with the images that were pulled for all workspaces, if workspaces have disks."""
    min_free_bytes: int = 2 * GIGABYTE
    """With less free disk, no workspace is created."""
    unused_image_seconds: float = 14 * 86400
    """How long a shared image is kept after its last use, when no workspace uses it."""
    max_unused_images: int = 20
    """How many of them are kept at most."""
    ranges_folder: Path = RANGES_FOLDER
    """Which user ids and networks the runners of this machine use. All of them have the same one."""
    first_uid: int = DEFAULT_FIRST_UID
    """Workspace number n has the 65536 user and group ids from here plus n times 65536."""
    network_pool: str = DEFAULT_NETWORK_POOL
    """Workspace number n has the n-th network of 16 addresses of this one."""
    name_servers: tuple[str, ...] = ()
    """Addresses of the name servers of workspaces. Empty: those of the machine."""
    refused_networks: tuple[str, ...] = REFUSED_NETWORKS
    deadlines: Deadlines = DEFAULT_DEADLINES
