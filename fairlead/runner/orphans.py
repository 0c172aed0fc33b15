"""Reports the workspaces that this machine has and the server does not, as a condition of the Runner.

The runner may record Events only where it has workspaces, so the server records one from the condition.
"""

import asyncio
from datetime import timedelta

import structlog

from fairlead.client import ClientError
from fairlead.core.clock import Clock, timestamp
from fairlead.core.objects import Object
from fairlead.runner.api import RunnerApi
from fairlead.runner.decisions import retention_end
from fairlead.runner.journal import Journal

log = structlog.get_logger(__name__)

WORKSPACES_KNOWN, KNOWN, ORPHANED = "WorkspacesKnown", "Known", "Orphaned"
CHECK_SECONDS = 30.0
MAX_NAMED = 10


def build_condition(journal: Journal, retention: timedelta | None) -> Object:
    """False while there are orphans, with what happens to each."""
    ends = ((retention_end(each, retention), each.uid, each) for each in journal.records())
    orphans = sorted((end, uid, each) for end, uid, each in ends if end is not None)
    if not orphans:
        return {"type": WORKSPACES_KNOWN, "status": "True", "severity": "", "reason": KNOWN, "message": ""}
    named = [
        f"{f'{each.namespace}/{each.name}' if each.name else 'without a name'} (uid {uid}) on {timestamp(end)}"
        for end, uid, each in orphans[:MAX_NAMED]
    ]
    more = f", and {len(orphans) - MAX_NAMED} more" if len(orphans) > MAX_NAMED else ""
    message = (
        f"this runner has {len(orphans)} workspaces that the server does not have; they are stopped, and removed with "
        f"their data unless they appear again: {', '.join(named)}{more}"
    )
    return {
        **{"type": WORKSPACES_KNOWN, "status": "False", "severity": "Warning", "reason": ORPHANED},
        "message": message,
    }


async def report_orphans(api: RunnerApi, journal: Journal, clock: Clock, retention: timedelta | None) -> None:
    """Reports the condition for ever, when it changes. Nothing is reported before the first orphan."""
    reported: Object = {"status": "True", "message": ""}
    while True:
        condition = build_condition(journal, retention)
        if condition["message"] != reported["message"]:
            is_same = condition["status"] == reported["status"]
            moment = reported["lastTransitionTime"] if is_same else timestamp(clock.now())
            condition = {**condition, "lastTransitionTime": moment}
            try:
                await api.report_runner({"conditions": [condition]})
            except ClientError as error:
                log.warning("the condition of orphaned workspaces could not be reported", error=str(error))
            else:
                reported = condition
                log.warning(condition["message"] or "the server has all workspaces of this runner again")
        await asyncio.sleep(CHECK_SECONDS)
