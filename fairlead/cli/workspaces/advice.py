"""What to do when a workspace does not come up.

Before its first task there may be no runner, one that does not respond, or no template. After a task has failed, the
runner reports the reason.
"""

from fairlead.cli.ui.describe import find_condition
from fairlead.cli.ui.field_flags import replace_fields
from fairlead.cli.workspaces.targets import WorkspaceTarget
from fairlead.client import ApiStatusError, Client
from fairlead.core.objects import Object, get_path
from fairlead.core.workspaces import RUNNER_FAILED, RUNNER_NOT_STARTED, RUNNER_SILENT, silence_message

AGAIN = "then run `fairlead workspace up {flags}`"
RECREATE = "then run `fairlead workspace up {flags} --recreate`"
ADVICE = {
    "SourceRefused": "the runner decides which sources it accepts: repositories by https or ssh, and folders of its "
    "machine below those that it was started with (`fairlead runner start {runner} --allow-folder DIR`). Delete the "
    f"workspace and create it with another source, or change the runner, {AGAIN}",
    "CloneFailed": f"check the URL, the branch and the commit, and that the runner can read the repository; {AGAIN}",
    "ConfigurationInvalid": "add or correct .devcontainer/devcontainer.json in the repository and commit it, or in the "
    f"workspace if it has run before, {AGAIN}; or use a template with an `image` for repositories without one",
    "PolicyViolation": f"remove that from devcontainer.json, from the image or from the template, {AGAIN}; or use a "
    "template of an administrator that permits it with the option `allow` of its provider, on a runner that honours it "
    "(`fairlead runner start {runner} --allow NAME`)",
    "PlatformMismatch": "use an image for the kind of machine that the runner has, or another runner (--runner)",
    "ImagePullFailed": "check the name of the image, best with its registry as in REGISTRY/debian:12, and that the "
    "machine of the runner {runner} reaches it (`fairlead runner doctor {runner}` there), by another name than "
    f"localhost: images are pulled in a network of their own; {AGAIN}. To use another image, change devcontainer.json "
    "or the template, or delete the workspace and create it with another source",
    "BuildFailed": "fix the Dockerfile or the features in the workspace (`fairlead workspace ssh {flags}`), "
    f"{RECREATE}; or fix them in the repository, commit, and use --reset instead",
    "StartFailed": f"see the log, fix the image or its settings, {RECREATE}",
    "LifecycleCommandFailed": f"the container is there: fix the command in devcontainer.json inside of it, {RECREATE}",
    "StepTimedOut": f"see the log for what it waited for, {AGAIN}",
    "DiskFull": f"free some space on the machine of the runner {{runner}}: delete workspaces or images, {AGAIN}",
    "WorkspaceDiskFull": "delete files in the workspace if it runs (`fairlead workspace ssh {flags}`), or use less in "
    f"its Dockerfile, {AGAIN}; or create another one from a template with a larger `storage`, up to `--workspace-disk` "
    "of the runner {runner}",
    "SnapshotFailed": "no container was replaced: `fairlead workspace start {flags}` goes on with it; "
    "`fairlead workspace snapshots {flags}` lists what can be restored",
    "EngineUnavailable": "`fairlead runner doctor {runner}` on its machine says what is missing; or use a template "
    "with another provider",
    "RunnerRestarted": f"the runner {{runner}} did not survive this task; see its log, {AGAIN}",
    "Asleep": f"wake it up by removing the annotation sleepmode.service.sh/force, {AGAIN}",
    "Cancelled": "another task took its place, or it was cancelled; `fairlead workspace show {flags}` has its state",
}
OTHER = f"see the log, {AGAIN}"


def give_advice(target: WorkspaceTarget, reason: str, runner: str) -> str:
    """What to do next, as a sentence, when a task has failed for this reason."""
    return ADVICE.get(reason, OTHER).format(flags=target.flags, runner=runner or "NAME")


RUNNERS = "runners"


def find_obstacle(client: Client, workspace: Object) -> str:
    """What keeps a workspace from coming up, and what to do; empty if nothing is known."""
    for type in ("Scheduled", "TemplateResolved"):
        condition = find_condition(workspace, type)
        if condition.get("status") == "False":
            return replace_fields(str(condition.get("message") or condition.get("reason")))
    runner = get_path(workspace, "spec.runnerRef.runner")
    if not runner:
        return "" if has_runner(client) else describe_missing_runner()
    return describe_runner_problem(client, str(runner)) or _describe_wait(workspace)


def _describe_wait(workspace: Object) -> str:
    """What its status says of its runner: members of projects may not get runners."""
    ready = find_condition(workspace, "Ready")
    is_obstacle = ready.get("reason") in (RUNNER_NOT_STARTED, RUNNER_FAILED, RUNNER_SILENT)
    return replace_fields(str(ready.get("message") or ready.get("reason"))) if is_obstacle else ""


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
    if silence := silence_message(runner):
        start = f"start it on its machine with `fairlead runner start {name}`, or restore its connection"
        return f"the runner {name} does not respond: {silence}; {start}"
    if get_path(runner, "status.phase") == "Failed":
        doctor = f"`fairlead runner doctor {name}` on its machine shows all of its problems"
        return f"the runner {name} has failed: {get_path(runner, 'status.message') or 'for no known reason'}; {doctor}"
    if not get_path(runner, "status.phase"):
        return f'runner "{name}" was never started; start it on its machine with `fairlead runner start {name}`'
    return ""
