"""Lines of an audit log, and the files of a log with its rotated and compressed ones."""

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from fairlead.core.clock import micro_timestamp
from fairlead.server.audit.log_file import LogRetention
from fairlead.server.audit.log_query import EventQuery
from fairlead.server.audit.log_search import Page, PageStart, parse_continue_token, search_page
from fairlead.server.audit.log_segments import SegmentedLog

START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def build_line(number: int, *, stage: str = "ResponseComplete", received: int | None = None, **fields: Any) -> bytes:
    """The event of request `number`, which ended in that second."""
    moment = START + timedelta(seconds=number if received is None else received)
    event = {
        "kind": "Event",
        "auditID": f"id-{number}",
        "stage": stage,
        "verb": "get",
        "user": {"username": "alice", "uid": "u-alice"},
        "requestReceivedTimestamp": micro_timestamp(moment),
        "stageTimestamp": micro_timestamp(START + timedelta(seconds=number)),
        "responseStatus": {"code": 200},
        **fields,
    }
    return orjson.dumps(event) + b"\n"


class LogFiles:
    """The three logs of a folder. Only that of authenticated users has lines, unless others are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.retentions = [
            LogRetention(folder / name, 0, 0, compress=False)
            for name in ("audit.log", "audit.unauthenticated.log", "audit.agents.log")
        ]
        self.logs = [SegmentedLog(each) for each in self.retentions]

    def write(self, *lines: bytes, log: int = 0) -> None:
        with self.retentions[log].path.open("ab") as file:
            file.write(b"".join(lines))

    def rotate(self, second: int, *, compress: bool = False, log: int = 0) -> Path:
        retention = self.retentions[log]
        rotated = retention.rotated_path(START + timedelta(seconds=second))
        retention.path.rename(rotated)
        return self.compress(rotated) if compress else rotated

    def compress(self, rotated: Path) -> Path:
        packed = rotated.with_name(f"{rotated.name}.gz")
        packed.write_bytes(gzip.compress(rotated.read_bytes()))
        rotated.unlink()
        return packed

    def page(self, query: EventQuery | None = None, limit: int = 500, token: str = "") -> Page:
        start: PageStart | None = parse_continue_token(token) if token else None
        return search_page(self.logs, start, query or EventQuery(), limit)

    def pages(self, query: EventQuery | None = None, limit: int = 500) -> list[Page]:
        found = [self.page(query, limit)]
        while (following := found[-1].next_page) is not None:
            found.append(self.page(query, limit, following.encode()))
        return found


def ids(*pages: Page) -> list[str]:
    return [orjson.loads(line)["auditID"] for page in pages for line in page.lines]
