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
        ("all.example.com/any/tools:1", True),
        (f"all.example.com/any/tools@sha256:{'0' * 64}", True),
        (f"all.example.com@evil.example.com/any/tools@sha256:{'0' * 64}", False),
        (f"all.example.com:x@evil.example.com/any/tools@sha256:{'0' * 64}", False),
        ("all.example.com:8443/any/tools:1", False),
        ("registry.example.com/team/%2e%2e/evil/tools:1", False),
        ("registry.example.com/team/..\\evil/tools:1", False),
        ("registry.example.com/team/tools@sha256:0/../../evil", False),
        ("https://files.example.com/team/devcontainer-feature-x.tgz", True),
        ("https://files.example.com/team/%2e%2e/evil/devcontainer-feature-x.tgz", False),
        ("https://files.example.com/team/%2E./evil/devcontainer-feature-x.tgz", False),
        ("https://files.example.com/team/..\\..\\evil/devcontainer-feature-x.tgz", False),
        ("https://files.example.com/team/.\t./evil/devcontainer-feature-x.tgz", False),
        ("https://mirror.example.com/devcontainer-feature-x.tgz", True),
        ("https://mirror.example.com@evil.example.com/devcontainer-feature-x.tgz", False),
        ("https://mirror.example.com:x@evil.example.com/devcontainer-feature-x.tgz", False),
    ],
)
def test_a_feature_is_listed_by_whole_parts_of_its_name(feature: str, is_listed: bool) -> None:
    """In a URL, what is before an @ is a user, and there are several ways to write two dots."""
    sources = (
        "registry.example.com/team/",
        "registry.example.com/one/feature",
        "all.example.com",
        "https://files.example.com/team",
        "https://mirror.example.com/",
    )
    grant = replace(make_grant(), feature_sources=sources)
    found = check_configuration({"configuration": {"features": {feature: {}}}}, grant)
    assert (found == []) == is_listed


def test_a_feature_that_another_one_depends_on_needs_a_listed_source_as_well() -> None:
    listed, other = "registry.example.com/team/tools:1", "other.example.com/any/tools:1"
    fetched = [{"sourceInformation": {"userFeatureId": name}} for name in (other, listed)]
    result = {
        "configuration": {"features": {listed: {}}},
        "featuresConfiguration": {"featureSets": fetched},
    }
    grant = make_grant(feature_sources=("registry.example.com/team",))
    found = check_configuration(result, grant)
    assert found == [f"feature {other!r} is not from a source that the runner lists; it needs the permission features"]
    assert check_configuration(result, replace(grant, permissions=("features",))) == []


@pytest.mark.parametrize("value", [None, [], "x", 7, [7], {"featureSets": 7}, {"featureSets": [7, {}]}], ids=str)
def test_what_is_not_an_object_asks_for_nothing(value: Any) -> None:
    """A workspace whose tools were taken over may print anything."""
    result = {"configuration": value, "mergedConfiguration": value, "featuresConfiguration": value}
    check_configuration(result, make_grant("features"))
