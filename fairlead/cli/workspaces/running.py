"""Brings a workspace up or stops it, and shows the steps on stderr until that is done or has failed.

Each step is a line with its time, printed when it has ended. On a terminal, the current step is below them, with a
spinner and the last line of the log.
"""

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from fairlead.cli.ui.describe import find_condition
from fairlead.cli.ui.durations import format_duration
from fairlead.cli.ui.output import escape_control, print_note
from fairlead.cli.ui.wait import INTERRUPTED_EXIT_CODE
from fairlead.cli.workspaces.advice import find_obstacle, give_advice
from fairlead.cli.workspaces.targets import UP, LineSplitter, LogLine, Task, WorkspaceTarget, follow_log
from fairlead.client import ApiStatusError, ClientError, DeadlineExceeded
from fairlead.core.objects import Object, get_path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SHOWN_LINES = 20
"""Lines of the log that are printed after a failure."""
GRACE_SECONDS = 15.0
"""How long to wait although something is in the way: a runner that was just started has not reported yet."""
POLL_SECONDS = 0.2
REPORT_SECONDS = 10.0
NOISE = re.compile(r"^(up|stop|restore) failed: |devContainersSpecCLI\.js:\d+")
"""Lines that are not printed after a failure: the message is printed anyway, and where the CLI has failed inside."""
SCHEDULE = "Schedule"
"""The step before the first one of the runner."""
NAME_WIDTH = 18


@dataclass(slots=True)
class Wait:
    """How long to wait, in seconds, from now on."""

    seconds: int
    began: float

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float:
        left = self.seconds - self.elapsed
        if left <= 0:
            raise DeadlineExceeded("timed out waiting")
        return left


def begin_wait(seconds: int) -> Wait:
    return Wait(seconds, time.monotonic())


@dataclass(slots=True)
class StepDisplay:
    """The current step, if there is one, with the time when it began."""

    print_line: Callable[[str], None]
    step: str = ""
    began: float = 0.0
    message: str = ""

    def begin(self, step: str) -> None:
        """A step begins. One that has not ended is over: the runner was restarted in it."""
        if step == self.step:
            return
        if self.step:
            self.end(self.step, time.monotonic() - self.began)
        self.step, self.began, self.message = step, time.monotonic(), ""

    def end(self, step: str, seconds: float) -> None:
        self.step = ""
        self.print_line(format_step(step, format_seconds(seconds)))

    def fail(self) -> None:
        """The current step has failed."""
        step, self.step = self.step, ""
        if step:
            self.print_line(format_step(step, f"failed after {format_seconds(time.monotonic() - self.began)}"))


@contextmanager
def show_steps() -> Iterator[StepDisplay]:
    if not sys.stderr.isatty():
        yield StepDisplay(print_note)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    display = StepDisplay(lambda line: console.print(Text(escape_control(line)), soft_wrap=True))
    spinner = Spinner("dots")

    def render() -> Spinner | str:
        """Called by a thread of rich, several times a second."""
        spinner.update(text=_describe_current(display, console))
        return spinner if display.step else ""

    with Live(console=console, transient=True, refresh_per_second=8, get_renderable=render):
        yield display


def format_step(step: str, state: str) -> str:
    return f"  {step:{NAME_WIDTH}} {state}"


def format_seconds(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:02.0f}s" if minutes else f"{rest:.1f}s"


def _describe_current(display: StepDisplay, console: "Console") -> "Text":
    from rich.text import Text

    line = Text(format_step(display.step, format_seconds(time.monotonic() - display.began)).strip())
    line.append(f"  {escape_control(display.message)}", "dim")
    line.truncate(max(20, console.width - 3), overflow="ellipsis")
    return line


def follow_new_workspace(target: WorkspaceTarget, wait: Wait) -> None:
    """Shows how a new workspace comes up, which was created with the request for it."""
    with _explain_interrupts(target, UP, wait), show_steps() as display:
        display.begin(SCHEDULE)
        _follow_task(target, _wait_for_task(target, wait), display, wait)


def run_task(target: WorkspaceTarget, type: str, options: Mapping[str, Any], wait: Wait) -> None:
    """Starts a task, or joins the one under way, and shows it up to its end. Raises ClientError if it fails."""
    with _explain_interrupts(target, type, wait), show_steps() as display:
        display.begin(SCHEDULE)
        task_id = start_task(target, type, options, wait)
        _follow_task(target, task_id, display, wait)


def start_task(target: WorkspaceTarget, type: str, options: Mapping[str, Any], wait: Wait) -> str:
    """Starts a task. Waits for a moment if the runner cannot be reached, which may be about to connect."""
    while True:
        try:
            return target.start_task(type, options)
        except ApiStatusError as problem:
            if problem.code != 503 or wait.elapsed > min(GRACE_SECONDS, wait.seconds):
                raise _explain_refusal(target, problem) from None
        time.sleep(POLL_SECONDS)


