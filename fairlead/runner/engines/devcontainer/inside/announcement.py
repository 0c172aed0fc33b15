"""Tells the runner which image is going to be built, before anything of the repository has run in the holder.

What a build runs may take the holder over, and with it all that says what was built. So the runner asks before: it
reads one line from a named pipe, and the first command that runs something of the repository waits until it has. From
then on, nothing that the holder says counts.
"""

import os
import time

from .build_key import KEY_LENGTH

PIPE, TAKEN = "/run/build-key", "/run/build-key-taken"
NO_KEY = "-" * KEY_LENGTH
LENGTH = len(NO_KEY) + 1
"""Of the line, with its end."""
SECONDS = 10.0
"""For which the runner is waited for. Without it, what is built is not shared."""


def announce(key: str | None) -> bool:
    """Names the image; None if the runner should expect none. Only the first call in a holder has an effect, and only
    if the runner waits for it: says whether it does."""
    if not os.path.exists(PIPE):
        return False
    deadline = time.monotonic() + SECONDS
    while not _write(f"{key or NO_KEY}\n") and time.monotonic() < deadline:
        time.sleep(0.02)
    while not os.path.exists(TAKEN) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.unlink(PIPE)
    return True


def _write(line: str) -> bool:
    """Whether there was a reader."""
    try:
        descriptor = os.open(PIPE, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    os.write(descriptor, line.encode())
    os.close(descriptor)
    return True
