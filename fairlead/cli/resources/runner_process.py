"""`fairlead runner start`, `doctor` and `install`: the process that runs workspaces on this machine.

The key comes from a file, from FAIRLEAD_RUNNER_KEY, or with the login from the server. There is no flag for it: command
lines are visible to all users of a machine.
"""

import asyncio
import getpass
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.resources.runner_options import DEFAULT_ENGINE, RunnerOptions, build_settings
from fairlead.cli.server.doctor import describe_finding
from fairlead.cli.server.event_loop import exit_with_error, report_start_errors, run_until_signal
from fairlead.cli.server.units import UNIT_FOLDER as SYSTEM_UNIT_FOLDER
from fairlead.cli.server.units import quote_argument
from fairlead.cli.ui.flags import flag, options_from
from fairlead.cli.ui.output import escape_control, print_note
from fairlead.client import DEFAULT_GROUP, ClientError
from fairlead.core.validators import format_size

if TYPE_CHECKING:
    from fairlead.core.machine.findings import Finding
    from fairlead.runner.process import StartedRunner
    from fairlead.runner.settings import RunnerSettings

UNIT_FOLDER = Path("/") / SYSTEM_UNIT_FOLDER


@dataclass(frozen=True, slots=True)
class RunnerStartOptions:
    runner: RunnerOptions
    log_level: Annotated[str | None, flag("--log-level", help="debug, info, warning or error.", default="info")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line when ready, for scripts.")] = False


@dataclass(frozen=True, slots=True)
class RunnerInstallOptions:
    runner: RunnerOptions
    write: Annotated[bool, typer.Option("--write", help=f"Write the unit to {UNIT_FOLDER} instead of printing it.")] = (
        False
    )


@options_from(RunnerStartOptions)
def start(options: RunnerStartOptions) -> None:
    """Run workspaces on this machine, until it is stopped.

    Without --server, it uses the login of this command line, and checks this machine first. What runs goes on running
    without this process, and is taken over when it starts again.
    """
    from fairlead.core.log import configure_logging
    from fairlead.runner.process import run

    level, is_local = options.log_level or "info", options.runner.server is None
    if level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter(f"--log-level {level}: must be debug, info, warning or error")
    if is_local:
        require_root(options.runner)
    settings = build_settings(options.runner)
    is_terminal = is_local and sys.stderr.isatty()
    configure_logging(options.log_level or ("warning" if is_terminal else "info"), "console" if is_terminal else "json")
    if is_local:
        check_machine(settings)
    try:
        run_until_signal(run, settings, lambda started: announce(started, settings, options.as_json))
    except ClientError as error:
        raise exit_with_error(error) from None


def require_root(options: RunnerOptions) -> None:
    """Says at once what every later error would be about."""
    if DEFAULT_ENGINE not in (options.engine or (DEFAULT_ENGINE,)) or os.geteuid() == 0:
        return
    script = shutil.which("fairlead") or str(Path(sys.executable).with_name("fairlead"))
    command = f"sudo env HOME={shlex.quote(str(Path.home()))} {shlex.quote(script)} {shlex.join(sys.argv[1:])}"
    typer.echo(
        f"fairlead: containers of workspaces need root, and you are {getpass.getuser()}; run\n  {command}",
        err=True,
    )
    raise typer.Exit(1)


def check_machine(settings: "RunnerSettings") -> None:
    """Prints what this machine lacks, and exits if it cannot run workspaces."""
    findings = asyncio.run(_examine(settings))
    lacking = [finding for finding in findings if finding.problem]
    for finding in lacking:
        for line in describe_finding(finding):
            print_note(line)
    if any(finding.is_fatal for finding in lacking):
        again = f"solve these problems, then `fairlead runner doctor {settings.name}` checks it again"
        print_note(f"fairlead: this machine cannot run workspaces yet; {again}")
        raise typer.Exit(1)


async def _examine(settings: "RunnerSettings") -> "list[Finding]":
    from fairlead.runner.doctor import examine

    return [finding async for finding in examine(settings)]


@options_from(RunnerOptions)
def doctor(options: RunnerOptions) -> None:
    """Check what this machine lacks to run workspaces. Exits with 1 if it cannot."""
    findings = asyncio.run(_examine(build_settings(options)))
    for finding in findings:
        for line in describe_finding(finding):
            print(escape_control(line))
    if any(finding.problem and finding.is_fatal for finding in findings):
        raise typer.Exit(1)


@options_from(RunnerInstallOptions)
def install(options: RunnerInstallOptions) -> None:
    """Print a systemd unit that runs this runner, or install it with --write.

    Without --server, it uses the login of this command line, and stores the key of the runner in the state folder.
    """
    unit = build_unit(build_settings(options.runner), options.runner)
    if not options.write:
        print(unit, end="")
        return
    from fairlead.core.files import write_file

    path = UNIT_FOLDER / f"fairlead-runner-{options.runner.name}.service"
    with report_start_errors():
        write_file(path, unit.encode(), mode=0o644)
    print_note(f"wrote {path}; start it with `systemctl daemon-reload && systemctl enable --now {path.stem}`")


def announce(started: "StartedRunner", settings: "RunnerSettings", as_json: bool) -> None:
    import structlog

    if as_json:
        print(json.dumps({"runner": started.name, "bootId": started.boot}))
    elif sys.stderr.isatty():
        print_note(
            f"the runner {started.name} is ready for workspaces of {started.server}; it stores them in "
            f"{settings.state_folder}. Ctrl-C stops it; workspaces go on running."
        )
    structlog.get_logger().info("ready", runner=started.name, server=started.server, boot_id=started.boot)


def build_unit(settings: "RunnerSettings", options: RunnerOptions) -> str:
    """The text of the unit. Only the process of the runner is ended with it, not what it runs (KillMode)."""
    command = " ".join(quote_argument(each) for each in _command(settings, options))
    return f"""\
[Unit]
Description=Fairlead runner {settings.name}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={command}
# Ready when it has reached the server, which may be down longer than this machine.
TimeoutStartSec=infinity
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


def _command(settings: "RunnerSettings", options: RunnerOptions) -> Sequence[str]:
    if settings.key_file is None:
        raise typer.BadParameter("a service has no FAIRLEAD_RUNNER_KEY; name a file with the key with --key-file")
    authority = ("--ca-file", str(settings.ca_file.absolute())) if settings.ca_file else ()
    group = ("--api-group", settings.api_group) if settings.api_group != DEFAULT_GROUP else ()
    clusters = list(_cluster_flags(settings))
    disk = _disk_flags(options)
    config = ("--config", str(options.config.absolute())) if options.config else ()
    retention = ("--orphan-retention", f"{options.orphan_retention}s") if options.orphan_retention is not None else ()
    engines = [part for each in options.engine or () for part in ("--engine", each)]
    folders = [part for each in settings.allowed_folders for part in ("--allow-folder", str(each))]
    allowed = [part for each in settings.allowed_permissions for part in ("--allow", each)]
    return (
        *(sys.executable, "-m", "fairlead", "runner", "start", settings.name, "--server", settings.server),
        *("--key-file", str(settings.key_file.absolute()), *authority, *group),
        *("--state", str(settings.state_folder), *config, *engines, *folders, *allowed),
        *(*clusters, *disk, *retention),
    )


def _disk_flags(options: RunnerOptions) -> Iterator[str]:
    if options.min_free_disk is not None:
        yield from ("--min-free-disk", str(options.min_free_disk))
    if options.workspace_disk is not None:
        yield from ("--workspace-disk", format_size(options.workspace_disk))
    if options.image_disk is not None:
        yield from ("--image-disk", format_size(options.image_disk))


def _cluster_flags(settings: "RunnerSettings") -> Iterator[str]:
    clusters = settings.clusters
    if clusters.kubeconfig:
        yield from ("--kubeconfig", str(clusters.kubeconfig))
    for context in clusters.contexts:
        yield from ("--kube-context", context)
    for namespace in clusters.namespaces:
        yield from ("--kube-namespace", namespace)
    if clusters.clone_image:
        yield from ("--clone-image", clusters.clone_image)
