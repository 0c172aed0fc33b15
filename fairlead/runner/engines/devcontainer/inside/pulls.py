"""`podman pull`, with what it said last: that is why an image could not be pulled."""

import subprocess
import sys
from collections.abc import Sequence

MAX_LINE = 1000


class PullFailed(Exception):
    """An image that is needed could not be pulled."""


def pull_image(podman: str, arguments: Sequence[str]) -> None:
    """Pulls an image, the last argument. Shows the progress as podman does, and raises PullFailed."""
    last = ""
    with subprocess.Popen(
        [podman, "pull", *arguments],
        stdout=subprocess.DEVNULL,  # only the ID of the image
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            last = line.strip() or last
    if process.returncode != 0:
        reason = last[:MAX_LINE].removeprefix("Error: ") or f"podman ended with code {process.returncode}"
        raise PullFailed(f"the image {arguments[-1]} cannot be pulled: {reason}")
