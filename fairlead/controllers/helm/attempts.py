"""What the status of an instance knows about the last run of Helm for a release, and whether Helm has to run. Pure but
for `holder_of_this_process` and `is_holder_gone`.

An attempt is written before Helm starts, together with an empty hash of what is deployed. So whatever happens during
the run, the next reconcile knows that the cluster may have a part of it: also after a crash of the server, and if the
definition changes back to what was deployed before.
"""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.release_records import ReleaseRecord
from fairlead.core.clock import timestamp
from fairlead.core.objects import Object

RUNNING, SUCCEEDED, FAILED, INTERRUPTED = "Running", "Succeeded", "Failed", "Interrupted"
RELEASE_MISSING, RELEASE_CHANGED = "ReleaseMissing", "ReleaseChanged"
RELEASE_FAILED, RELEASE_PENDING = "ReleaseFailed", "ReleasePending"
_PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of Helm for a release. `hash` is that of the wanted release, `holder` the process that ran Helm, and
    `deadline` when that run had ended in any case; `ended_at` is when it has failed. `revision` and `digest` are those
    of the deployed release. `is_annotated`: objects of the release may have annotations of the App."""

    id: str
    generation: int
    hash: str
    holder: str
    started_at: str
    deadline: str
    ended_at: str = ""
    outcome: str = RUNNING
    reason: str = ""
    revision: int = 0
    digest: str = ""
    is_annotated: bool = False

    @property
    def has_succeeded(self) -> bool:
        return self.outcome == SUCCEEDED

    def as_fields(self) -> Object:
        fields = {
            "id": self.id,
            "generation": self.generation,
            "hash": self.hash,
            "holder": self.holder,
            "startedAt": self.started_at,
            "deadline": self.deadline,
            "endedAt": self.ended_at,
            "outcome": self.outcome,
            "reason": self.reason,
            "revision": self.revision,
            "digest": self.digest,
            "annotated": self.is_annotated,
        }
        return {name: value for name, value in fields.items() if value}

    def succeeded(self, record: ReleaseRecord, *, is_annotated: bool = False) -> "Attempt":
        return replace(
            self,
            outcome=SUCCEEDED,
            reason="",
            revision=record.revision,
            digest=record.digest,
            is_annotated=is_annotated,
        )

    def failed(self, reason: str, now: datetime) -> "Attempt":
        return replace(self, outcome=FAILED, reason=reason, ended_at=timestamp(now))

    def with_times_of(self, former: "Attempt") -> "Attempt":
        """This attempt with the process and the times of a former one, which alone may have left something pending."""
        return replace(
            self,
            holder=former.holder,
            started_at=former.started_at,
            deadline=former.deadline,
            ended_at=former.ended_at,
        )


def begin_attempt(generation: int, release: Release, now: datetime, seconds: float) -> Attempt:
    """`seconds`: after that time, the run has ended in any case."""
    return Attempt(
        id=uuid.uuid4().hex,
        generation=generation,
        hash=release.hash,
        holder=holder_of_this_process(),
        started_at=timestamp(now),
        deadline=timestamp(now + timedelta(seconds=seconds)),
    )


def read_attempt(recorded: Mapping[str, Any] | None) -> Attempt | None:
    """The attempt that a status records; None without one. A run that another process has begun and not finished is
    interrupted: this process is the only one that runs Helm now."""
    if not recorded or not recorded.get("id"):
        return None
    attempt = Attempt(
        id=str(recorded["id"]),
        generation=int(recorded.get("generation") or 0),
        hash=str(recorded.get("hash") or ""),
        holder=str(recorded.get("holder") or ""),
        started_at=str(recorded.get("startedAt") or ""),
        deadline=str(recorded.get("deadline") or ""),
        ended_at=str(recorded.get("endedAt") or ""),
        outcome=str(recorded.get("outcome") or RUNNING),
        reason=str(recorded.get("reason") or ""),
        revision=int(recorded.get("revision") or 0),
        digest=str(recorded.get("digest") or ""),
        is_annotated=bool(recorded.get("annotated")),
    )
    return replace(attempt, outcome=INTERRUPTED) if attempt.outcome == RUNNING else attempt


@dataclass(frozen=True, slots=True)
class RunReason:
    """Why Helm has to run. `reason` and `message` are those of a condition; empty if that is nothing to report: the
    definition has changed, or the last run has reported its failure itself. `is_foreign`: others did it."""

    reason: str = ""
    message: str = ""
    is_foreign: bool = False


def needs_run(
    attempt: Attempt | None, deploy_hash: str, digest: str, release: Release, newest: ReleaseRecord | None
) -> RunReason | None:
    """Why Helm has to run for a release; None if the cluster has the wanted release. `deploy_hash` and `digest` are
    those of the last successful deployment. Without an attempt, as before attempts were recorded, these count alone."""
    has_own_failure = attempt is not None and not attempt.has_succeeded
    if newest is None or newest.is_removed:
        if not digest and not deploy_hash:
            return RunReason()
        message = f'release "{release.name}" was uninstalled outside of Fairlead; it is deployed again'
        return RunReason() if has_own_failure else RunReason(RELEASE_MISSING, message, is_foreign=True)
    if not newest.is_deployed:
        message = (
            f'the newest revision {newest.revision} of release "{release.name}" is {newest.state or "unknown"}, not '
            "deployed; it is deployed again"
        )
        if newest.is_pending:
            return RunReason(RELEASE_PENDING, message, is_foreign=not has_own_failure)
        return RunReason(RELEASE_FAILED, message, is_foreign=not has_own_failure)
    if has_own_failure:
        return RunReason()
    if digest and newest.digest != digest:
        message = (
            f'release "{release.name}" was changed outside of Fairlead: its revision is {newest.revision} '
            f"({newest.chart} {newest.version}), and it is not what was deployed; it is deployed again"
        )
        return RunReason(RELEASE_CHANGED, message, is_foreign=True)
    return None if deploy_hash == release.hash else RunReason()


def holder_of_this_process() -> str:
    """Identifies this process: boot of the machine, process namespace, process ID, and start time of the process."""
    return _build_holder(os.getpid())


@cache
def _build_holder(process: int) -> str:
    return f"{_read_scope()}/{process}/{_read_start(process)}"


def is_holder_gone(holder: str) -> bool:
    """Whether the process that ran Helm is known to have ended, and Helm with it; or is this one, which has ended that
    run: `ReleaseRunner` does not ask while it has another run for that release. Of a process of another machine,
    another boot or another container, that is not known."""
    if holder == holder_of_this_process():
        return True
    scope, _, process = holder.rpartition("/")[0].rpartition("/")
    started = holder.rpartition("/")[2]
    if not process.isdigit() or not scope or scope != _read_scope():
        return False
    return _read_start(int(process)) != started


def _read_scope() -> str:
    try:
        boot = (_PROCESSES / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat(_PROCESSES / "self/ns/pid").st_ino
    except OSError:  # not Linux
        return ""
    return f"{boot}/{namespace}"


def _read_start(process: int) -> str:
    """When a process has started, in ticks since the boot; empty if there is none."""
    try:
        status = (_PROCESSES / str(process) / "stat").read_text()
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[19]
