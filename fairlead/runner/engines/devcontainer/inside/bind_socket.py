"""Gives a socket a name in the private folder of a workspace, where only the user of sessions can connect to it.

The runner has opened the socket, and listens on it: this program is there because root of the machine creates nothing
in folders of a workspace.

    bind_socket.py DESCRIPTOR NAME
"""

import contextlib
import os
import socket
import sys

PRIVATE, SOCKETS = "/private", "/private/sockets"


def main() -> None:
    path = os.path.join(SOCKETS, os.path.basename(sys.argv[2]))
    owner = os.stat(PRIVATE)
    with contextlib.suppress(FileExistsError):
        os.mkdir(SOCKETS, 0o700)
        os.chown(SOCKETS, owner.st_uid, owner.st_gid)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.umask(0o177)
    with socket.socket(fileno=int(sys.argv[1])) as bound:
        bound.bind(path)
    os.chown(path, owner.st_uid, owner.st_gid)


if __name__ == "__main__":
    main()
