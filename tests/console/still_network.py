"""Runs a program that cannot see the network interfaces of the machine: `python still_network.py PROGRAM ARGUMENT...`.

When an interface appears, as with each container that other tests start, Chromium breaks off all of its requests, also
those to loopback. It learns of interfaces by netlink; without that, it takes the network for unchanging.
"""

import ctypes
import os
import platform
import socket
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SOCKET_CALLS = {"x86_64": 41, "aarch64": 198}
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
CALL_NUMBER, FIRST_ARGUMENT = 0, 16
"""Offsets in `struct seccomp_data`."""
ALLOW, EAFNOSUPPORT = 0x7FFF0000, 0x00050000 | 97


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_netlink() -> None:
    """For this process and those that it starts. Does nothing on processors that it does not know."""
    call = SOCKET_CALLS.get(platform.machine())
    if call is None:
        return
    program = (
        (LOAD, 0, 0, CALL_NUMBER),
        (JUMP_IF_EQUAL, 0, 3, call),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, socket.AF_NETLINK),
        (RETURN, 0, 0, EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    )
    packed = b"".join(struct.pack("=HBBI", *each) for each in program)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "could not give up new privileges")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Filter(len(program), packed)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "could not install the filter of system calls")


if __name__ == "__main__":
    refuse_netlink()
    os.execv(sys.argv[1], sys.argv[1:])
