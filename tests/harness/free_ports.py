"""Ports for programs that cannot be told to choose one themselves.

They are below the range that the kernel takes ports from for connections and for listeners on port 0. So of all the
connections that other tests open meanwhile, none takes such a port before the program listens on it.
"""

import random
import socket

PORTS = range(15_000, 32_000)


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(PORTS)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def free_port() -> int:
    return free_ports(1)[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
