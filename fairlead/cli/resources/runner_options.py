"""The flags for the process of a runner, and the settings that they make. `runner_process.py` has the commands.

Without a flag for the server, the URL and the CA come from the login of the command line. The key of the runner is then
requested from the server, and written to a private file in the state folder; it is neither printed nor part of a
command line.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.server.event_loop import report_start_errors
from fairlead.cli.ui.durations import parse_duration
from fairlead.cli.ui.flags import ContextFlag, flag
from fairlead.cli.ui.session import Session, open_session
from fairlead.client import DEFAULT_GROUP, ApiStatusError, ClientError
from fairlead.core.files import ensure_private_folder, write_file
from fairlead.core.validators import parse_size

if TYPE_CHECKING:
    from fairlead.runner.machine_settings import MachineSettings
    from fairlead.runner.settings import ClusterAccess, DiskSettings, RunnerSettings

RUNNERS = "runners"
KEY_VARIABLE = "FAIRLEAD_RUNNER_KEY"
KEY_FILE, CA_FILE = "key", "ca.crt"
SYSTEM_STATE = Path("/var/lib/fairlead-runner")


@dataclass(frozen=True, slots=True)
class Connection:
    """How a runner reaches its server. Without a key file, the key is in the environment."""

    server: str
    key_file: Path | None
    ca_file: Path | None
    api_group: str


def default_state_folder() -> Path:
    """That of the system for root, else one of the user."""
    if os.geteuid() == 0:
        return SYSTEM_STATE
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "fairlead-runner"


def connect_with_login(name: str, state: Path, key_file: Path | None, context: str | None) -> Connection:
    """Requests the key, unless there is one, and writes it and the CA to the state folder."""
    with open_session(context) as session:
        login = session.login
        if login.insecure:
            raise ClientError(
                f"the login for {login.url} does not verify the server's certificate, and a runner has to; log in "
                "with --ca-file, or use --server and --ca-file"
            )
        ensure_private_folder(state)
        if key_file is None and not os.environ.get(KEY_VARIABLE):
            key_file = state / KEY_FILE
            write_file(key_file, f"{request_key(session, name)}\n".encode())
        ca_file = state / CA_FILE if login.authority else None
        if ca_file is not None:
            write_file(ca_file, login.authority.encode(), mode=0o644)
        return Connection(login.url, key_file, ca_file, login.group)


def request_key(session: Session, name: str) -> str:
    try:
        response = session.client.get(RUNNERS, name, "accesskey")
    except ApiStatusError as problem:
        if problem.code == 404:
            raise ClientError(f"there is no runner {name!r}; create it with `fairlead runner create {name}`") from None
        if problem.code == 403:
            advice = "only its owner and administrators may; use their login, or --server and --key-file"
            raise ClientError(f"you may not read the key of the runner {name} ({problem.message}); {advice}") from None
        raise
    key = response.get("accessKey")
    if not isinstance(key, str) or not key:
        raise ClientError("the server did not return a key; is it a Fairlead server?")
    return key


DEFAULT_ENGINE = "devcontainer"
MIN_DISK_BYTES, MAX_DISK_BYTES = 1 << 30, 15 << 40
"""Of the disk of a workspace. A file of the largest size fits on ext4."""

NameArgument = Annotated[str, typer.Argument(help="Name of the runner.")]
GroupFlag = Annotated[str | None, flag("--api-group", help="The server's setting api_group.")]


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
        str | None, flag("--server", help="Base URL of the server.", metavar="URL", default="that of the login")
    ] = None
    key_file: Annotated[
        Path | None,
        flag(
            "--key-file",
            help="File with the runner's key, as `fairlead runner key` prints it.",
            metavar="FILE",
            default="FAIRLEAD_RUNNER_KEY, or requested with the login",
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        flag(
            "--ca-file",
            help="PEM file with the server's CA, unless this machine already trusts it.",
            metavar="FILE",
            default="that of the login",
        ),
    ] = None
    state: Annotated[
        Path | None,
        flag(
            "--state",
            help="Folder for what must survive the process.",
            metavar="DIR",
            default="/var/lib/fairlead-runner; not as root, ~/.local/state/fairlead-runner",
        ),
    ] = None
    config: Annotated[
        Path | None,
        flag(
            "--config",
            help="YAML file with what this machine gives to workspaces of the engine devcontainer.",
            metavar="FILE",
            envvar="FAIRLEAD_RUNNER_CONFIG",
            default="none",
        ),
    ] = None
    engine: Annotated[
        list[str] | None,
        flag(
            "--engine",
            help="How workspaces run: devcontainer or kubernetes. Repeatable; the first is the default.",
            metavar="NAME",
            default=DEFAULT_ENGINE,
        ),
    ] = None
    allow_folder: Annotated[
        list[Path] | None,
        flag(
            "--allow-folder",
            help="Folder of this machine that workspaces may be created from. Repeatable.",
            metavar="DIR",
            default="none",
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        flag(
            "--allow",
            help="Permission that this runner honours in the option `allow` of trusted templates. Repeatable.",
            metavar="NAME",
            envvar="FAIRLEAD_RUNNER_ALLOW",
            default="none",
        ),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        flag("--kubeconfig", help="Clusters for the engine kubernetes, and the credentials for them.", metavar="FILE"),
    ] = None
    kube_context: Annotated[
        list[str] | None,
        flag(
            "--kube-context",
            help="Context of the kubeconfig that trusted templates may choose, besides the current one. Repeatable.",
            metavar="NAME",
            envvar="FAIRLEAD_RUNNER_KUBE_CONTEXT",
            default="none",
        ),
    ] = None
    kube_namespace: Annotated[
        list[str] | None,
        flag(
            "--kube-namespace",
            help="Namespace that trusted templates may choose, besides that of the context. Repeatable.",
            metavar="NAME",
            envvar="FAIRLEAD_RUNNER_KUBE_NAMESPACE",
            default="none",
        ),
    ] = None
    clone_image: Annotated[
        str | None,
        flag(
            "--clone-image",
            help="Image in which the engine kubernetes clones, with git, unless a trusted template names another.",
            metavar="IMAGE",
            envvar="FAIRLEAD_RUNNER_CLONE_IMAGE",
        ),
    ] = None
    min_free_disk: Annotated[
        int | None,
        flag(
            "--min-free-disk",
            help="MiB that must be free in the state folder to create a workspace; 0 to create it anyway.",
            metavar="MIB",
            min=0,
            default="2048",
        ),
    ] = None
    workspace_disk: Annotated[
        int | None,
        flag(
            "--workspace-disk",
            help="Size of a workspace's disk in the engine devcontainer; templates can choose less. 0: no limit.",
            parser=parse_disk_size,
            metavar="SIZE",
            default="32Gi",
        ),
    ] = None
    image_disk: Annotated[
        int | None,
        flag(
            "--image-disk",
            help="Size of the disk with the images that the engine devcontainer pulls for all workspaces.",
            parser=parse_disk_size,
            metavar="SIZE",
            default="64Gi",
        ),
    ] = None
    orphan_retention: Annotated[
        int | None,
        flag(
            "--orphan-retention",
            help="How long to keep the data of workspaces that the server does not have any more, like 30d.",
            parser=parse_duration,
            metavar="TIME",
            default="7d",
        ),
    ] = None
    api_group: GroupFlag = None
    context: ContextFlag = None


def build_settings(options: RunnerOptions) -> "RunnerSettings":
    from fairlead.runner.settings import RunnerSettings

    state = (options.state or default_state_folder()).absolute()
    machine = find_machine_settings(options)
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
        machine=machine,
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


def find_machine_settings(options: RunnerOptions) -> "MachineSettings":
    """Prints what is wrong with the file, and exits."""
    from fairlead.runner.machine_settings import DEFAULT_MACHINE, read_machine_settings

    if options.config is None:
        return DEFAULT_MACHINE
    with report_start_errors():
        return read_machine_settings(options.config)


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
