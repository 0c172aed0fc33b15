"""Runs commands against a real server, and checks their results."""

import json
import signal
import subprocess
from contextlib import suppress
from typing import Any

from fairlead.client import Client
from tests.harness.cli import CommandResult
from tests.harness.server_process import Server


def expect_success(result: CommandResult) -> str:
    assert result.code == 0, result.err + result.out
    return result.out


def expect_json(result: CommandResult) -> Any:
    return json.loads(expect_success(result))


def open_admin_client(server: Server) -> Client:
    return Client(server.url, server.key, ca_file=server.ca_file)


def interrupt(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Presses Ctrl-C, again if a signal was lost: Python misses one that arrives right before a blocking read."""
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    return process.returncode, process.communicate()[1]
