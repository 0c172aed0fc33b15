"""Somebody who types commands: a home folder of their own, a terminal or none, and a server with canned answers."""

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
from tests.harness.fake_server import KEY, Fake


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Desk:
    home: Path
    fake: Fake
    patches: pytest.MonkeyPatch

    @property
    def logins(self) -> Path:
        return self.home / "config" / "fairlead" / "config.yaml"

    def kept(self) -> Contexts:
        return load_contexts(self.logins)

    def keep(self, name: str = "test", key: str = KEY) -> None:
        """A login at the server with canned answers, as if made before."""
        login = Login(self.fake.url, key, Path(self.fake.ca_file).read_text())
        save_contexts(self.logins, self.kept().with_login(name, login))

    def type(self, *arguments: str, stdin: str = "", **variables: str) -> Ended:
        """A command, with an environment that has nothing of the machine's own settings."""
        blank = dict.fromkeys((name for name in os.environ if name.startswith(("FAIRLEAD_", "KUBE"))), None)
        home = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        data = {"XDG_DATA_HOME": str(self.home / "share"), "COLUMNS": "200", "NO_COLOR": "1"}
        result = CliRunner().invoke(
            make_app(), arguments, input=stdin, env={**blank, **home, **data, **variables}, catch_exceptions=False
        )
        return Ended(result.exit_code, result.stdout, result.stderr)

    def sit_at_a_terminal(self, *secrets: str) -> None:
        """From now on somebody is there, who types these secrets one after the other."""
        typed: Iterator[str] = iter(secrets)
        self.patches.setattr(prompts, "is_interactive", lambda: True)
        self.patches.setattr("getpass.getpass", lambda prompt: next(typed))


def loaded(text: str) -> Any:
    return yaml.safe_load(text)
