"""Checks of the results of commands that run against a real server."""

import json
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
