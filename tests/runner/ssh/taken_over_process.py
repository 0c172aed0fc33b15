"""A process for SSH in the hands of a client, in place of the real one: it wants more than it has, and does not end."""

import ctypes
import os
import sys
import time

from fairlead.runner.ssh.confinement import PR_SET_PDEATHSIG, confine

CLONE_NEWUSER = 0x10000000


def main() -> None:
    confine(int(sys.argv[2]))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
    error = ctypes.get_errno() if libc.unshare(CLONE_NEWUSER) < 0 else 0
    os.write(2, f"a user namespace: {os.strerror(error)}\n".encode())
    time.sleep(1000)


if __name__ == "__main__":
    main()
