"""`fairlead workspace snapshots`, `restore` and `delete-snapshot`: what replaced containers had beside the files."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.field_flags import name_project
from fairlead.cli.ui.flags import ContextFlag, OutputFlag, RequiredProjectFlag, YesFlag, options_from
from fairlead.cli.ui.output import Output, print_data, print_note, print_table
from fairlead.cli.ui.session import UsageError, open_session
from fairlead.cli.workspaces.commands import UP_TIMEOUT_SECONDS, NameArgument, UpTimeoutFlag
from fairlead.cli.workspaces.running import begin_wait, run_task
from fairlead.cli.workspaces.targets import PLURAL, RESTORE, open_target
from fairlead.core.validators import format_size


def snapshots(
    name: NameArgument, project: RequiredProjectFlag, context: ContextFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """List the snapshots of a workspace, which `up --snapshot` takes."""
    with open_session(context) as session:
        target = open_target(session, name, project)
        response = target.client.get(PLURAL, name, "snapshots", namespace=target.namespace)
    if output is not Output.TABLE:
        print_data(response, output)
        return
    found = [each for each in response.get("snapshots") or () if isinstance(each, dict)]
    rows = [[str(each.get("id") or ""), str(each.get("createdAt") or ""), format_size(each["bytes"])] for each in found]
    print_table(
        ("ID", "CREATED", "SIZE"), rows, "no snapshots; `fairlead workspace up --recreate --snapshot` takes one"
    )


SnapshotArgument = Annotated[str, typer.Argument(help="ID of the snapshot, as `snapshots` lists it.")]


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    name: NameArgument
    snapshot: SnapshotArgument
    path: Annotated[str, typer.Argument(help="File or folder to copy back, like /usr/local.")]
    project: RequiredProjectFlag
    timeout: UpTimeoutFlag = UP_TIMEOUT_SECONDS
    context: ContextFlag = None


@options_from(RestoreOptions)
def restore(options: RestoreOptions) -> None:
    """Copy a file or folder of a snapshot back into the running container, over what is there.

    A workspace that does not run stays as it is.
    """
    with open_session(options.context) as session:
        if not options.path.startswith("/"):
            raise UsageError(f"{options.path}: must be an absolute path, like /usr/local")
        target = open_target(session, options.name, options.project)
        wanted = {"snapshot": options.snapshot, "path": options.path}
        run_task(target, RESTORE, wanted, begin_wait(options.timeout))
        print_note(f"{options.path} of the snapshot {options.snapshot} is in the workspace {options.name} again")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    name: NameArgument
    snapshot: SnapshotArgument
    project: RequiredProjectFlag
    yes: YesFlag = False
    context: ContextFlag = None


@options_from(DeleteOptions)
def delete_snapshot(options: DeleteOptions) -> None:
    """Delete a snapshot of a workspace for ever."""
    with open_session(options.context) as session:
        if not options.yes:
            prompts.confirm(f"Delete the snapshot {options.snapshot} of {options.name}?")
        target = open_target(session, options.name, options.project)
        body = {"spec": {"snapshot": options.snapshot}}
        with name_project(target.client, options.project):
            target.client.invoke_action(PLURAL, options.name, "deletesnapshot", body, namespace=target.namespace)
    print_note(f"the snapshot {options.snapshot} of the workspace {options.name} is deleted")


def add_snapshot_commands(group: typer.Typer) -> None:
    group.command("snapshots")(snapshots)
    group.command("restore")(restore)
    group.command("delete-snapshot")(delete_snapshot)
