"""core/machine/service_manager.py: READY=1 for systemd."""

import socket
from pathlib import Path

import pytest

from fairlead.core.machine.service_manager import notify_ready


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_service_manager_is_notified_over_its_socket(tmp_path: Path, is_abstract: bool) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path if is_abstract else path)
        manager.settimeout(40)
        assert notify_ready({"NOTIFY_SOCKET": f"@{path}" if is_abstract else path})
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/notify", "vsock:2:1234"])
def test_without_a_service_manager_nothing_happens(address: str) -> None:
    assert not notify_ready({"NOTIFY_SOCKET": address})
    assert not notify_ready({})
