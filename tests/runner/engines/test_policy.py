"""What a devcontainer.json may ask for."""

from dataclasses import replace
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


def check(*permissions: str, merged: dict[str, Any] | None = None, **properties: Any) -> list[str]:
    path = {"configFilePath": {"fsPath": "/workspaces/demo/.devcontainer/devcontainer.json"}}
    configuration = {**HARMLESS, **path, **properties}
    result = {"configuration": configuration, "mergedConfiguration": {**configuration, **(merged or {})}}
    return check_configuration(result, make_grant(*permissions))


def test_an_ordinary_configuration_passes() -> None:
    assert check(build={"dockerfile": "Dockerfile", "context": "..", "args": {"A": "b"}}) == []


@pytest.mark.parametrize(
    "properties",
    [
        {"build": {"dockerfile": "/etc/shadow"}},
        {"build": {"dockerfile": "../../../../etc/shadow", "context": "/"}},
        {"dockerFile": "Dockerfile", "context": ".."},
        {"image": "39c377c59689"},
    ],
    ids=str,
)
def test_a_repository_may_name_any_file_and_image_because_it_finds_only_its_own(properties: dict[str, Any]) -> None:
    assert check(**properties) == []


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
        {"build": {"dockerfile": "Dockerfile", "secrets": ["x"]}},
        {"build": "Dockerfile"},
        {"mounts": ["type=volume,source=x,target=/proc/sys"]},
        {"mounts": ["type=volume,source=x"]},
        {"mounts": [7]},
        {"service": "app"},
        {"aPropertyOfTheFuture": True},
    ],
    ids=str,
)
def test_some_things_are_refused_whatever_the_template_allows(properties: dict[str, Any]) -> None:
    allowed = ("privileged", "capAdd", "securityOpt", "mounts", "runArgs", "features", "entrypoints", "buildOptions")
    assert check(*allowed, **properties)


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
def test_a_template_can_allow_a_property(permission: str, properties: dict[str, Any]) -> None:
    assert check(**properties)
    assert check(permission, **properties) == []


@pytest.mark.parametrize(
    "merged",
    [
        {"privileged": True},
        {"capAdd": ["SYS_ADMIN"]},
        {"securityOpt": ["apparmor=unconfined"]},
        {"mounts": ["type=bind,source=/,target=/host"]},
        {"entrypoints": ["/x"]},
        {"aPropertyOfTheFuture": True},
    ],
    ids=str,
)
def test_what_an_image_or_a_feature_brings_is_refused_as_well(merged: dict[str, Any]) -> None:
    assert check(merged=merged)


def test_features_from_listed_sources_need_no_permission() -> None:
    configuration: dict[str, Any] = {"features": {"registry.example.com/features/go:1": {}}}
    listed = make_grant(feature_sources=("registry.example.com/features/",))
    assert check_configuration({"configuration": configuration}, listed) == []
    assert check_configuration({"configuration": configuration}, make_grant()) != []


def test_all_refusals_are_reported_at_once_and_each_once() -> None:
    found = check(initializeCommand="x", privileged=True, appPort=22)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("feature", "is_listed"),
    [
        ("registry.example.com/team/tools:1", True),
        ("registry.example.com/team/more/tools@sha256:0", True),
        ("registry.example.com/one/feature:1", True),
        ("registry.example.com/one/feature-evil:1", False),
        ("registry.example.com/team-evil/tools:1", False),
        ("registry.example.com/teams/tools:1", False),
        ("registry.example.com/team/../evil/tools:1", False),
        ("registry.example.com.evil.example.com/team/tools:1", False),
        ("https://registry.example.com/team/tools.tgz", False),
        ("./registry.example.com/team/tools", False),
        ("../registry.example.com/team/tools", False),
        ("/registry.example.com/team/tools", False),
    ],
)
def test_a_feature_is_listed_by_whole_parts_of_its_name(feature: str, is_listed: bool) -> None:
    sources = ("registry.example.com/team/", "registry.example.com/one/feature")
    grant = replace(make_grant(), feature_sources=sources)
    found = check_configuration({"configuration": {"features": {feature: {}}}}, grant)
    assert (found == []) == is_listed
