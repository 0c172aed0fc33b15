"""`fairlead workspace up`, `start`, `stop`, `logs` and `open`."""

import os
import sys
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS, parse_timeout
from fairlead.cli.ui.flags import ContextFlag, RequiredProjectFlag, TimeoutFlag, YesFlag, flag, options_from
from fairlead.cli.ui.output import escape_control, print_note
from fairlead.cli.ui.session import open_session
from fairlead.cli.workspaces.running import begin_wait, run_task, start_task
from fairlead.cli.workspaces.targets import (
    PLURAL,
    STOP,
    UP,
    LineSplitter,
    LogLine,
    LogPart,
    WorkspaceTarget,
    follow_log,
    open_target,
)
from fairlead.client import ClientError
from fairlead.core.objects import get_path
from fairlead.core.workspaces import KEEP_CONTAINER, SNAPSHOT, is_prebuild


class Editor(StrEnum):
    VSCODE = "vscode"
    VSCODE_INSIDERS = "vscode-insiders"
    CURSOR = "cursor"
    WINDSURF = "windsurf"
    JETBRAINS = "jetbrains"
    SSH = "ssh"


def build_address(editor: Editor, host: str, folder: str, user: str) -> str:
    """The URL for an editor, or the command line for a terminal. `host` is the one in the SSH configuration."""
    if editor is Editor.SSH:
        return f"ssh {host}"
    if editor is Editor.JETBRAINS:
        fields = {"type": "ssh", "host": host, "port": "22", "user": user, "projectPath": folder, "deploy": "true"}
        return f"jetbrains-gateway://connect#{urlencode({name: each for name, each in fields.items() if each})}"
    return f"{editor.value}://vscode-remote/ssh-remote+{host}{quote(folder)}"


def ssh_host(name: str, project: str) -> str:
    """The host of a workspace in the SSH configuration."""
    return f"{name}.{project}.fairlead"


UP_TIMEOUT_SECONDS = 1800
NameArgument = Annotated[
    str, typer.Argument(help="Name of the workspace.", autocompletion=complete_names(PLURAL, project="project"))
]
WaitTaskFlag = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is done, and show the steps with their times.")
]
UpTimeoutFlag = Annotated[
    int,
    flag("--timeout", help="How long to wait, like 90s or 10m.", metavar="TIME", parser=parse_timeout, default="30m"),
]


@dataclass(frozen=True, slots=True)
class StartOptions:
    name: NameArgument
    project: RequiredProjectFlag
    wait: WaitTaskFlag = True
    timeout: UpTimeoutFlag = UP_TIMEOUT_SECONDS
    context: ContextFlag = None


SnapshotFlag = Annotated[
    bool,
    typer.Option("--snapshot", help="If the container is replaced, keep what it has outside of volumes and the files."),
]


@dataclass(frozen=True, slots=True)
class RestartOptions:
    start: StartOptions
    update: Annotated[
        bool, typer.Option("--update", help="Apply a changed template, in a new container, as `up` does.")
    ] = False
    snapshot: SnapshotFlag = False


@dataclass(frozen=True, slots=True)
class UpOptions:
    start: StartOptions
    recreate: Annotated[bool, typer.Option("--recreate", help="Replace the container, and keep the files.")] = False
    reset: Annotated[
        bool, typer.Option("--reset", help="Replace the container and the files: fetch the source again.")
    ] = False
    snapshot: SnapshotFlag = False
    yes: YesFlag = False


@dataclass(frozen=True, slots=True)
class StopOptions:
    name: NameArgument
    project: RequiredProjectFlag
    wait: WaitTaskFlag = True
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    context: ContextFlag = None


@options_from(UpOptions)
def up(options: UpOptions) -> None:
    """Bring a workspace up: fetch its source, build and start its container.

    While that is under way, another `up` joins it. A workspace that runs already stays as it is, unless its template
    has changed: then a new container is created from it. With `--snapshot`, what the former one had outside of volumes
    and the files can be copied back with `restore`.
    """
    flags = {"recreate": options.recreate, "reset": options.reset, SNAPSHOT: options.snapshot}
    question = f"Replace all files of {options.start.name}? What is not pushed to its repository is lost."
    is_confirmed = options.yes or not options.reset
    _bring_up(options.start, {name: value for name, value in flags.items() if value}, "" if is_confirmed else question)


@options_from(RestartOptions)
def start(options: RestartOptions) -> None:
    """Start a workspace that is stopped, with the container that is there.

    If its template has changed, `--update` or `up` apply it.
    """
    if options.snapshot and not options.update:
        raise typer.BadParameter("is for --update, which replaces the container; add it", param_hint="--snapshot")
    flags = {SNAPSHOT: options.snapshot} if options.update else {KEEP_CONTAINER: True}
    _bring_up(options.start, {name: value for name, value in flags.items() if value})


def _bring_up(options: StartOptions, flags: dict[str, bool], question: str = "") -> None:
    with open_session(options.context) as session:
        if question:
            prompts.confirm(question)
        target = open_target(session, options.name, options.project)
        wait = begin_wait(options.timeout)
        if not options.wait:
            start_task(target, UP, flags, wait)
            print_note(f"{target.name} is coming up; `fairlead workspace logs {target.flags} -f` follows it")
            return
        run_task(target, UP, flags, wait)
        done = describe_prebuild(target) if is_prebuild(target.get()) else describe_running(target, wait.elapsed)
        print_note(done)


