"""Snapshots: what a container has outside of volumes and the work folder, kept when another one takes its place.

One is an archive on the disk of the workspace (`/ws/snapshots` of its holder), of the files that differ from the image;
so it counts towards the size of that disk, and needs no image. Programs in the holder make it and read it. Beside the
disk is a list of them (`snapshot_list.py`), also for a workspace that does not run.
"""

import os
import posixpath
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from fairlead.core.validators import format_size
from fairlead.runner.engines.contract import EngineError, Reason, Snapshot, TaskContext, describe_missing_snapshot
from fairlead.runner.engines.devcontainer.grant import CONTAINER, RECOVERY_LABEL
from fairlead.runner.engines.devcontainer.inside.snapshots import ABSENT, GONE
from fairlead.runner.engines.devcontainer.isolation.disk import says_disk_is_full
from fairlead.runner.engines.devcontainer.isolation.holder import INSIDE_TARGET, PYTHON, Holder
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import SNAPSHOTS
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.snapshot_list import MAX_SNAPSHOTS, read_snapshots, store_snapshots

NAME_LENGTH = 8
SIZE = re.compile(r"[0-9]{1,18}\n")
LEFT_OUT = (
    *("proc", "sys", "dev", "run", "tmp", "var/tmp"),
    *("etc/hosts", "etc/hostname", "etc/resolv.conf"),  # podman mounts its own
)
TAKE = f"""
set -eu
found=$("$1" ps --all --quiet --filter "name=^$2\\$")
[ "$found" ] || exit 0
label='{{{{index .Config.Labels "{RECOVERY_LABEL}"}}}}'
is_recovery=$("$1" container inspect --format "$label" "$2")
[ "$is_recovery" != true ] || exit 0
mkdir -p {SNAPSHOTS}
archive={SNAPSHOTS}/$3.tar
rm -f {SNAPSHOTS}/*.new
if [ ! -e "$archive" ]; then
    upper=$("$1" container inspect --format '{{{{.GraphDriver.Data.UpperDir}}}}' "$2")
    mounts='{{{{range .Mounts}}}}.{{{{.Destination}}}}{{{{"\\n"}}}}{{{{end}}}}'
    "$1" container inspect --format "$mounts" "$2" >/tmp/mounts
    root=$("$1" mount "$2")
    trap '
        [ "$(stat -f -c %a {SNAPSHOTS})" -gt 256 ] || echo "No space left on device" >&2
        rm -f "$archive.new"
        "$1" unmount "$2" >/dev/null
    ' EXIT
    cd "$upper"
    rm -f /tmp/incomplete
    {{ find . -mindepth 1 \\( {" -o ".join(f"-path ./{each}" for each in LEFT_OUT)} \\) -prune -o \
        ! -type c ! -type b ! -type s -print0 || touch /tmp/incomplete; }} |
        {{ grep -zvxFf /tmp/mounts || [ $? -eq 1 ] || touch /tmp/incomplete; }} |
        tar -C "$root" --numeric-owner --xattrs --format=posix -cf "$archive.new" --no-recursion --null --files-from=-
    if [ -e /tmp/incomplete ]; then exit 1; fi
    sync "$archive.new"
    mv "$archive.new" "$archive"
fi
stat -c %s "$archive"
"""
"""Deleted files of the image are character devices in the upper layer, and sockets are of no use without their
process. What was taken before the runner was restarted is not taken again. A shell sees only how the last command of a
pipeline ended: what the others did not list is noted in a file."""
RESTORE = (
    *(PYTHON, "-ISc"),
    f"import sys; sys.path.insert(0, {os.path.dirname(INSIDE_TARGET)!r}); "
    "from inside.snapshots import main; sys.exit(main(sys.argv[1:]))",
)


