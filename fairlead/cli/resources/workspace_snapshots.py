"""`fairlead workspace snapshots` and `restore`: what replaced containers had outside of volumes and the files."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui.flags import ContextFlag, OutputFlag, RequiredProjectFlag, options_from
from fairlead.cli.ui.output import Output, print_data, print_note, print_table
from fairlead.cli.ui.session import UsageError, open_session
from fairlead.cli.workspaces.commands import UP_TIMEOUT_SECONDS, NameArgument, UpTimeoutFlag
from fairlead.cli.workspaces.running import begin_wait, run_task
from fairlead.cli.workspaces.targets import PLURAL, UP, open_target
from fairlead.core.validators import format_size
from fairlead.core.workspaces import KEEP_CONTAINER, RESTORE


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


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    name: NameArgument
    snapshot: Annotated[str, typer.Argument(help="ID of the snapshot, as `snapshots` lists it.")]
    path: Annotated[str, typer.Argument(help="File or folder to copy back, like /usr/local.")]
    project: RequiredProjectFlag
    timeout: UpTimeoutFlag = UP_TIMEOUT_SECONDS
    context: ContextFlag = None


@options_from(RestoreOptions)
def restore(options: RestoreOptions) -> None:
    """Copy a file or folder of a snapshot back into the running container, over what is there."""
    with open_session(options.context) as session:
        if not options.path.startswith("/"):
            raise UsageError(f"{options.path}: must be an absolute path, like /usr/local")
        target = open_target(session, options.name, options.project)
        wanted = {RESTORE: {"snapshot": options.snapshot, "path": options.path}, KEEP_CONTAINER: True}
        run_task(target, UP, wanted, begin_wait(options.timeout))
        print_note(f"{options.path} of the snapshot {options.snapshot} is in the workspace {options.name} again")


def add_snapshot_commands(group: typer.Typer) -> None:
    group.command("snapshots")(snapshots)
    group.command("restore")(restore)
