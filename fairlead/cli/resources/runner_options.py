"""The flags for the process of a runner, and the settings that they make. `runner_process.py` has the commands."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.resources.runner_login import Connection, connect_with_login, default_state_folder
from fairlead.cli.ui.durations import parse_duration
from fairlead.cli.ui.flags import ContextFlag
from fairlead.client import DEFAULT_GROUP
from fairlead.core.validators import parse_size

if TYPE_CHECKING:
    from fairlead.runner.settings import ClusterAccess, DiskSettings, RunnerSettings

DEFAULT_ENGINE = "devcontainer"
MIN_DISK_BYTES, MAX_DISK_BYTES = 1 << 30, 15 << 40
"""Of the disk of a workspace. A file of the largest size fits on ext4."""

NameArgument = Annotated[str, typer.Argument(help="Name of the runner.")]
GroupFlag = Annotated[
    str | None, typer.Option("--api-group", help="The server's setting api_group.", show_default=False)
]


def parse_disk_size(text: str) -> int:
    """Parses the size of a disk into bytes. Used as a Typer parser, so errors are usage errors."""
    size = parse_size(text.strip())
    if size is None or (size and not MIN_DISK_BYTES <= size <= MAX_DISK_BYTES):
        raise typer.BadParameter(f"{text!r} is not the size of a disk; use 1Gi to 15Ti, like 32Gi, or 0 for no limit")
    return size


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """The flags of all commands for the process of a runner."""

    name: NameArgument
    server: Annotated[
        str | None,
        typer.Option("--server", help="Base URL of the server.", metavar="URL", show_default="that of the login"),
    ] = None
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="File with the runner's key, as `fairlead runner key` prints it.",
            metavar="FILE",
            show_default="FAIRLEAD_RUNNER_KEY, or requested with the login",
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            help="PEM file with the server's CA, unless this machine already trusts it.",
            metavar="FILE",
            show_default="that of the login",
        ),
    ] = None
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            help="Folder for what must survive the process.",
            metavar="DIR",
            show_default="/var/lib/fairlead-runner; not as root, ~/.local/state/fairlead-runner",
        ),
    ] = None
    engine: Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            help="How workspaces run: devcontainer or kubernetes. Repeatable; the first is the default.",
            metavar="NAME",
            show_default=DEFAULT_ENGINE,
        ),
    ] = None
    allow_folder: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow-folder",
            help="Folder of this machine that workspaces may be created from. Repeatable.",
            metavar="DIR",
            show_default="none",
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="Permission that this runner honours in the option `allow` of trusted templates. Repeatable.",
            metavar="NAME",
            envvar="FAIRLEAD_RUNNER_ALLOW",
            show_default="none",
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Clusters for the engine kubernetes, and the credentials for them.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None
    kube_context: Annotated[
        list[str] | None,
        typer.Option(
            "--kube-context",
            help="Context of the kubeconfig that trusted templates may choose, besides the current one. Repeatable.",
            metavar="NAME",
            envvar="FAIRLEAD_RUNNER_KUBE_CONTEXT",
            show_default="none",
        ),
    ] = None
    kube_namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--kube-namespace",
            help="Namespace that trusted templates may choose, besides that of the context. Repeatable.",
            metavar="NAME",
            envvar="FAIRLEAD_RUNNER_KUBE_NAMESPACE",
            show_default="none",
        ),
    ] = None
    clone_image: Annotated[
        str | None,
        typer.Option(
            "--clone-image",
            help="Image in which the engine kubernetes clones, with git, unless a trusted template names another.",
            metavar="IMAGE",
            envvar="FAIRLEAD_RUNNER_CLONE_IMAGE",
            show_default=False,
        ),
    ] = None
    min_free_disk: Annotated[
        int | None,
        typer.Option(
            "--min-free-disk",
            help="MiB that must be free in the state folder to create a workspace; 0 to create it anyway.",
            metavar="MIB",
            min=0,
            show_default="2048",
        ),
    ] = None
    workspace_disk: Annotated[
        int | None,
        typer.Option(
            "--workspace-disk",
            help="Size of a workspace's disk in the engine devcontainer; templates can choose less. 0: no limit.",
            parser=parse_disk_size,
            metavar="SIZE",
            show_default="32Gi",
        ),
    ] = None
    image_disk: Annotated[
        int | None,
        typer.Option(
            "--image-disk",
            help="Size of the disk with the images that the engine devcontainer pulls for all workspaces.",
            parser=parse_disk_size,
            metavar="SIZE",
            show_default="64Gi",
        ),
    ] = None
    orphan_retention: Annotated[
        int | None,
        typer.Option(
            "--orphan-retention",
            help="How long to keep the data of workspaces that the server does not have any more, like 30d.",
            parser=parse_duration,
            metavar="TIME",
            show_default="7d",
        ),
    ] = None
    api_group: GroupFlag = None
    context: ContextFlag = None


def build_settings(options: RunnerOptions) -> "RunnerSettings":
    from fairlead.runner.settings import RunnerSettings

    state = (options.state or default_state_folder()).absolute()
    connection = find_connection(options, state)
    return RunnerSettings(
        name=options.name,
        server=connection.server,
        state_folder=state,
        key_file=connection.key_file,
        ca_file=connection.ca_file,
        api_group=connection.api_group,
        engines=tuple(options.engine or (DEFAULT_ENGINE,)),
        allowed_folders=tuple(path.resolve() for path in options.allow_folder or ()),
        allowed_permissions=check_permissions(options),
        clusters=find_clusters(options),
        disk=find_disk_settings(options),
        orphan_retention=None if options.orphan_retention is None else timedelta(seconds=options.orphan_retention),
    )


def find_disk_settings(options: RunnerOptions) -> "DiskSettings":
    """Raises BadParameter."""
    from fairlead.runner.settings import DiskSettings

    if options.image_disk == 0:
        raise typer.BadParameter("--image-disk 0: there is always one; --workspace-disk 0 turns off both limits")
    chosen = {
        "min_free_bytes": None if options.min_free_disk is None else options.min_free_disk << 20,
        "workspace_bytes": options.workspace_disk,
        "image_bytes": options.image_disk,
    }
    return DiskSettings(**{name: value for name, value in chosen.items() if value is not None})


def check_permissions(options: RunnerOptions) -> tuple[str, ...]:
    """Raises BadParameter for a permission that no engine has, unless an engine of another package may have it."""
    from fairlead.runner.registry import ENGINES, list_permissions

    wanted, engines = tuple(dict.fromkeys(options.allow or ())), options.engine or (DEFAULT_ENGINE,)
    known = list_permissions()
    unknown = [each for each in wanted if each not in known]
    if unknown and all(each in ENGINES for each in engines):
        raise typer.BadParameter(f"--allow {unknown[0]}: there is no such permission; use {', '.join(sorted(known))}")
    return wanted


def find_clusters(options: RunnerOptions) -> "ClusterAccess":
    """Raises BadParameter."""
    from fairlead.runner.registry import is_system_namespace
    from fairlead.runner.settings import ClusterAccess

    for namespace in options.kube_namespace or ():
        if is_system_namespace(namespace):
            reason = "namespaces of Kubernetes itself are never for workspaces; name another one"
            raise typer.BadParameter(f"--kube-namespace {namespace}: {reason}")
    return ClusterAccess(
        options.kubeconfig.absolute() if options.kubeconfig else None,
        tuple(options.kube_context or ()),
        tuple(options.kube_namespace or ()),
        options.clone_image or "",
    )


def find_connection(options: RunnerOptions, state: Path) -> Connection:
    """From the flags, or from the login if they name no server."""
    from fairlead.core.validators import check_base_url

    if options.server is None:
        if options.ca_file or options.api_group:
            raise typer.BadParameter("--ca-file and --api-group belong to --server; the login has its own")
        return connect_with_login(options.name, state, options.key_file, options.context)
    server = options.server.rstrip("/")
    if error := check_base_url(server):
        raise typer.BadParameter(f"--server {error}")
    return Connection(server, options.key_file, options.ca_file, options.api_group or DEFAULT_GROUP)
