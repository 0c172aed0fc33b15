"""`fairlead workspace`: the developer workspaces of projects."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli.access.whoami import identity
from fairlead.cli.resources.instance import (
    INSTANCE_DETAILS,
    ParameterFlag,
    WaitOptions,
    choose_template,
    encode_parameters,
    finish_creation,
    new_instance,
    parse_template_ref,
    template_cell,
)
from fairlead.cli.resources.instance_hold import add_hold_command
from fairlead.cli.resources.workspace_browser import add_browser_commands
from fairlead.cli.resources.workspace_move import add_move_command
from fairlead.cli.resources.workspace_ports import add_port_commands
from fairlead.cli.resources.workspace_snapshots import add_snapshot_commands
from fairlead.cli.resources.workspace_ssh import add_ssh_commands
from fairlead.cli.ui.describe import age_cell, cell, find_condition, owner_cell, print_created
from fairlead.cli.ui.flags import (
    ContextFlag,
    DisplayNameFlag,
    ObjectOutputFlag,
    RequiredProjectFlag,
    flag,
    options_from,
)
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE, print_note
from fairlead.cli.ui.resource_commands import (
    Deletion,
    NewObject,
    Resource,
    add_delete_command,
    add_list_command,
    add_show_command,
    create_object,
)
from fairlead.cli.ui.session import Session, UsageError, open_session
from fairlead.cli.ui.wait import VerboseFlag
from fairlead.cli.workspaces.advice import describe_missing_runner, has_runner
from fairlead.cli.workspaces.commands import (
    UP_TIMEOUT_SECONDS,
    UpTimeoutFlag,
    describe_prebuild,
    describe_running,
    logs,
    open_editor,
    start,
    stop,
    up,
)
from fairlead.cli.workspaces.explanation import explain_workspace
from fairlead.cli.workspaces.running import begin_wait, follow_new_workspace
from fairlead.cli.workspaces.sources import Revision, encode_source
from fairlead.cli.workspaces.targets import PLURAL, open_target
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.workspaces import (
    PREBUILD_ANNOTATION,
    PREBUILD_SCHEDULE_ANNOTATION,
    SOURCE_ANNOTATION,
    UP_ANNOTATION,
    current_reason,
    workspace_status,
)


def _table_row(workspace: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(workspace),
        workspace_status(workspace),
        str(current_reason(workspace)) or "-",
        owner_cell(workspace),
        template_cell(workspace),
        cell(workspace, "spec.runnerRef.runner"),
        age_cell(workspace, now),
    )


WORKSPACES = Resource(
    plural=PLURAL,
    kind="DevPodWorkspaceInstance",
    noun="workspace",
    columns=("NAME", "STATUS", "REASON", "OWNER", "TEMPLATE", "RUNNER", "AGE"),
    row=_table_row,
    empty_message="no workspaces; create one with `fairlead workspace create`",
    in_project=True,
    details=tuple(each for each in INSTANCE_DETAILS if each[0] not in ("namespace", "workspace")),
)

group = create_group("Create, start, stop and delete workspaces, and open them.")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    branch: Annotated[str, flag("--branch", help="Branch or tag of the repository.", metavar="B")] = ""
    commit: Annotated[str, flag("--commit", help="Commit of the repository.", metavar="HASH")] = ""
    subfolder: Annotated[
        str, flag("--subfolder", help="Folder of the repository to work in.", metavar="DIR", default="the whole")
    ] = ""

    def revision(self) -> Revision:
        return Revision(self.branch, self.commit, self.subfolder)


@dataclass(frozen=True, slots=True)
class WorkspaceCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the workspace.")]
    project: RequiredProjectFlag
    source: Annotated[
        str,
        typer.Argument(
            help="URL of a git repository, path of one on this machine, or image:NAME. Without it, it is that of "
            "--preset; without both, the workspace is only created.",
            show_default=False,
        ),
    ] = ""
    revision: SourceOptions = SourceOptions()
    preset: Annotated[
        str,
        flag(
            "--preset",
            help="Preset with the source, template, parameters and environment; other flags take precedence.",
            metavar="P[@VERSION]",
            complete="devpodworkspacepresets",
        ),
    ] = ""
    template: Annotated[
        str,
        flag(
            "--template",
            help="Template of the workspace; the version may contain x as a wildcard, as in 1.x.x.",
            metavar="T[@VERSION]",
            default="that of the preset, else the default of the project",
            complete="devpodworkspacetemplates",
        ),
    ] = ""
    parameter: ParameterFlag = None
    environment: Annotated[
        str,
        flag(
            "--environment",
            help="Environment whose devcontainer.json takes the place of that of the repository.",
            metavar="E[@VERSION]",
            default="that of the preset, else the repository's own",
            complete="devpodenvironmenttemplates",
        ),
    ] = ""
    runner: Annotated[
        str | None,
        flag("--runner", help="Runner to run it on.", metavar="R", default="chosen by the server", complete="runners"),
    ] = None
    display_name: DisplayNameFlag = None
    prebuild: Annotated[
        bool,
        typer.Option(
            "--prebuild", help="Only build the image, at each `up`: workspaces of the repository then start without."
        ),
    ] = False
    schedule: Annotated[
        str, flag("--schedule", help="When to repeat --prebuild, as five fields of cron in UTC.", metavar="CRON")
    ] = ""
    no_up: Annotated[bool, typer.Option("--no-up", help="Only create it; `up` brings it up later.")] = False
    wait: Annotated[
        bool | None,
        flag(
            "--wait/--no-wait",
            help="Wait until it runs, and show the steps with their times.",
            default="wait, if it is brought up",
        ),
    ] = None
    timeout: UpTimeoutFlag = UP_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE

    @property
    def comes_up(self) -> bool:
        return bool(self.source or self.preset) and not self.no_up


@group.command("create")
@options_from(WorkspaceCreateOptions)
def create(options: WorkspaceCreateOptions) -> None:
    """Create a workspace, and bring it up."""
    with open_session(options.context) as session:
        began = begin_wait(options.timeout)
        new = build_workspace(session, options)
        created = create_object(session, WORKSPACES, new)
        if not options.comes_up:
            waiting = WaitOptions(wait=bool(options.wait), timeout=options.timeout, output=options.output)
            finish_creation(session, WORKSPACES, created, new, waiting, find_missing_runner(session, created))
            return
        target = open_target(session, options.name, options.project)
        print_note(new.message)
        if options.wait is False:
            message = f"it is coming up; `fairlead workspace logs {target.flags} -f` follows it"
            print_created(created, options.output, message)
            return
        follow_new_workspace(target, began)
        done = describe_prebuild(target) if options.prebuild else describe_running(target, began.elapsed)
        print_created(target.get(), options.output, done)


def build_workspace(session: Session, options: WorkspaceCreateOptions) -> NewObject:
    annotations = {}
    if options.source:
        annotations[SOURCE_ANNOTATION] = encode_source(options.source, options.revision.revision())
    elif flags := options.revision.revision().flags():
        raise UsageError(f"{flags[0]} is for a repository; name one as SOURCE")
    annotations |= _describe_prebuild_annotations(options)
    if options.comes_up:
        annotations[UP_ANNOTATION] = datetime.now(UTC).isoformat(timespec="milliseconds")
    template = None
    if options.template or not options.preset:
        template = choose_template(
            session, options.project, options.template, "DevPodWorkspaceTemplate", is_required=True
        )
    spec = {
        "owner": _find_owner(session),
        "displayName": options.display_name,
        "parameters": encode_parameters(options.parameter or ()),
        "presetRef": parse_template_ref(options.preset) if options.preset else None,
        "templateRef": template,
        "environmentRef": parse_template_ref(options.environment) if options.environment else None,
        "runnerRef": {"runner": options.runner} if options.runner else None,
    }
    new = new_instance(WORKSPACES, options.name, options.project, spec)
    if annotations:
        new.body["metadata"]["annotations"] = annotations
    return new


def _find_owner(session: Session) -> Object | None:
    """Who creates it, as in the console. The server sets the owner of other instances, but not that of workspaces of
    administrators; without one, a workspace may use no secrets."""
    kind, name = identity(session.client.whoami())
    return {kind: name} if kind in ("user", "team") else None


def _describe_prebuild_annotations(options: WorkspaceCreateOptions) -> dict[str, str]:
    if options.schedule and not options.prebuild:
        raise UsageError("--schedule is for --prebuild; add it")
    named = {PREBUILD_ANNOTATION: "true" if options.prebuild else "", PREBUILD_SCHEDULE_ANNOTATION: options.schedule}
    return {name: value for name, value in named.items() if value}


def find_missing_runner(session: Session, workspace: Object) -> str:
    """Why nothing will run a workspace: there is no runner. Empty if there is one, or the user may not list them."""
    if get_path(workspace, "spec.runnerRef.runner") or has_runner(session.client):
        return ""
    return f"nothing will happen to it: {describe_missing_runner()}"


group.command("up")(up)
group.command("stop")(stop)
group.command("start")(start)
add_list_command(group, WORKSPACES)
add_show_command(
    group, WORKSPACES, help="Show one workspace: its state, why it is so, and what to do.", describe=explain_workspace
)
group.command("logs")(logs)
group.command("open")(open_editor)
add_hold_command(
    group, WORKSPACES, wake_command="workspace up", limits="The longest run that its template allows still applies."
)
add_ssh_commands(group)
add_port_commands(group)
add_browser_commands(group)
add_snapshot_commands(group)
add_move_command(group)


def _describe_wait(workspace: Object) -> str:
    runner = get_path(workspace, "spec.runnerRef.runner")
    task = find_condition(workspace, "TaskSucceeded")
    step = task.get("message") if task.get("reason") == "DeleteRunning" else ""
    return f"waiting for the runner {runner} to delete it" + (f": {step}" if step else "") if runner else ""


add_delete_command(
    group,
    WORKSPACES,
    Deletion(
        "Delete a workspace with its data.",
        question="Delete the workspace {name} with its data?",
        describe_wait=_describe_wait,
    ),
)
