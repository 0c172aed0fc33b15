"""Starts a program that ends with this server. A program: PARENT PROGRAM ARGUMENT...

`helm.py` starts helm with it. Helm is in a session of its own, so it would outlive a server that is killed, and would
change the cluster while the next server does. The kernel sends it SIGTERM instead when the server with the process ID
PARENT ends. It reached the cluster through that server, so the release stays pending, which the next server corrects
(`pending_release.py`). It imports nothing of this package.
"""

import ctypes
import os
import signal
import sys

CANNOT_START = 127
"""The exit code if the program cannot be started."""
_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it has ended before the call
            return CANNOT_START
    try:
        os.execv(command[0], command)
    except OSError:
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