async def take_snapshot(settings: Settings, folder: WorkspaceFolder, holder: Holder, task: TaskContext) -> None:
    """Of the container that is to be replaced. Raises EngineError, and the container stays, if that is impossible. The
    one that runs after a failed build has nothing of a user outside of the work folder, and would only take the place
    of a snapshot that has."""
    name = task.task_id[:NAME_LENGTH]
    taken = await holder.run("/bin/sh", "-c", TAKE, "snapshot", settings.podman, CONTAINER, name)
    if taken.code != 0:
        problem = f"no snapshot could be taken, so the container was not replaced: {describe_errors(taken.errors)}"
        raise EngineError(Reason.SNAPSHOT_FAILED, f"{problem}; leave the snapshot out to replace it without")
    if not taken.output.strip():
        task.log(b"no snapshot is taken: there is no container, or only the one that runs after a failed build\n")
        return
    size = int(taken.output) if SIZE.fullmatch(taken.output) else 0
    others = [each for each in read_snapshots(folder) if each.id != name]
    dropped = others[: -(MAX_SNAPSHOTS - 1)]
    store_snapshots(folder, [*others[len(dropped) :], Snapshot(name, datetime.now(UTC), size)])
    await remove_archives(holder, (each.id for each in dropped))
    task.log(f"the snapshot {name} has what the container had changed, {format_size(size)}\n".encode())


def describe_errors(errors: str) -> str:
    """The first message, unless another one is that the disk is full. The last ones say only that there were others."""
    lines = errors.strip().splitlines() or ["no message"]
    return next((each for each in lines if says_disk_is_full(each)), lines[0])


def list_snapshots(folder: WorkspaceFolder) -> list[Snapshot]:
    """The newest first."""
    return read_snapshots(folder)[::-1]


async def remove_archives(holder: Holder, ids: Iterable[str]) -> None:
    """Of snapshots that are not in the list any more. What cannot be removed now is when the workspace starts next."""
    if paths := [f"{SNAPSHOTS}/{each}.tar" for each in ids]:
        await holder.run("/bin/rm", "-f", *paths)


async def delete_snapshot(folder: WorkspaceFolder, holder: Holder | None, snapshot: str) -> None:
    """Without a holder, the disk cannot be written to: then the archive goes when the workspace starts. Raises
    EngineError."""
    found = read_snapshots(folder)
    others = [each for each in found if each.id != snapshot]
    if len(others) == len(found):
        names = [each.id for each in found]
        raise EngineError(Reason.SNAPSHOT_FAILED, describe_missing_snapshot(snapshot, names))
    store_snapshots(folder, others)
    if holder is not None:
        await remove_archives(holder, [snapshot])


async def discard_snapshots(folder: WorkspaceFolder, holder: Holder) -> None:
    """They may have credentials of an earlier owner."""
    folder.snapshots.unlink(missing_ok=True)
    await holder.expect("/bin/rm", "-rf", SNAPSHOTS)


async def restore_snapshot(
    settings: Settings, folder: WorkspaceFolder, holder: Holder, snapshot: str, path: str
) -> None:
    """Copies what the snapshot has at this path into the running container. Raises EngineError."""
    names = [each.id for each in list_snapshots(folder)]
    if snapshot not in names:
        raise EngineError(Reason.SNAPSHOT_FAILED, describe_missing_snapshot(snapshot, names))
    plain = posixpath.normpath(path)
    if not plain.startswith("/"):
        raise EngineError(Reason.SNAPSHOT_FAILED, f"{path[:100]!r} is not an absolute path, such as /usr/local")
    archive = f"{SNAPSHOTS}/{snapshot}.tar"
    restored = await holder.run(*RESTORE, settings.podman, CONTAINER, archive, plain)
    if restored.code == GONE:
        raise EngineError(
            Reason.SNAPSHOT_FAILED,
            f"the archive of the snapshot {snapshot} is not on the disk of the workspace any more",
        )
    if restored.code == ABSENT:
        raise EngineError(
            Reason.SNAPSHOT_FAILED,
            f"the snapshot {snapshot} has nothing at {plain}: it has what had changed outside of volumes and the work "
            "folder",
        )
    if restored.code != 0:
        raise EngineError(Reason.SNAPSHOT_FAILED, f"{plain} could not be restored: {describe_errors(restored.errors)}")
