"""fairlead.runner.registry: how the engine of dev containers is set up on this machine."""

from pathlib import Path
from typing import Any, cast

import pytest

from fairlead.runner import registry
from fairlead.runner.registry import find_devcontainer_cli, load_engines
from fairlead.runner.settings import RunnerSettings


def test_the_cli_of_the_source_tree_comes_first(tmp_path: Path) -> None:
    assert find_devcontainer_cli(tmp_path) == ("devcontainer",)
    (tmp_path / "devcontainer").touch()
    assert find_devcontainer_cli(tmp_path) == ("node", str(tmp_path / "devcontainer"))
    (tmp_path / "node").touch()
    assert find_devcontainer_cli(tmp_path) == (str(tmp_path / "node"), str(tmp_path / "devcontainer"))


def test_the_list_of_registries_is_the_one_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "TOOLS_FOLDER", tmp_path)
    monkeypatch.delenv(registry.REGISTRIES_VARIABLE, raising=False)
    engine = cast(Any, load_engines(RunnerSettings("local", "", tmp_path / "state"), ("devcontainer",))["devcontainer"])
    assert engine.settings.registries == Path("/etc/containers/registries.conf")
    monkeypatch.setenv(registry.REGISTRIES_VARIABLE, "/srv/registries.conf")
    changed: Any = load_engines(RunnerSettings("local", "", tmp_path), ("devcontainer",))["devcontainer"]
    assert changed.settings.registries == Path("/srv/registries.conf")
    assert engine.settings.cli == ("devcontainer",)
