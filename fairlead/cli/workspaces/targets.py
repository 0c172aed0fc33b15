"""One workspace of a project, its tasks and their logs, as the server passes them on from the runner.

A line of a log is a JSON object with a message; those of other runners may be plain lines. `step NAME` says that a step
begins, and `step NAME took 1.5 s` that it has ended.
"""

import math
import re
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.cli.ui.field_flags import name_project
from fairlead.cli.ui.session import Session, project_namespace
from fairlead.client import ApiStatusError, CertificateError, Client, ClientError, DeadlineExceeded, Unreachable
from fairlead.core import json
from fairlead.core.backoff import Backoff, BackoffPolicy
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, get_path

PLURAL = "devpodworkspaceinstances"
UP, STOP, RESTORE = "up", "stop", "restore"
RUNNING, FAILED = "Running", "Failed"
"""Statuses of tasks."""
TEMPORARY_CODES = (429, 502, 503, 504)
"""The runner or the server is not reachable at the moment."""
SILENCE_SECONDS = 60.0
"""A log without a new line for so long is requested again: the connection may be dead."""
RETRY = BackoffPolicy(first_seconds=0.5, max_seconds=10.0)


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a workspace. `step`, `reason` and `message` say where and why it failed."""

    id: str
    type: str
    status: str
    created_at: str = ""
    ended_at: str = ""
    step: str = ""
    reason: str = ""
    message: str = ""

    @property
    def cause(self) -> str:
        """The message without its step."""
        return self.message.removeprefix(f"step {self.step}: ")


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bytes of a log, and where the next part begins; or the exit code of the task at its end."""

    data: bytes = b""
    offset: int = 0
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceTarget:
    client: Client
    namespace: str
    name: str
    project: str

    @property
    def flags(self) -> str:
        """The arguments of other commands for this workspace."""
        return f"{self.name} --project {self.project}"

    def get(self) -> Object:
        with name_project(self.client, self.project):
            return self.client.get(PLURAL, self.name, namespace=self.namespace)

    def start_task(self, type: str, options: Mapping[str, Any] | None = None) -> str:
        """Starts `up` or `stop`, or joins the one under way, or a restore. Returns the ID of the task."""
        spec: Object = dict(options or {})
        if spec and type != RESTORE:  # clients of all versions have options as text
            spec = {"options": json.encode(spec).decode()}
        with name_project(self.client, self.project):
            response = self.client.invoke_action(PLURAL, self.name, type, {"spec": spec}, namespace=self.namespace)
        task_id = get_path(response, "status.taskId")
        if not isinstance(task_id, str) or not task_id:
            raise ClientError(f"the server did not return the task of {type}; is it a Fairlead server?")
        return task_id

    def list_tasks(self) -> list[Task]:
        """The last tasks, oldest first, in whatever order the runner lists them."""
        with name_project(self.client, self.project):
            response = self.client.get(PLURAL, self.name, "tasks", namespace=self.namespace)
        tasks = [_parse_task(each) for each in response.get("tasks") or ()]
        return sorted(tasks, key=lambda task: (task.created_at, task.status == RUNNING, task.ended_at))

    def get_report(self) -> Object:
        """What the runner says about the workspace: its engine, container and problems."""
        response = self.client.get(PLURAL, self.name, "troubleshoot", namespace=self.namespace)
        report = response.get("report")
        return report if isinstance(report, dict) else {}

    def read_log(
        self, task_id: str, offset: int = 0, follow: bool = False, timeout: float = SILENCE_SECONDS
    ) -> Iterator[LogPart]:
        """One request for the log of a task. With `follow`, it lasts until the task ends, or the connection is lost."""
        query = {"taskID": task_id, "offset": str(offset), **({"follow": "true"} if follow else {})}
        return self._stream_log(query, offset, timeout)

    def read_service_log(self, service: str) -> bytes:
        """The last that a service of the Compose files has printed."""
        with name_project(self.client, self.project):
            return b"".join(part.data for part in self._stream_log({"service": service}))

    def _stream_log(
        self, query: Mapping[str, str], offset: int = 0, timeout: float = SILENCE_SECONDS
    ) -> Iterator[LogPart]:
        path = self.client.path(PLURAL, self.name, "log", namespace=self.namespace)
        for entry in self.client.stream_objects(path, query, timeout=timeout):
            if isinstance(code := entry.get("exitCode"), int):
                yield LogPart(offset=offset, exit_code=code)
            elif isinstance(encoded := entry.get("bytes"), str):
                data = b64decode(encoded)
                offset = entry["offset"] if isinstance(entry.get("offset"), int) else offset + len(data)
                yield LogPart(data, offset)


