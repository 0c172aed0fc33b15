"""`fairlead runner delete`: deletes a runner and its access key, unless it has workspaces.

Without its key, the process of the runner can remove nothing any more. So by default the command fails while there are
workspaces on the runner, and lists them. `--abandon` leaves what the runner has of them on its machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui import prompts
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.durations import DEFAULT_TIMEOUT_SECONDS
from fairlead.cli.ui.flags import ContextFlag, NoWaitFlag, TimeoutFlag, YesFlag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import ABANDON_ANNOTATION, describe_nothing
from fairlead.cli.ui.session import exit_with_error, open_session, project_namespace_prefix
from fairlead.cli.ui.wait import VerboseFlag, object_ref, wait_deleted
from fairlead.client import ApiStatusError, Client
from fairlead.core.objects import get_path, name_of

RUNNERS, WORKSPACES = "runners", "devpodworkspaceinstances"
MAX_LISTED = 20
"""Maximum number of workspaces to list."""


@dataclass(frozen=True, slots=True)
class RunnerDeleteOptions:
    name: Annotated[str, typer.Argument(help="Name of the runner.", autocompletion=complete_names(RUNNERS))]
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="Leave containers, networks and files of its workspaces on its machine."),
    ] = False
    yes: YesFlag = False
    no_wait: NoWaitFlag = False
    timeout: TimeoutFlag = DEFAULT_TIMEOUT_SECONDS
    verbose: VerboseFlag = False
    context: ContextFlag = None


@options_from(RunnerDeleteOptions)
def command(options: RunnerDeleteOptions) -> None:
    """Delete a runner and its access key.

    Fails while there are workspaces on it: delete them first, or leave what it has of them on its machine with
    --abandon.
    """
    with open_session(options.context) as session:
        client, name = session.client, options.name
        runner = client.get(RUNNERS, name)
        workspaces = _list_workspaces(client, name)
        if workspaces and not options.abandon:
            raise _report_not_empty(name, workspaces)
        if workspaces:
            print_note("these workspaces lose their runner, and their containers, networks and files stay on it:")
            _print_workspaces(workspaces)
        if not options.yes:
            prompts.confirm(f"Delete the runner {name} and its access key?")
        if options.abandon:
            client.patch(RUNNERS, name, {"metadata": {"annotations": {ABANDON_ANNOTATION: "true"}}})
        client.delete(RUNNERS, name)
        if not options.no_wait:
            wait_deleted(client, object_ref(client, RUNNERS, runner), describe_nothing, options.timeout)
        print_note(f"the runner {name} is {'being ' if options.no_wait else ''}deleted")
        if workspaces:
            print_note(
                "what it has of these workspaces goes on running there; a new runner of that name, started on the same "
                "machine, goes on with those that still exist and removes the others"
            )


def _list_workspaces(client: Client, runner: str) -> list[str]:
    """Those on the runner that the user may list, with their states. The server knows all, and refuses as well."""
    try:
        found = list(client.list(WORKSPACES, fields=f"spec.runnerRef.runner={runner}"))
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        return []
    prefix = project_namespace_prefix(client) if found else ""
    return [
        f"workspace {name_of(each)} of the project {str(get_path(each, 'metadata.namespace')).removeprefix(prefix)}: "
        f"{get_path(each, 'status.lastWorkspaceStatus') or 'never started'}"
        for each in found
    ]


def _report_not_empty(runner: str, workspaces: Sequence[str]) -> typer.Exit:
    count = "is 1 workspace" if len(workspaces) == 1 else f"are {len(workspaces)} workspaces"
    error = exit_with_error(f"there {count} on the runner {runner}:")
    _print_workspaces(workspaces)
    print_note(
        "delete them first, with `fairlead workspace delete`, so that the runner removes what it has of them; or leave "
        "that on its machine with --abandon"
    )
    return error


def _print_workspaces(workspaces: Sequence[str]) -> None:
    for each in workspaces[:MAX_LISTED]:
        print_note(f"  {each}")
    if len(workspaces) > MAX_LISTED:
        print_note(f"  and {len(workspaces) - MAX_LISTED} more")
