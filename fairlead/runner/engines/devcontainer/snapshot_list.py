"""Which snapshots of a workspace there are, and for how long (`snapshots.json`, the oldest first).

The list decides, with the times that are recorded in it. The archives are on the disk of the workspace, whose programs
can change their names and times: one that is not in the list is removed when the workspace starts.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.runner.engines.contract import Snapshot
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json, write_json

MAX_SNAPSHOTS = 3
MAX_SNAPSHOT_DAYS = 14


def read_snapshots(folder: WorkspaceFolder) -> list[Snapshot]:
    """The oldest first, without those that are too old."""
    oldest = datetime.now(UTC) - timedelta(days=MAX_SNAPSHOT_DAYS)
    read = [(each["id"], parse_rfc3339(each["createdAt"]), each["bytes"]) for each in read_json(folder.snapshots) or []]
    return [Snapshot(id, at, size) for id, at, size in read if at is not None and at > oldest]


def store_snapshots(folder: WorkspaceFolder, snapshots: Iterable[Snapshot]) -> None:
    listed = [{"id": each.id, "createdAt": timestamp(each.created_at), "bytes": each.size} for each in snapshots]
    write_json(folder.snapshots, listed)
