"""`fairlead install` and `fairlead uninstall`: the server or the agent as a systemd service of this machine.

Runners have `fairlead runner install`. Installing again changes only what is different; a settings file that exists is
never changed. Uninstalling removes what was installed, and with --purge the data as well.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead import __version__
from fairlead.cli.server.event_loop import exit_with_error
from fairlead.cli.server.units import (
    CONFIG_FILE,
    UNIT_FOLDER,
    AgentUnitOptions,
    Unit,
    build_agent_unit,
    build_server_unit,
)
from fairlead.cli.ui.flags import flag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.core.files import FileProblem, read_file, write_file
from fairlead.settings import StartError

group = typer.Typer(help="Install the server or the agent as a systemd service.", no_args_is_help=True)

SECRETS = ("store", "pepper", "encryption_keys", "etcd_password")
UNITS = ("fairlead", "fairlead-agent")
HIDDEN_FOLDERS = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""The units do not see them: ProtectHome= and PrivateTmp=."""
CONFIG = """\
# Settings of the Fairlead server; `fairlead serve --help` lists them. Restart it after a change:
#   systemctl restart fairlead
# Secrets belong into credentials: fairlead install server --credential store=FILE

# listen: 0.0.0.0
# public_url: https://fairlead.example.com
"""

RootFlag = Annotated[
    Path, typer.Option("--root", help="Folder that takes the place of /, for building packages.", metavar="DIR")
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Print the unit, and change nothing.")]


@group.command("server")
def install_server(
    credential: Annotated[
        list[str] | None,
        flag(
            "--credential",
            help=f"File with a secret of the server: {', '.join(SECRETS)}. Repeatable.",
            metavar="NAME=FILE",
            default="none",
        ),
    ] = None,
    root: RootFlag = Path("/"),
    dry_run: DryRunFlag = False,
) -> None:
    """Install the server as a systemd service.

    It runs as a user of its own, with its data in /var/lib/fairlead and its settings in /etc/fairlead/fairlead.yaml.
    """
    with_secrets = dict(_parse_credential(each) for each in credential or ())
    unit = build_server_unit(_find_executable(root, dry_run), with_secrets)
    if dry_run:
        print(unit.render(), end="")
        return
    _install(unit, root, {CONFIG_FILE: CONFIG}, f"fairlead doctor --config /{CONFIG_FILE} --data /var/lib/fairlead")
    print_note("the administrator's kubeconfig will be /var/lib/fairlead/admin.kubeconfig, for root only")


@dataclass(frozen=True, slots=True)
class AgentInstallOptions:
    cluster: Annotated[str, typer.Option("--cluster", help="Name of the Cluster object.")]
    server: Annotated[str, typer.Option("--server", help="Base URL of the server.", metavar="URL")]
    key_file: Annotated[Path, typer.Option("--key-file", help="File with the agent's access key.", metavar="FILE")]
    kubeconfig: Annotated[Path, typer.Option("--kubeconfig", help="Kubeconfig of the cluster.", metavar="FILE")]
    ca_file: Annotated[Path | None, flag("--ca-file", help="PEM file with the server's CA.", metavar="FILE")] = None
    listen: Annotated[str, typer.Option("--listen", help="Address to listen on.", metavar="IP")] = "127.0.0.1"
    root: RootFlag = Path("/")
    dry_run: DryRunFlag = False


@group.command("agent")
@options_from(AgentInstallOptions)
def install_agent(options: AgentInstallOptions) -> None:
    """Install the agent, the direct endpoint next to a cluster, as a systemd service.

    The service manager hands it the key and the kubeconfig when it starts: restart it after a change of them.
    """
    from fairlead.core.validators import check_base_url, check_ip_address

    server = options.server.rstrip("/")
    for name, error in (("--server", check_base_url(server)), ("--listen", check_ip_address(options.listen))):
        if error:
            raise typer.BadParameter(f"{name} {error}")
    files = [options.key_file, options.kubeconfig, *((options.ca_file,) if options.ca_file else ())]
    for file in files:
        _require_file(file)
    ca_file = options.ca_file.absolute() if options.ca_file else None
    unit_options = AgentUnitOptions(
        cluster=options.cluster,
        server=server,
        key_file=options.key_file.absolute(),
        kubeconfig=options.kubeconfig.absolute(),
        ca_file=ca_file,
        listen=options.listen,
    )
    unit = build_agent_unit(_find_executable(options.root, options.dry_run), unit_options)
    if options.dry_run:
        print(unit.render(), end="")
        return
    _install(unit, options.root, {}, f"systemctl status {unit.name}")


def uninstall(
    purge: Annotated[bool, typer.Option("--purge", help="Delete settings and all data as well.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before data is deleted.")] = False,
    root: RootFlag = Path("/"),
) -> None:
    """Stop and remove the services that `fairlead install` installed. Data stays, unless --purge is given."""
    present = [name for name in UNITS if (root / UNIT_FOLDER / f"{name}.service").exists()]
    data = [path for name in UNITS for path in _state_folders(root, name) if path.exists() or path.is_symlink()]
    if purge and data and not yes:
        typer.confirm(f"Delete {', '.join(map(str, data))} with all data?", abort=True)
    _stop(root, present)
    try:
        for name in present:
            (root / UNIT_FOLDER / f"{name}.service").unlink()
            print_note(f"removed {root / UNIT_FOLDER / f'{name}.service'}")
        _remove_settings(root / CONFIG_FILE, purge)
        for path in data if purge else ():
            path.unlink() if path.is_symlink() else shutil.rmtree(path)
            print_note(f"removed {path}")
    except OSError as error:
        raise exit_with_error(FileProblem(f"{error.filename}: {error.strerror}; run it as root")) from None
    if present:
        _systemctl(root, "daemon-reload")
    else:
        print_note("no service is installed")
    if data and not purge:
        print_note(f"kept the data: {', '.join(map(str, data))}; --purge deletes it")


def _stop(root: Path, names: Sequence[str]) -> None:
    """Stops the services, all of them before anything is removed: a running server must keep its unit and its data."""
    for name in names:
        if _runs_systemd(root) and not _systemctl(root, "disable", "--now", name):
            raise exit_with_error(
                StartError(
                    f"{name} was not stopped, so nothing is removed; run it as root, or see: systemctl status {name}"
                )
            )


def _install(unit: Unit, root: Path, defaults: dict[Path, str], check: str) -> None:
    """Writes what is missing or different. `defaults` are files for the administrator to edit, and `check` is the
    command that examines the service."""
    try:
        for path, text in defaults.items():
            if not (root / path).exists():
                _ensure_folder(root / path.parent)
                write_file(root / path, text.encode(), mode=0o644)
                print_note(f"wrote {root / path}")
        content, target = unit.render().encode(), root / unit.path
        is_new = read_file(target) != content
        if is_new:
            _ensure_folder(target.parent)
            write_file(target, content, mode=0o644)
        print_note(f"{'wrote' if is_new else 'unchanged:'} {target}")
    except (FileProblem, OSError) as error:
        problem = error if isinstance(error, FileProblem) else FileProblem(f"{error.filename}: {error.strerror}")
        raise exit_with_error(FileProblem(f"{problem}; run it as root")) from None
    if _systemctl(root, "daemon-reload") and _systemctl(root, "enable", unit.name):
        print_note(f"next: systemctl restart {unit.name} && {check}")
    else:
        print_note(f"next, on a machine with systemd: systemctl daemon-reload && systemctl enable --now {unit.name}")


def _ensure_folder(folder: Path) -> None:
    """Creates it and its parents so that all users can read them, whatever the umask is. Others keep their mode."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)


def _find_executable(root: Path, dry_run: bool) -> Path:
    """The installed command. A unit is not installed with one that it cannot see; a dry run only says so."""
    script = Path(sys.prefix) / "bin" / "fairlead"
    if not script.exists():
        raise exit_with_error(StartError(f"{script}: no such file; install the package, see docs/install.md"))
    if root == Path("/") and str(script).startswith(tuple(f"{folder}/" for folder in HIDDEN_FOLDERS)):
        problem = (
            f"{script}: services do not see this folder; install it for all users, for example with\n"
            f"PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install ./fairlead-{__version__}-py3-none-any.whl"
        )
        if not dry_run:
            raise exit_with_error(StartError(problem))
        for line in problem.splitlines():
            print_note(f"warning: {line}")
    return script


def _parse_credential(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if name not in SECRETS or not equals:
        raise typer.BadParameter(f"--credential {text}: must be NAME=FILE, where NAME is one of {', '.join(SECRETS)}")
    return name, _require_file(Path(file))


def _require_file(file: Path) -> Path:
    if not file.is_file():
        raise typer.BadParameter(f"{file}: no such file")
    if any(letter.isspace() or letter in "\"'\\" for letter in str(file.absolute())):
        raise typer.BadParameter(f"{file.absolute()}: units cannot name files with spaces or quotes; rename it")
    return file.absolute()


def _remove_settings(config: Path, purge: bool) -> None:
    """Removes the settings file unless it was edited, and its folder if that is empty."""
    if not config.exists():
        return
    if not purge and config.read_text() != CONFIG:
        print_note(f"kept {config}, which was edited; --purge deletes it")
        return
    config.unlink()
    if not any(config.parent.iterdir()):
        config.parent.rmdir()
    print_note(f"removed {config}")


def _state_folders(root: Path, name: str) -> tuple[Path, Path]:
    """With DynamicUser=, the first is a link to the second."""
    return root / "var/lib" / name, root / "var/lib/private" / name


def _runs_systemd(root: Path) -> bool:
    """Whether systemd runs this machine, and the folder is its root."""
    return root == Path("/") and os.path.isdir("/run/systemd/system")


def _systemctl(root: Path, *arguments: str) -> bool:
    """Whether systemd did it. It does nothing for other roots, and on machines that systemd does not run."""
    if not _runs_systemd(root):
        return False
    result = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        print_note(f"systemctl {' '.join(arguments)}: {result.stderr.strip()}")
    return result.returncode == 0
