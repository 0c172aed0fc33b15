"""What the server, runners and the command line know alike about workspaces.

- The annotation with the source of a workspace.
- What a workspace does, in one word, with a reason: for the tables of kubectl and of the command line. The controller
  of workspaces decides it, as the reason of the condition `Ready`; this only reads that.
- Whether a runner responds, in one word, for the same tables.
- Which engine of a runner a provider means.
- Which options of a workspace template's provider give power or choose a place, and who may set them. The server and
  the runner both enforce it. Options that are not listed here belong to engines of other packages, so they count as
  powerful.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from fairlead.core.objects import Object, annotations_of, get_path, metadata

SOURCE_ANNOTATION = "service.sh/workspace-source"
"""`git:URL`, with `@BRANCH`, `@sha256:COMMIT` and `@subpath:FOLDER` after it; `local:FOLDER`; `image:NAME`."""

PREBUILD_ANNOTATION = "service.sh/prebuild"
"""With the value `true`, each `up` of the workspace builds the image of its repository, for others to use, and ends."""
PREBUILD_SCHEDULE_ANNOTATION = "service.sh/prebuild-schedule"
"""When a prebuild is repeated, as five fields of cron in UTC."""
UP_ANNOTATION = "service.sh/workspace-up"
"""A new value, such as the time, requests an `up`: for clients that have no connection to the runner."""

MOVED_FROM_ANNOTATION = "service.sh/moved-from"
"""The runners that a workspace was moved away from, and that still have something of it, as a list with commas."""
MOVE_LOSSES = "move-losses"
"""The action of a runner that says what of a workspace only it has."""
RETAIN, DISCARD = "retain", "discard"
"""Actions of a runner for what it has of a workspace that was moved away: it goes on to have it, or removes it."""

SILENT = "Silent"
"""Reason of the condition `Ready` of a runner that has not renewed its Lease in time."""
RUNNER_SILENT = "RunnerSilent"
"""Reason of the condition `Ready` while the runner is silent."""
RUNNER_NOT_STARTED = "RunnerNotStarted"
RUNNER_FAILED = "RunnerFailed"
"""Reasons while a workspace waits for a runner that was never started, or that cannot run workspaces."""
PHASES_WITHOUT_STATE = ("Pending", "Sleeping", "Failed")

PROVIDERS: Mapping[str, str] = {"docker": "devcontainer", "podman": "devcontainer"}
"""Other names of engines in templates."""

RUNNER_SELECTOR = "runnerSelector"
"""The option with the labels of the runners that a workspace is scheduled to, as `name=value,name=value`."""

WEB_IDE = "webIDE"
"""The option that names an editor for the browser."""

KEEP_CONTAINER = "keepContainer"
"""The option of an `up` that starts the container that is there, also if the template has changed since."""

SNAPSHOT = "snapshot"
"""The option of an `up` that keeps what a container has outside of volumes when another one takes its place."""

ALLOW = "allow"
"""The option that lists the permissions of repositories."""
SIZE_OPTIONS = frozenset({"memory", "cpus", "processes", "storage", "ephemeralStorage"})
"""Limits. From a template that is not trusted, the runner accepts them up to its own defaults."""
OPTIONS_WITHOUT_TRUST = SIZE_OPTIONS | {
    "image",
    "dotfiles",
    "home",
    "user",
    "userNamespace",
    "secretVariables",
    WEB_IDE,
    RUNNER_SELECTOR,
}
"""What every template may set, trusted or not: it concerns the inside of the workspace, or makes it stricter."""
PLACEMENT_OPTIONS = frozenset(
    {
        *(ALLOW, "cluster", "namespace", "cloneImage", "imagePullPolicy", "imagePullSecret", "storageClass"),
        *("accessMode", "runtimeClass", "nodeSelector", "networkPolicy"),
    }
)
"""Permissions and placement. Only the author of a trusted template chooses them."""


class WorkspaceState(StrEnum):
    """What a workspace does that a runner has accepted: the reasons of its condition `Ready`."""

    RUNNING = "Running"
    STARTING = "Starting"
    STOPPING = "Stopping"
    BUSY = "Busy"
    STOPPED = "Stopped"
    NOT_STARTED = "NotStarted"
    DEGRADED = "Degraded"
    NOT_REPORTED = "NotReported"


def list_former_runners(workspace: Object) -> list[str]:
    found = str((metadata(workspace).get("annotations") or {}).get(MOVED_FROM_ANNOTATION) or "")
    return [each for each in found.split(",") if each]


def is_prebuild(workspace: Object) -> bool:
    return bool(annotations_of(workspace).get(PREBUILD_ANNOTATION) == "true")


def engine_for_provider(provider: str) -> str:
    """The name of the engine that a provider of a template means; empty if the template names none."""
    return PROVIDERS.get(provider, provider)


def current_reason(workspace: Object) -> Any:
    """Why the workspace is not ready if its status does not say so, which task is under way or has failed, or that a
    changed template waits for an `up`; empty if there is nothing of these."""
    conditions = {each.get("type"): each for each in get_path(workspace, "status.conditions") or ()}
    ready = conditions.get("Ready") or {}
    task = conditions.get("TaskSucceeded") or {}
    if ready and ready.get("status") != "True" and ready.get("reason") not in set(WorkspaceState):
        return ready.get("reason") or ""
    if task and task.get("status") != "True":
        return task.get("reason") or ""
    applied = conditions.get("TemplateApplied") or {}
    return applied.get("reason") or "" if applied.get("status") == "False" else ""


def workspace_status(workspace: Object) -> str:
    """What the workspace does, in one word, from its condition `Ready`. The phase does not say it: its `Ready` means
    that a runner has accepted the workspace."""
    reason = str(_ready_condition(workspace).get("reason") or "")
    if "deletionTimestamp" in metadata(workspace):
        return "Terminating"
    if reason in (RUNNER_SILENT, WorkspaceState.NOT_REPORTED):
        return "Unknown"
    if reason in set(WorkspaceState):
        return reason
    phase = str(get_path(workspace, "status.phase") or "")
    return phase if phase in PHASES_WITHOUT_STATE else "Pending"


def find_options_needing_trust(options: Any) -> list[str]:
    """The options that count only in a trusted template. Empty values are no values; values of the wrong type, which
    the schema of the API rejects, count as values."""
    found = _read_options(options)
    return sorted(name for name, value in found if name not in OPTIONS_WITHOUT_TRUST or is_from_secret(value))


def find_options_from_secrets(options: Any) -> list[str]:
    """The options that come from a secret and must not, in no template: members of a project write its secrets."""
    decided = PLACEMENT_OPTIONS | SIZE_OPTIONS
    return sorted(name for name, value in _read_options(options) if name in decided and is_from_secret(value))


def is_from_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value.get("valueFrom"))


def _read_options(options: Any) -> Iterator[tuple[str, Any]]:
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if isinstance(value, Mapping) and not value.get("value") and not is_from_secret(value):
            continue
        if value not in (None, ""):
            yield str(name), value


def silence_message(runner: Object) -> str:
    """Since when the runner is silent; empty if it is not. The controller of runners maintains the condition."""
    ready = _ready_condition(runner)
    is_silent = (ready.get("status"), ready.get("reason")) == ("Unknown", SILENT)
    return str(ready.get("message") or SILENT) if is_silent else ""


def runner_status(runner: Object) -> str:
    """Whether it responds: `Silent`, `Ready`, `NotReady`, or empty until the first report. The phase does not say it:
    that is what the runner itself has reported last."""
    if silence_message(runner):
        return SILENT
    return {"True": "Ready", "False": "NotReady"}.get(str(_ready_condition(runner).get("status")), "")


def _ready_condition(obj: Object) -> Mapping[str, Any]:
    conditions = get_path(obj, "status.conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {})
