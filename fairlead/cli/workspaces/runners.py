"""Why a workspace does not come up before its first task: no runner, one that does not respond, or no template."""

from fairlead.cli.ui.describe import find_condition
from fairlead.cli.ui.field_flags import replace_fields
from fairlead.client import ApiStatusError, Client
from fairlead.core.objects import Object, get_path

RUNNERS = "runners"
SILENT = "Silent"


def find_obstacle(client: Client, workspace: Object) -> str:
    """What keeps a workspace from coming up, and what to do; empty if nothing is known."""
    for type in ("Scheduled", "TemplateResolved"):
        condition = find_condition(workspace, type)
        if condition.get("status") == "False":
            return replace_fields(str(condition.get("message") or condition.get("reason")))
    runner = get_path(workspace, "spec.runnerRef.runner")
    if not runner:
        return "" if has_runner(client) else describe_missing_runner()
    return describe_runner_problem(client, str(runner))


def describe_missing_runner() -> str:
    return (
        "there is no runner; create one with `fairlead runner create local`, and start it on the machine that is to "
        "run workspaces with `fairlead runner start local`"
    )


def has_runner(client: Client) -> bool:
    """Whether there is a runner, as far as the user may know."""
    try:
        return any(client.list(RUNNERS))
    except ApiStatusError as problem:
        if problem.code != 403:
            raise
        return True


def describe_runner_problem(client: Client, name: str) -> str:
    """Why a runner does nothing, and what to do; empty if it works, or the user may not get it."""
    try:
        runner = client.get(RUNNERS, name)
    except ApiStatusError as problem:
        if problem.code == 404:
            return f"the runner {name} does not exist any more; create it again with `fairlead runner create {name}`"
        if problem.code == 403:
            return ""
        raise
    ready = find_condition(runner, "Ready")
    if ready.get("reason") == SILENT:
        start = f"start it on its machine with `fairlead runner start {name}`, or restore its connection"
        return f"the runner {name} does not respond: {ready.get('message') or SILENT}; {start}"
    if get_path(runner, "status.phase") == "Failed":
        doctor = f"`fairlead runner doctor {name}` on its machine shows all of its problems"
        return f"the runner {name} has failed: {get_path(runner, 'status.message') or 'for no known reason'}; {doctor}"
    if not get_path(runner, "status.phase"):
        return f"the runner {name} was never started; start it on its machine with `fairlead runner start {name}`"
    return ""
