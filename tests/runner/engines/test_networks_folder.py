"""Where podman looks for networks, by its configuration."""

from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.networks_folder import DEFAULT_FOLDER, find_networks_folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_the_file_of_the_environment_is_the_only_one(tmp_path: Path) -> None:
    system = write(tmp_path / "system.conf", '[network]\nnetwork_config_dir = "/system"\n')
    own = write(tmp_path / "own.conf", '[engine]\n[network]\nnetwork_config_dir = "/own"  # here\n')
    silent = write(tmp_path / "silent.conf", "[network]\n")
    assert find_networks_folder({"CONTAINERS_CONF": str(own)}, (system,), tmp_path / "none") == Path("/own")
    assert find_networks_folder({"CONTAINERS_CONF": str(silent)}, (system,), tmp_path / "none") == DEFAULT_FOLDER


def test_later_files_of_the_machine_override_earlier_ones(tmp_path: Path) -> None:
    files = tuple(write(tmp_path / name, f'[network]\nnetwork_config_dir = "/{name}"\n') for name in ("a", "b"))
    assert find_networks_folder({}, files, tmp_path / "none") == Path("/b")
    for name in ("20", "10"):
        write(tmp_path / "conf.d" / f"{name}.conf", f'[network]\nnetwork_config_dir = "/{name}"\n')
    write(tmp_path / "conf.d" / "30.other", '[network]\nnetwork_config_dir = "/30"\n')
    assert find_networks_folder({}, files, tmp_path / "conf.d") == Path("/20")


@pytest.mark.parametrize("text", ["", "not toml", "network = 1", "[network]\nnetwork_config_dir = 1", "\x00"])
def test_without_a_usable_setting_it_is_the_default_of_podman(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "c.conf", text)
    assert find_networks_folder({"CONTAINERS_CONF": str(file)}) == DEFAULT_FOLDER
    assert find_networks_folder({"CONTAINERS_CONF": str(tmp_path / "missing")}) == DEFAULT_FOLDER
