"""What to do after a task has failed, by the reason that the runner reports."""

from fairlead.cli.workspaces.targets import Task, WorkspaceTarget

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
    f"machine of the runner {{runner}} reaches it (`fairlead runner doctor {{runner}}` there); {AGAIN}. To use another "
    "image, change devcontainer.json or the template, or delete the workspace and create it with another source",
    "BuildFailed": "fix the Dockerfile or the features in the workspace (`fairlead workspace ssh {flags}`), "
    f"{RECREATE}; or fix them in the repository, commit, and use --reset instead",
    "StartFailed": f"see the log, fix the image or its settings, {RECREATE}",
    "LifecycleCommandFailed": f"the container is there: fix the command in devcontainer.json inside of it, {RECREATE}",
    "StepTimedOut": f"see the log for what it waited for, {AGAIN}",
    "DiskFull": f"free some space on the machine of the runner {{runner}}: delete workspaces or images, {AGAIN}",
    "WorkspaceDiskFull": "delete files in the workspace if it runs (`fairlead workspace ssh {flags}`), or use less in "
    f"its Dockerfile, {AGAIN}; or create another one from a template with a larger `storage`, up to `--workspace-disk` "
    "of the runner {runner}",
    "EngineUnavailable": "`fairlead runner doctor {runner}` on its machine says what is missing; or use a template "
    "with another provider",
    "RunnerRestarted": f"the runner {{runner}} did not survive this task; see its log, {AGAIN}",
    "Asleep": f"wake it up by removing the annotation sleepmode.service.sh/force, {AGAIN}",
    "Cancelled": "another task took its place, or it was cancelled; `fairlead workspace show {flags}` has its state",
}
OTHER = f"see the log, {AGAIN}"


def give_advice(target: WorkspaceTarget, task: Task, runner: str) -> str:
    """What to do next, as a sentence."""
    return ADVICE.get(task.reason, OTHER).format(flags=target.flags, runner=runner or "NAME")
