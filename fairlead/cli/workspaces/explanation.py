"""What `fairlead workspace show` prints: the state of a workspace, why it is so, and what to do next."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from fairlead.cli.resources.instance import reference_cell, template_cell
from fairlead.cli.ui.describe import cell, condition_rows, find_condition, owner_cell, text_of
from fairlead.cli.ui.durations import age, coarse_duration
from fairlead.cli.ui.field_flags import replace_fields
from fairlead.cli.ui.session import Session
from fairlead.cli.workspaces.advice import ADVICE, describe_runner_problem, give_advice
from fairlead.cli.workspaces.sources import describe_source
from fairlead.cli.workspaces.targets import FAILED, PLURAL, RUNNING, Task, WorkspaceTarget
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object, annotations_of, get_path, metadata, name_of
from fairlead.core.workspaces import SOURCE_ANNOTATION, workspace_status

DETAIL_TIMEOUT = 5.0
"""Seconds to wait for what the runner says. The rest is shown without it."""
SLEEP_ANNOTATIONS = "sleepmode.service.sh/"
UNAVAILABLE = 503
MAX_DIGITS = 11
"""Of Unix seconds; more is no time."""

T = TypeVar("T")
Pairs = Sequence[tuple[str, str]]


def explain_workspace(session: Session, workspace: Object) -> Pairs:
    client, now = session.client, datetime.now(UTC)
    client.timeout = DETAIL_TIMEOUT
    namespace = str(metadata(workspace).get("namespace") or "")
    prefix = str(client.whoami().get("projectNamespacePrefix") or "")
    target = WorkspaceTarget(client, namespace, name_of(workspace), namespace.removeprefix(prefix))
    runner = text_of(workspace, "spec.runnerRef.runner")
    obstacle = _find_runner_problem(client, runner) if runner else ""
    task = None
    if runner and not obstacle:
        task, obstacle = _find_last_task(target)
    message = _explain_status(workspace)
    pairs = (
        ("name", target.name),
        ("project", target.project),
        ("status", workspace_status(workspace)),
        ("reason", text_of(workspace, "status.reason")),
        ("message", replace_fields(message)),
        *_explain_task(target, task, runner, now),
        *_explain_failure(target, workspace, runner, is_known=task is not None),
        ("runner", runner),
        ("", "" if obstacle in message else obstacle),
        ("ports", _list_ports(target, workspace) if runner and not obstacle else ""),
        *_explain_origin(workspace),
        *_explain_sleep(workspace, now),
        ("age", age(metadata(workspace).get("creationTimestamp"), now)),
        *condition_rows(workspace, message),
    )
    return [(label, "" if value == "-" else value) for label, value in pairs]


def _explain_status(workspace: Object) -> str:
    ready = find_condition(workspace, "Ready")
    is_running = ready.get("status") == "True"
    return str(get_path(workspace, "status.message") or ("" if is_running else ready.get("message")) or "")


def _explain_origin(workspace: Object) -> Iterator[tuple[str, str]]:
    annotations = annotations_of(workspace)
    yield "source", describe_source(str(annotations.get(SOURCE_ANNOTATION) or ""))
    yield "template", template_cell(workspace)
    yield "preset", reference_cell(workspace, "spec.presetRef")
    yield "environment", reference_cell(workspace, "spec.environmentRef")
    yield "parameters", cell(workspace, "spec.parameters").strip()
    yield "owner", owner_cell(workspace)
    yield "display name", cell(workspace, "spec.displayName")
    yield "description", cell(workspace, "spec.description")


def _explain_task(target: WorkspaceTarget, task: Task | None, runner: str, now: datetime) -> Iterator[tuple[str, str]]:
    if task is None:
        return
    if task.status == RUNNING:
        yield "last task", f"{task.type}: {task.step or 'starting'}, for {age(task.created_at, now)}"
        yield "", f"`fairlead workspace logs {target.flags} -f` follows it"
        return
    where = f" in step {task.step}" if task.status == FAILED and task.step else ""
    yield "last task", f"{task.type}: {task.status.lower()}{where}, {age(task.ended_at or task.created_at, now)} ago"
    if task.status == FAILED:
        yield "failure", ": ".join(each for each in (task.reason, task.cause) if each)
        yield "what to do", give_advice(target, task.reason, runner)
        yield "", f"`fairlead workspace logs {target.flags}` prints the log"


def _explain_failure(
    target: WorkspaceTarget, workspace: Object, runner: str, is_known: bool
) -> Iterator[tuple[str, str]]:
    """What to do about the last task that has failed, while the runner does not say more of it."""
    reason = str(find_condition(workspace, "TaskSucceeded").get("reason") or "")
    if not is_known and text_of(workspace, "status.reason") == reason and reason in ADVICE:
        yield "what to do", give_advice(target, reason, runner)


def _explain_sleep(workspace: Object, now: datetime) -> Iterator[tuple[str, str]]:
    """Whether it is in use, asleep, or when it falls asleep. Times of sleep mode are Unix seconds."""
    annotations = annotations_of(workspace)
    state = cell(workspace, "status.activity.state")
    since = get_path(workspace, "status.activity.lastActivityTime")
    reason = cell(workspace, "status.activity.reason")
    yield "activity", f"{state} ({reason}, {age(since, now)} ago)" if since else state
    planned = get_path(workspace, "status.sleepModeConfig.status.scheduledSleep")
    yield "sleeps", _describe_moment(planned or annotations.get(f"{SLEEP_ANNOTATIONS}scheduled-sleep"), now)
    yield "asleep since", _describe_moment(annotations.get(f"{SLEEP_ANNOTATIONS}sleeping-since"), now)
    yield "held until", _describe_moment(annotations.get(f"{SLEEP_ANNOTATIONS}hold-until"), now)


def _describe_moment(seconds: object, now: datetime) -> str:
    """The time, and how far it is from now; empty if there is none."""
    text = str(seconds or "")
    if not text.isascii() or not text.isdecimal() or len(text) > MAX_DIGITS:
        return ""
    moment = datetime.fromtimestamp(int(text), UTC)
    distance = int((moment - now).total_seconds())
    relative = f"in {coarse_duration(distance)}" if distance > 0 else f"{coarse_duration(-distance)} ago"
    return f"{timestamp(moment)} ({relative})"


def _find_runner_problem(client: Client, runner: str) -> str:
    return _without_errors(lambda: describe_runner_problem(client, runner), "")


def _find_last_task(target: WorkspaceTarget) -> tuple[Task | None, str]:
    """The last task; or why the runner does not say it: it may just have stopped."""
    try:
        tasks = target.list_tasks()
    except ApiStatusError as problem:
        return None, problem.message if problem.code == UNAVAILABLE else ""
    except ClientError as problem:
        return None, str(problem)
    return (tasks[-1] if tasks else None), ""


def _list_ports(target: WorkspaceTarget, workspace: Object) -> str:
    if get_path(workspace, "status.lastWorkspaceStatus") != "Running":
        return ""
    response: Object = _without_errors(
        lambda: target.client.get(PLURAL, target.name, "ports", namespace=target.namespace), {}
    )
    listed = (each for each in response.get("ports") or () if isinstance(each, dict))
    return ", ".join(" ".join(str(each[part]) for part in ("port", "process") if each.get(part)) for each in listed)


def _without_errors(read: Callable[[], T], default: T) -> T:
    """What the runner says, or the default: the state is shown also while the runner cannot be reached."""
    with suppress(ClientError):
        return read()
    return default