def _explain_refusal(target: WorkspaceTarget, problem: ApiStatusError) -> ClientError:
    if problem.code != 503:
        return problem
    workspace = target.get()
    runner = get_path(workspace, "spec.runnerRef.runner")
    advice = f"start it on its machine with `fairlead runner start {runner}`" if runner else "try again in a moment"
    return ClientError(f"{problem.message}\n{find_obstacle(target.client, workspace) or advice}")


def _wait_for_task(target: WorkspaceTarget, wait: Wait) -> str:
    """The ID of the first task of a workspace. Raises ClientError if something is in the way.

    The times between two searches for an obstacle double: each is a request for the runner, and one more line of denied
    requests in the audit log if the user may not get it.
    """
    next_search = GRACE_SECONDS
    while True:
        workspace = target.get()
        if find_condition(workspace, "TaskSucceeded") and (task_id := _find_newest_task(target)):
            return task_id
        if wait.elapsed > next_search:
            next_search = wait.elapsed * 2
            if obstacle := find_obstacle(target.client, workspace):
                comes_up = f"{target.name} comes up by itself when that is solved"
                raise ClientError(f"{target.name} does not come up: {obstacle}\n{comes_up}; {_how_to_follow(target)}")
        time.sleep(min(POLL_SECONDS, wait.remaining))


def _find_newest_task(target: WorkspaceTarget) -> str:
    """Empty if the runner cannot be reached at the moment."""
    try:
        tasks = target.list_tasks()
    except ApiStatusError as problem:
        if problem.code != 503:
            raise
        return ""
    return tasks[-1].id if tasks else ""


def _follow_task(target: WorkspaceTarget, task_id: str, display: StepDisplay, wait: Wait) -> None:
    """Shows the steps of a task up to its end. Raises ClientError if it has failed, after the end of its log."""
    lines = deque[str](maxlen=SHOWN_LINES)
    splitter = LineSplitter()
    if display.step == SCHEDULE:
        display.end(SCHEDULE, time.monotonic() - display.began)
    code: int | None = None
    for part in follow_log(target, task_id, 0, _ignore_loss, wait.remaining):
        code = part.exit_code
        for line in splitter.feed(part.data):
            _show_line(line, display, lines)
    for line in splitter.finish():
        _show_line(line, display, lines)
    if code != 0:
        display.fail()
        raise _describe_failure(target, task_id, list(lines))
    _wait_for_report(target, wait)


def _wait_for_report(target: WorkspaceTarget, wait: Wait) -> None:
    """The runner reports the new state right after the end of the task: the next command should see it."""
    deadline = wait.elapsed + REPORT_SECONDS
    while get_path(target.get(), "status.lastWorkspaceStatus") == "Busy" and wait.elapsed < deadline:
        time.sleep(min(POLL_SECONDS, wait.remaining))


def _ignore_loss(reason: str) -> None:
    """The task goes on, and so does its log when the connection is there again."""


def _show_line(line: LogLine, display: StepDisplay, lines: deque[str]) -> None:
    if line.step and line.seconds is None:
        display.begin(line.step)
    elif line.step and line.seconds is not None:
        display.end(line.step, line.seconds)
    elif line.message:
        display.message = line.message
        if not NOISE.search(line.message):
            lines.append(line.message)


def _describe_failure(target: WorkspaceTarget, task_id: str, lines: list[str]) -> ClientError:
    task = next((each for each in target.list_tasks() if each.id == task_id), Task(task_id, "", ""))
    runner = str(get_path(target.get(), "spec.runnerRef.runner") or "")
    if lines:
        print_note("the last lines of the log:")
        for line in lines:
            print_note(f"    {line}")
    where = f" in step {task.step}" if task.step else ""
    what = f"{task.type or 'the task'} of {target.name} has failed{where}"
    cause = ": ".join(each for each in (task.reason, task.cause) if each)
    advice = give_advice(target, task.reason, runner)
    log = f"`fairlead workspace logs {target.flags}` prints the whole log"
    return ClientError(f"{what}: {cause or 'the runner says no more'}\n{advice}\n{log}")


def _how_to_follow(target: WorkspaceTarget) -> str:
    return f"follow it with `fairlead workspace logs {target.flags} -f`"


@contextmanager
def _explain_interrupts(target: WorkspaceTarget, type: str, wait: Wait) -> Iterator[None]:
    """Ctrl-C and the time-out end the wait, not the task."""
    try:
        yield
    except KeyboardInterrupt:
        print_note(f"stopped waiting; {type} of {target.name} goes on; {_how_to_follow(target)}")
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None
    except DeadlineExceeded:
        step = describe_task(target.get())
        raise ClientError(
            f"{type} of {target.name} has not ended after {format_duration(wait.seconds)}"
            + (f": {step}" if step else "")
            + f"; it goes on; {_how_to_follow(target)}"
        ) from None


def describe_task(workspace: Object) -> str:
    """What the last task of a workspace does, or how it ended."""
    condition = find_condition(workspace, "TaskSucceeded")
    return ": ".join(str(each) for each in (condition.get("reason"), condition.get("message")) if each)
