"""Copies what a snapshot has at one path back into the container. The engine runs it in the holder (`snapshots.py`).

Podman extracts it, below the root of the container: links there cannot lead out of it. A hard link whose other name is
not copied becomes a file of its own.
"""

import contextlib
import copy
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence

ABSENT = 3
"""The exit code if the snapshot has nothing at this path."""
GONE = 4
"""The exit code if there is no archive: programs in the holder can delete it."""


def main(arguments: Sequence[str]) -> int:
    podman, container, archive, path = arguments
    wanted = path.strip("/")
    if not os.path.exists(archive):
        return GONE
    with tarfile.open(archive) as source:
        if not any(is_below(each.name, wanted) for each in source):
            return ABSENT
        command = [podman, "cp", "--archive=false", "--overwrite", "-", f"{container}:/"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as podman_copy:
            assert podman_copy.stdin is not None
            with (
                contextlib.suppress(BrokenPipeError),  # podman says why
                tarfile.open(fileobj=podman_copy.stdin, mode="w|", format=tarfile.PAX_FORMAT) as target,
            ):
                copy_entries(source, target, wanted)
            with contextlib.suppress(BrokenPipeError):
                podman_copy.stdin.close()
            return podman_copy.wait()


def copy_entries(source: tarfile.TarFile, target: tarfile.TarFile, wanted: str) -> None:
    for entry in source.getmembers():
        if not is_below(entry.name, wanted):
            continue
        written = copy.copy(entry)
        content = source.extractfile(entry) if entry.isreg() or entry.islnk() else None
        if entry.islnk() and content is not None:
            if is_below(entry.linkname, wanted):
                content = None
            else:
                written.type, written.linkname = tarfile.REGTYPE, ""
                written.size = source.getmember(entry.linkname).size
        target.addfile(written, content)


def is_below(name: str, wanted: str) -> bool:
    """Whether the name of an entry, as `./usr/bin`, is this path or below it."""
    plain = name.removeprefix("./").strip("/")
    return not wanted or plain == wanted or plain.startswith(f"{wanted}/")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
