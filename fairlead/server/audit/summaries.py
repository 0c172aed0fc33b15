"""Summaries of requests that were not recorded one by one, as audit events that every tool can read.

A summary has the form of any other event. Its `requestURI`, `verb` and code are those of the most frequent request, and
its annotations say how many it stands for. `intake.py` has them written.
"""

import uuid
from datetime import UTC, datetime

from fairlead.core.clock import micro_timestamp
from fairlead.core.objects import Object
from fairlead.server.audit.event import line
from fairlead.server.audit.policy import COMPLETE, LEVELS, METADATA
from fairlead.server.audit.quotas import OTHERS, Tally
from fairlead.server.audit.shown import request_uri, shown

COUNT, OF, SOURCES, SAMPLES = (
    "service.sh/summary-count",
    "service.sh/summary-of",
    "service.sh/summary-sources",
    "service.sh/summary-requests",
)
"""How many requests a summary stands for, of which sort they were, of how many sources, and what was asked for."""


def summarize(tally: Tally, sort: str, *, is_address: bool) -> bytes:
    """The line for what one source did beyond its quota. `sort` says which requests were counted."""
    frequent = sorted(tally.samples.items(), key=lambda sample: sample[1], reverse=True)
    (verb, code, path), _ = frequent[0] if frequent else (("unknown", 0, ""), 0)
    is_named = tally.source != OTHERS
    annotations = {COUNT: str(tally.suppressed), OF: sort, SOURCES: str(max(tally.sources, 1))}
    annotations[SAMPLES] = "; ".join(
        f"{times} x {verb} {request_uri(path, {}, ())} {code}" for (verb, code, path), times in frequent
    )
    made: Object = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": LEVELS[METADATA],
        "auditID": str(uuid.uuid4()),
        "stage": COMPLETE,
        "requestURI": request_uri(path, {}, ()),
        "verb": verb,
        "user": {"username": shown(tally.source)} if is_named and not is_address else {},
        "sourceIPs": [tally.source] if is_named and is_address else [],
        "requestReceivedTimestamp": _moment(tally.first),
        "stageTimestamp": _moment(tally.last),
        "annotations": annotations,
        "responseStatus": {"metadata": {}, "code": code},
    }
    return line(made)


def _moment(moment: datetime | None) -> str:
    return micro_timestamp(moment or datetime.now(UTC))
