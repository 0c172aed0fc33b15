"""Tells the service manager, such as systemd, that the process is ready: sd_notify(3), with the datagram `READY=1`."""

import os
import socket
from collections.abc import Mapping

SOCKET_VARIABLE = "NOTIFY_SOCKET"


def notify_ready(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a service manager was notified. One that is gone is not a reason to fail."""
    address = environment.get(SOCKET_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        try:
            client.sendto(b"READY=1", address)
        except OSError:
            return False
    return True
