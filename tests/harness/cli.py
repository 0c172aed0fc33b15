"""Commands as users run them: with a home folder, with or without a terminal, and with a fake server."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fairlead.cli import make_app
from fairlead.cli.ui import prompts
from fairlead.client.contexts import Contexts, Login, load_contexts, save_contexts
from tests.harness.fake_server import KEY, FakeServer


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class CliFixture:
    home: Path
    fake: FakeServer
    patches: pytest.MonkeyPatch

    @property
    def contexts_file(self) -> Path:
        return self.home / "config" / "fairlead" / "config.yaml"

    def load_contexts(self) -> Contexts:
        return load_contexts(self.contexts_file)

    def save_login(self, name: str = "test", key: str = KEY) -> None:
        """Saves a login at the fake server."""
        login = Login(self.fake.url, key, Path(self.fake.ca_file).read_text())
        save_contexts(self.contexts_file, self.load_contexts().with_login(name, login))

    def run(self, *arguments: str, stdin: str = "", **variables: str) -> CommandResult:
        """Runs a command, with an environment without the settings of the machine."""
        blank = dict.fromkeys((name for name in os.environ if name.startswith(("FAIRLEAD_", "KUBE"))), None)
        home = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        data = {"XDG_DATA_HOME": str(self.home / "share"), "COLUMNS": "200", "NO_COLOR": "1"}
        result = CliRunner().invoke(
            make_app(), arguments, input=stdin, env={**blank, **home, **data, **variables}, catch_exceptions=False
        )
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    def use_terminal(self, *secrets: str) -> None:
        """Pretends that there is a terminal, where these secrets are typed one after the other."""
        typed: Iterator[str] = iter(secrets)
        self.patches.setattr(prompts, "is_interactive", lambda: True)
        self.patches.setattr("getpass.getpass", lambda prompt: next(typed))


def parse_yaml(text: str) -> Any:
    return yaml.safe_load(text)


def describe_unknown_key(cli: CliFixture, command: str) -> str:
    """What a command prints if the server does not know the key of the login `test`."""
    return (
        f"fairlead: {cli.fake.url} does not know the key of the login 'test': it was revoked or replaced, or is of a "
        f"former installation of the server; log in again with `{command}`\n"
    )
