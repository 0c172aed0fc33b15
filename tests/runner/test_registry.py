"""fairlead.runner.registry: how the engine of dev containers is set up on this machine."""

from pathlib import Path
from typing import Any, cast

import pytest

from fairlead.runner import registry
from fairlead.runner.registry import find_devcontainer_cli, load_engines


def test_the_cli_of_the_source_tree_comes_first(tmp_path: Path) -> None:
    assert find_devcontainer_cli(tmp_path) == ("devcontainer",)
    (tmp_path / "devcontainer").touch()
    assert find_devcontainer_cli(tmp_path) == ("node", str(tmp_path / "devcontainer"))
    (tmp_path / "node").touch()
    assert find_devcontainer_cli(tmp_path) == (str(tmp_path / "node"), str(tmp_path / "devcontainer"))


def test_podman_gets_the_settings_that_the_environment_names_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "TOOLS_FOLDER", tmp_path)
    for name in registry.PODMAN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CONTAINERS_CONF", "/etc/own.conf")
    monkeypatch.setenv("FAIRLEAD_RUNNER_KEY", "canary")
    engine = cast(Any, load_engines(("devcontainer",), "local", tmp_path / "state")["devcontainer"])
    assert dict(engine.settings.podman_environment) == {"CONTAINERS_CONF": "/etc/own.conf"}
    assert engine.settings.networks_folder == Path("/etc/containers/networks")
    (tmp_path / "own.conf").write_text('[network]\nnetwork_config_dir = "/srv/networks"\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "own.conf"))
    changed: Any = load_engines(["devcontainer"], "local", tmp_path)["devcontainer"]
    assert changed.settings.networks_folder == Path("/srv/networks")
    assert engine.settings.cli == ("devcontainer",)
