"""`fairlead runner start`, `doctor` and `install`: the process that runs workspaces on this machine.

The key comes from a file or from FAIRLEAD_RUNNER_KEY. There is no flag for it: command lines are visible to all users
of a machine.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.server.event_loop import exit_with_error, run_until_signal
from fairlead.cli.ui.flags import options_from
from fairlead.cli.ui.output import print_note

if TYPE_CHECKING:
    from fairlead.runner.engines.contract import Finding
    from fairlead.runner.process import StartedRunner
    from fairlead.runner.settings import RunnerSettings

DEFAULT_ENGINE = "devcontainer"
UNIT_FOLDER = Path("/etc/systemd/system")

NameArgument = Annotated[str, typer.Argument(help="Name of the runner.")]
ServerFlag = Annotated[str, typer.Option("--server", help="Base URL of the server.", metavar="URL")]
KeyFileFlag = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="File with the runner's key, as `fairlead runner key` prints it.",
        metavar="FILE",
        show_default="FAIRLEAD_RUNNER_KEY",
    ),
]
CaFileFlag = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        help="PEM file with the server's CA, unless this machine already trusts it.",
        metavar="FILE",
        show_default=False,
    ),
]
StateFlag = Annotated[Path, typer.Option("--state", help="Folder for what must survive the process.", metavar="DIR")]
EngineFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        help="How workspaces run: devcontainer or process. Repeatable; the first is the default.",
        metavar="NAME",
        show_default=DEFAULT_ENGINE,
    ),
]
AllowFolderFlag = Annotated[
    list[Path] | None,
    typer.Option(
        "--allow-folder",
        help="Folder of this machine that workspaces may be created from. Repeatable.",
        metavar="DIR",
        show_default="none",
    ),
]
GroupFlag = Annotated[str, typer.Option("--api-group", help="The server's setting api_group.")]
DEFAULT_STATE = Path("/var/lib/fairlead-runner")


@dataclass(frozen=True, slots=True)
class RunnerStartOptions:
    name: NameArgument
    server: ServerFlag
    key_file: KeyFileFlag = None
    ca_file: CaFileFlag = None
    state: StateFlag = DEFAULT_STATE
    engine: EngineFlag = None
    allow_folder: AllowFolderFlag = None
    api_group: GroupFlag = "management.service.sh"
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info"
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line when ready, for scripts.")] = False


@dataclass(frozen=True, slots=True)
class RunnerDoctorOptions:
    name: NameArgument
    server: ServerFlag
    key_file: KeyFileFlag = None
    ca_file: CaFileFlag = None
    state: StateFlag = DEFAULT_STATE
    engine: EngineFlag = None
    allow_folder: AllowFolderFlag = None
    api_group: GroupFlag = "management.service.sh"


@dataclass(frozen=True, slots=True)
class RunnerInstallOptions:
    name: NameArgument
    server: ServerFlag
    key_file: Annotated[
        Path, typer.Option("--key-file", help="File with the runner's key. It must exist.", metavar="FILE")
    ]
    ca_file: CaFileFlag = None
    state: StateFlag = DEFAULT_STATE
    engine: EngineFlag = None
    allow_folder: AllowFolderFlag = None
    write: Annotated[bool, typer.Option("--write", help=f"Write the unit to {UNIT_FOLDER} instead of printing it.")] = (
        False
    )


@options_from(RunnerStartOptions)
def start(options: RunnerStartOptions) -> None:
    """Run workspaces on this machine, until it is stopped.

    What runs goes on running without this process, and is taken over when it starts again.
    """
    from fairlead.client import ClientError
    from fairlead.core.log import configure_logging
    from fairlead.runner.process import run

    if options.log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter(f"--log-level {options.log_level}: must be debug, info, warning or error")
    configure_logging(options.log_level, "json")
    try:
        run_until_signal(run, build_settings(options), lambda started: announce(started, options.as_json))
    except ClientError as error:
        raise exit_with_error(error) from None


@options_from(RunnerDoctorOptions)
def doctor(options: RunnerDoctorOptions) -> None:
    """Check what this machine lacks to run workspaces. Exits with 1 if it cannot."""
    import asyncio

    from fairlead.runner.doctor import examine

    settings = build_settings(options)

    async def collect() -> "list[Finding]":
        return [finding async for finding in examine(settings)]

    findings = asyncio.run(collect())
    for finding in findings:
        state = "ok" if not finding.problem else "PROBLEM" if finding.is_fatal else "warning"
        print(f"{state:8} {finding.subject}" + (f": {finding.problem}" if finding.problem else ""))
        if finding.problem and finding.remedy:
            print(f"         fix: {finding.remedy}")
    if any(finding.problem and finding.is_fatal for finding in findings):
        raise typer.Exit(1)


@options_from(RunnerInstallOptions)
def install(options: RunnerInstallOptions) -> None:
    """Print a systemd unit that runs this runner, or install it with --write."""
    unit = build_unit(options)
    if not options.write:
        print(unit, end="")
        return
    from fairlead.core.files import FileProblem, write_file

    path = UNIT_FOLDER / f"fairlead-runner-{options.name}.service"
    try:
        write_file(path, unit.encode(), mode=0o644)
    except FileProblem as error:
        raise exit_with_error(error) from None
    print_note(f"wrote {path}; start it with `systemctl daemon-reload && systemctl enable --now {path.stem}`")


def build_settings(options: RunnerStartOptions | RunnerDoctorOptions) -> "RunnerSettings":
    from fairlead.core.validators import check_base_url
    from fairlead.runner.settings import RunnerSettings

    server = options.server.rstrip("/")
    if error := check_base_url(server):
        raise typer.BadParameter(f"--server {error}")
    return RunnerSettings(
        name=options.name,
        server=server,
        state_folder=options.state.absolute(),
        key_file=options.key_file,
        ca_file=options.ca_file,
        api_group=options.api_group,
        engines=tuple(options.engine or (DEFAULT_ENGINE,)),
        allowed_folders=tuple(path.resolve() for path in options.allow_folder or ()),
    )


def announce(started: "StartedRunner", as_json: bool) -> None:
    import structlog

    if as_json:
        print(json.dumps({"runner": started.name, "bootId": started.boot}), flush=True)
    structlog.get_logger().info("ready", runner=started.name, server=started.server, boot_id=started.boot)


def build_unit(options: RunnerInstallOptions) -> str:
    """The text of the unit. Only the process of the runner is ended with it, not what it runs (KillMode)."""
    command = " ".join(_quote(each) for each in _command(options))
    return f"""\
[Unit]
Description=Fairlead runner {options.name}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={command}
Restart=always
RestartSec=2
# What the runner has started goes on running when it is stopped or updated.
KillMode=process
Delegate=yes
OOMScoreAdjust=-500
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def _command(options: RunnerInstallOptions) -> Sequence[str]:
    optional = ("--ca-file", str(options.ca_file.absolute())) if options.ca_file else ()
    engines = [part for each in options.engine or () for part in ("--engine", each)]
    folders = [part for each in options.allow_folder or () for part in ("--allow-folder", str(each.absolute()))]
    return (
        *(sys.executable, "-m", "fairlead", "runner", "start", options.name, "--server", options.server),
        *("--key-file", str(options.key_file.absolute()), *optional),
        *("--state", str(options.state.absolute()), *engines, *folders),
    )


def _quote(argument: str) -> str:
    """systemd expands `%` and `$` in commands."""
    return shlex.quote(argument).replace("%", "%%").replace("$", "$$")
