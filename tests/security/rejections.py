"""Checks of rejected requests and of the server's memory."""

import httpx

from tests.harness.server_process import Server

MAX_MEMORY_GROWTH = 512 * 1024 * 1024
"""A tenth of a small machine's memory, and a hundred times the largest body."""


def get_peak_memory(server: Server) -> int:
    """The peak of the server's resident memory."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def assert_rejected(response: httpx.Response, *codes: int) -> None:
    assert response.status_code in codes, response.text[:500]
    status = response.json()
    assert (status["kind"], status["code"]) == ("Status", response.status_code)
    assert status["reason"] and status["message"]
