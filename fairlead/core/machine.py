"""The machine that a process runs on: what a check of it found, whether it has Helm, and its service manager."""

import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. Without a problem, the subject is in order."""

    subject: str
    problem: str = ""
    remedy: str = ""
    """The command or setting that solves the problem."""
    is_fatal: bool = True
    """What was checked does not work until the problem is solved."""


HELM = "helm"
MISSING_HELM = f"there is no program `{HELM}` on the server's PATH; install Helm 3.8 or newer there"


def find_helm(program: str = HELM) -> str | None:
    """The path of the program; None if there is none."""
    return shutil.which(program)


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
