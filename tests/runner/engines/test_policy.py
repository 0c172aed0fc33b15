"""What a devcontainer.json may ask for."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.devcontainer.policy import check_configuration
from tests.runner.harness.grants import make_grant

HARMLESS: dict[str, Any] = {
    "name": "demo",
    "image": "debian:12",
    "containerEnv": {"A": "b"},
    "remoteUser": "dev",
    "init": True,
    "postCreateCommand": "make",
    "forwardPorts": [3000],
    "customizations": {"vscode": {"extensions": ["x"]}},
    "updateRemoteUserUID": True,
    "hostRequirements": {"cpus": 64},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "staging" / "demo"
    (project / ".devcontainer").mkdir(parents=True)
    (project / ".devcontainer" / "Dockerfile").touch()
    return tmp_path


def check(folder: Path, *permissions: str, merged: dict[str, Any] | None = None, **properties: Any) -> list[str]:
    path = {"configFilePath": {"fsPath": f"{folder}/staging/demo/.devcontainer/devcontainer.json"}}
    configuration = {**HARMLESS, **path, **properties}
    result = {"configuration": configuration, "mergedConfiguration": {**configuration, **(merged or {})}}
    return check_configuration(result, make_grant(folder, *permissions))


def test_an_ordinary_configuration_passes(folder: Path) -> None:
    assert check(folder, build={"dockerfile": "Dockerfile", "context": "..", "args": {"A": "b"}}) == []


@pytest.mark.parametrize(
    "properties",
    [
        {"initializeCommand": "touch /etc/cron.d/x"},
        {"initializeCommand": ["touch", "/etc/cron.d/x"]},
        {"initializeCommand": {"a": "touch /etc/cron.d/x"}},
        {"workspaceMount": "source=/,target=/workspace,type=bind"},
        {"appPort": [22]},
        {"appPort": "0.0.0.0:22:22"},
        {"dockerComposeFile": "compose.yml"},
        {"mounts": ["source=/,target=/host,type=bind"]},
        {"mounts": ["type=bind,src=/run/podman/podman.sock,dst=/var/run/docker.sock"]},
        {"mounts": [{"type": "bind", "source": "${localEnv:HOME}/.ssh", "target": "/ssh"}]},
        {"mounts": [{"type": "volume", "source": "x", "target": "/run/fairlead/../fairlead"}]},
        {"runArgs": ["--pid=host"]},
        {"runArgs": ["--network", "host"]},
        {"runArgs": ["-v", "/:/host"]},
        {"runArgs": ["--env-file=/etc/environment"]},
        {"runArgs": ["--shm-size=1g", "--privileged"]},
        {"runArgs": ["--shm-size", "--device=/dev/sda"]},
        {"runArgs": "--privileged"},
        {"build": {"dockerfile": "/etc/shadow"}},
        {"build": {"dockerfile": "../../../../etc/shadow"}},
        {"build": {"dockerfile": "Dockerfile", "context": "../../.."}},
        {"build": {"dockerfile": "Dockerfile", "secrets": ["x"]}},
        {"dockerFile": "/etc/shadow"},
        {"dockerFile": "Dockerfile", "context": "/"},
        {"image": "39c377c59689"},
        {"aPropertyOfTheFuture": True},
    ],
    ids=str,
)
def test_some_things_are_refused_whatever_the_template_allows(folder: Path, properties: dict[str, Any]) -> None:
    allowed = ("privileged", "capAdd", "securityOpt", "mounts", "runArgs", "features", "entrypoints", "buildOptions")
    assert check(folder, *allowed, **properties)


@pytest.mark.parametrize(
    ("permission", "properties"),
    [
        ("privileged", {"privileged": True}),
        ("capAdd", {"capAdd": ["SYS_PTRACE"]}),
        ("securityOpt", {"securityOpt": ["seccomp=unconfined"]}),
        ("mounts", {"mounts": [{"type": "volume", "source": "cache", "target": "/cache"}]}),
        ("runArgs", {"runArgs": ["--shm-size=1g"]}),
        ("features", {"features": {"./local": {}}}),
        ("buildOptions", {"build": {"dockerfile": "Dockerfile", "options": ["--no-cache"]}}),
    ],
)
def test_a_template_can_allow_a_property(folder: Path, permission: str, properties: dict[str, Any]) -> None:
    assert check(folder, **properties)
    assert check(folder, permission, **properties) == []


@pytest.mark.parametrize(
    "merged",
    [
        {"privileged": True},
        {"capAdd": ["SYS_ADMIN"]},
        {"securityOpt": ["apparmor=unconfined"]},
        {"mounts": ["type=bind,source=/,target=/host"]},
        {"entrypoints": ["/x"]},
    ],
    ids=str,
)
def test_what_an_image_or_a_feature_brings_is_refused_as_well(folder: Path, merged: dict[str, Any]) -> None:
    assert check(folder, merged=merged)


def test_a_link_to_a_file_outside_is_refused(folder: Path) -> None:
    (folder / "staging/demo/.devcontainer/Link").symlink_to("/etc/shadow")
    assert check(folder, build={"dockerfile": "Link"})


def test_features_from_listed_sources_need_no_permission(folder: Path) -> None:
    configuration: dict[str, Any] = {"features": {"registry.example.com/features/go:1": {}}}
    listed = make_grant(folder, feature_sources=("registry.example.com/features/",))
    assert check_configuration({"configuration": configuration}, listed) == []
    assert check_configuration({"configuration": configuration}, make_grant(folder)) != []


def test_all_refusals_are_reported_at_once_and_each_once(folder: Path) -> None:
    found = check(folder, initializeCommand="x", privileged=True, appPort=22)
    assert len(found) == 3