def describe_running(target: WorkspaceTarget, seconds: float) -> str:
    return (
        f"the workspace {target.name} is running, after {seconds:.1f}s; `fairlead workspace ssh {target.flags}` opens "
        f"a shell in it, `fairlead workspace open {target.flags}` an editor"
    )


def describe_prebuild(target: WorkspaceTarget) -> str:
    return f"the prebuild {target.name} has ended; `fairlead workspace logs {target.flags}` says what is kept"


@options_from(StopOptions)
def stop(options: StopOptions) -> None:
    """Stop a workspace. Its files are kept, and it stays stopped until the next `up` or `start`."""
    with open_session(options.context) as session:
        target = open_target(session, options.name, options.project)
        wait = begin_wait(options.timeout)
        if not options.wait:
            start_task(target, STOP, {}, wait)
            print_note(f"{target.name} is being stopped")
            return
        run_task(target, STOP, {}, wait)
        print_note(f"the workspace {target.name} is stopped; `fairlead workspace start {target.flags}` starts it again")


@dataclass(frozen=True, slots=True)
class LogsOptions:
    name: NameArgument
    project: RequiredProjectFlag
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the task ends.")] = False
    tail: Annotated[
        int | None, flag("--tail", help="Print only the last N lines.", metavar="N", min=0, default="all")
    ] = None
    task: Annotated[str, flag("--task", help="ID of the task.", metavar="ID", default="the newest task")] = ""
    service: Annotated[
        str, flag("--service", help="Print what this service of the Compose files has printed.", metavar="NAME")
    ] = ""
    context: ContextFlag = None


@options_from(LogsOptions)
def logs(options: LogsOptions) -> None:
    """Print the log of the last task of a workspace, such as `up`, or of a service.

    With -f, continues where it was after a lost connection.
    """
    if options.service and (options.task or options.follow):
        raise typer.BadParameter("cannot be used together with --task or --follow", param_hint="--service")
    with open_session(options.context) as session:
        target = open_target(session, options.name, options.project)
        if options.service:
            _print_service_log(target, options.service, options.tail)
            return
        task_id = options.task or _find_newest_task(target)
        splitter, offset = LineSplitter(), 0
        lines = deque[LogLine](maxlen=options.tail)
        for part in target.read_log(task_id):
            offset = part.offset
            lines.extend(splitter.feed(part.data))
            if options.tail is None:
                _print_lines(lines)
        _print_lines(lines)
        try:
            if options.follow:
                for part in follow_log(target, task_id, offset, _note_loss):
                    _print_part(part, splitter)
        except KeyboardInterrupt:
            return
        lines.extend(splitter.finish())
        _print_lines(lines)


def _print_service_log(target: WorkspaceTarget, service: str, tail: int | None) -> None:
    """As it was printed: a line that is JSON is no message of the runner."""
    for line in deque(target.read_service_log(service).decode(errors="replace").splitlines(), maxlen=tail):
        print(escape_control(line.expandtabs()))


def _find_newest_task(target: WorkspaceTarget) -> str:
    tasks = target.list_tasks()
    if not tasks:
        raise ClientError(f"{target.name} has had no task; `fairlead workspace up {target.flags}` brings it up")
    return tasks[-1].id


def _print_part(part: LogPart, splitter: LineSplitter) -> None:
    _print_lines(deque(splitter.feed(part.data)))


def _print_lines(lines: deque[LogLine]) -> None:
    while lines:
        print(escape_control(lines.popleft().message.expandtabs()))


def _note_loss(reason: str) -> None:
    print_note(f"connection lost ({reason}); trying again")


@dataclass(frozen=True, slots=True)
class OpenOptions:
    name: NameArgument
    project: RequiredProjectFlag
    editor: Annotated[Editor, typer.Option("--editor", help="Editor to open it in.")] = Editor.VSCODE
    print_only: Annotated[bool, typer.Option("--print", help="Print the address, and open nothing.")] = False
    context: ContextFlag = None


@options_from(OpenOptions)
def open_editor(options: OpenOptions) -> None:
    """Open a running workspace in an editor, or print the address that does.

    Editors connect over SSH: run `fairlead workspace ssh-config` once before.
    """
    with open_session(options.context) as session:
        target = open_target(session, options.name, options.project)
        state = get_path(target.get(), "status.lastWorkspaceStatus") or "not up yet"
        if state != "Running":
            start = f"start it with `fairlead workspace up {target.flags}`"
            raise ClientError(f"{target.name} is not running ({state}); {start}")
        container = target.get_report().get("container") or {}
        folder = str(container.get("folder") or f"/workspaces/{target.name}")
        host = ssh_host(target.name, target.project)
        address = build_address(options.editor, host, folder, str(container.get("user") or ""))
        print(address)
        if options.editor is Editor.SSH or options.print_only:
            return
        if not has_desktop():
            print_note("this machine has no desktop; open the address on the machine that has the editor")
        elif typer.launch(address):
            raise ClientError(f"no program on this machine opens {options.editor}; install the editor, or use --editor")


def has_desktop() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