def open_target(session: Session, name: str, project: str) -> WorkspaceTarget:
    return WorkspaceTarget(session.client, project_namespace(session, project), name, project)


def _parse_task(task: Object) -> Task:
    try:
        result = json.decode(b64decode(str(task.get("result") or ""))) if task.get("result") else {}
    except (Malformed, Base64Error):
        result = {}
    result = result if isinstance(result, dict) else {}
    known = {name: str(task.get(name) or "") for name in ("id", "type", "status")}
    details = {name: str(result.get(name) or "") for name in ("step", "reason", "message")}
    times = {"created_at": str(task.get("createdAt") or ""), "ended_at": str(result.get("endedAt") or "")}
    return Task(**known, **details, **times)


def follow_log(
    target: WorkspaceTarget, task_id: str, offset: int, on_lost: Callable[[str], None], seconds: float = math.inf
) -> Iterator[LogPart]:
    """The log of a task from an offset to its end, without a gap although the connection may be lost meanwhile.

    `on_lost` is called with the reason when it is, once for each reason. Raises DeadlineExceeded after `seconds`.
    """
    deadline = time.monotonic() + seconds
    backoff = Backoff(RETRY)
    noted = ""
    while True:
        timeout = min(_remaining(deadline), SILENCE_SECONDS)
        began = time.monotonic()
        try:
            for part in target.read_log(task_id, offset, follow=True, timeout=timeout):
                yield part
                if part.exit_code is not None:
                    return
                backoff.reset()
                offset, began, noted = part.offset, time.monotonic(), ""
                _remaining(deadline)
            reason = "the server has ended the stream"
        except CertificateError:
            raise
        except Unreachable as problem:
            reason = str(problem)
        except ApiStatusError as problem:
            if problem.code not in TEMPORARY_CODES:
                raise
            reason = problem.message
        if time.monotonic() - began < timeout:  # else the log was silent
            if reason != noted:
                on_lost(reason)
                noted = reason
            time.sleep(min(backoff.next_delay(), max(0.0, deadline - time.monotonic())))


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded("timed out waiting")
    return left


_STEP = re.compile(r"step ([A-Z]\w*)(?: took (\d+(?:\.\d+)?) s)?")
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-Z]|[=>])")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A message without colours. `seconds` is None unless it is the end of a step."""

    message: str
    step: str = ""
    seconds: float | None = None


class LineSplitter:
    """Assembles the lines of a log from chunks, which may end anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[LogLine]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield parse_line(line)

    def finish(self) -> Iterator[LogLine]:
        """The last line, if it has no end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield parse_line(rest)


def parse_line(line: bytes) -> LogLine:
    message = _ESCAPE_SEQUENCE.sub("", _read_message(line)).rstrip()
    message = message.rpartition("\r")[2]  # what a terminal would show of progress
    match = _STEP.fullmatch(message)
    if match is None:
        return LogLine(message)
    return LogLine(message, match[1], float(match[2]) if match[2] else None)


def _read_message(line: bytes) -> str:
    try:
        entry = json.decode(line) if line.startswith(b"{") else None
    except Malformed:
        entry = None
    message = entry.get("message") if isinstance(entry, dict) else None
    return message if isinstance(message, str) else line.decode(errors="replace")
