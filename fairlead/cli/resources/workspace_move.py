"""`fairlead workspace move`: another runner for a workspace."""

from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui.field_flags import name_project
from fairlead.cli.ui.flags import ContextFlag, RequiredProjectFlag, flag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import open_session
from fairlead.cli.workspaces.commands import (
    UP_TIMEOUT_SECONDS,
    NameArgument,
    UpTimeoutFlag,
    WaitTaskFlag,
    describe_running,
)
from fairlead.cli.workspaces.running import begin_wait, follow_new_workspace
from fairlead.cli.workspaces.targets import PLURAL, open_target
from fairlead.core.objects import get_path


@dataclass(frozen=True, slots=True)
class MoveOptions:
    name: NameArgument
    project: RequiredProjectFlag
    runner: Annotated[str, flag("--runner", help="Runner to move it to.", metavar="R", complete="runners")]
    discard: Annotated[
        bool, typer.Option("--discard", help="Move it although what is not pushed is lost, or this cannot be known.")
    ] = False
    wait: WaitTaskFlag = True
    timeout: UpTimeoutFlag = UP_TIMEOUT_SECONDS
    context: ContextFlag = None


@options_from(MoveOptions)
def move(options: MoveOptions) -> None:
    """Move a workspace to another runner, which fetches its source again and brings it up.

    What is not pushed does not move: without `--discard`, the workspace stays where it is if there is something like
    that. The runner before removes what it has when the workspace runs on the other one.
    """
    with open_session(options.context) as session:
        target = open_target(session, options.name, options.project)
        wait = begin_wait(options.timeout)
        body = {"spec": {"runner": options.runner, "discard": options.discard}}
        with name_project(target.client, target.project):
            moved = target.client.invoke_action(PLURAL, target.name, "move", body, namespace=target.namespace)
        former = get_path(moved, "status.runner")
        for each in get_path(moved, "status.lost") or ():
            print_note(f"left behind on the runner {former}: {each}")
        if not options.wait:
            message = f"it is coming up on the runner {options.runner}"
            print_note(f"{message}; `fairlead workspace logs {target.flags} -f` follows it")
            return
        follow_new_workspace(target, wait)
        print_note(describe_running(target, wait.elapsed))


def add_move_command(group: typer.Typer) -> None:
    group.command("move")(move)
