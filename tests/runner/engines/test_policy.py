"""What a devcontainer.json may ask for."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fairlead.runner.engines.devcontainer.adaptation import MAX_WARNINGS, adapt_configuration
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
        {"appPort": [22]},
        {"appPort": "0.0.0.0:22:22"},
        {"dockerComposeFile": "compose.yml"},
        {"runArgs": ["--pid=host"]},
        {"runArgs": ["--network", "host"]},
        {"runArgs": ["-v", "/:/host"]},
        {"runArgs": ["--env-file=/etc/environment"]},
        {"runArgs": ["--shm-size=1g", "--privileged"]},
        {"runArgs": ["--shm-size", "--device=/dev/sda"]},
        {"runArgs": "--privileged"},
        {"build": {"dockerfile": "Dockerfile", "secrets": ["x"]}},
        {"build": "Dockerfile"},
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
        ("runArgs", {"runArgs": ["--ulimit=nofile=4096"]}),
        ("features", {"features": {"./local": {}}}),
        ("buildOptions", {"build": {"dockerfile": "Dockerfile", "options": ["--no-cache"]}}),
    ],
)
def test_a_template_can_allow_a_property(permission: str, properties: dict[str, Any]) -> None:
    assert check(**properties)
    assert check(permission, **properties) == []


def test_a_property_of_an_image_that_is_not_known_is_refused() -> None:
    assert check(merged={"aPropertyOfTheFuture": True})


def test_a_pinned_feature_has_the_content_that_the_operator_chose() -> None:
    pin = f"sha256:{'1' * 64}"
    name = "registry.example.com/features/go"
    grant = replace(make_grant(), feature_pins={name: pin})

    def find(feature: str) -> list[str]:
        return check_configuration({"configuration": {"features": {feature: {}}}}, grant)

    assert find(f"{name}@{pin}") == []
    assert "has pinned it" in find(f"{name}:1")[0]
    assert "has pinned it" in find(f"{name}@sha256:{'2' * 64}")[0]
    assert "not from a source" in find(f"registry.example.com/features/other@{pin}")[0]
    adapted = adapt_configuration(json.dumps({"image": "x", "features": {f"{name}:1": {"version": "1.22"}}}), grant)
    assert json.loads(adapted.text)["features"] == {f"{name}@{pin}": {"version": "1.22"}}


def test_features_from_listed_sources_need_no_permission() -> None:
    configuration: dict[str, Any] = {"features": {"registry.example.com/features/go:1": {}}}
    listed = make_grant(feature_sources=("registry.example.com/features/",))
    assert check_configuration({"configuration": configuration}, listed) == []
    assert check_configuration({"configuration": configuration}, make_grant()) != []


def test_a_volume_among_run_arguments_keeps_its_options() -> None:
    adapted = adapt_configuration(json.dumps({**HARMLESS, "runArgs": ["-v", "cache:/cache:z,ro"]}), make_grant())
    assert json.loads(adapted.text)["mounts"] == ["type=volume,source=cache,target=/cache,readonly"]


def test_all_refusals_are_reported_at_once_and_each_once() -> None:
    found = check(initializeCommand="x", dockerComposeFile="y", appPort=22)
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


LONG_LISTS = {
    "ports": '{"forwardPorts": [' + ",".join(map(str, range(10, 65536))) + '], "appPort": [' + "9," * 200_000 + "9]}",
    "mounts": '{"runArgs": ["-q"], "mounts": [' + '"source=a,target=/a",' * 40_000 + '"source=a,target=/a"]}',
    "capabilities": '{"runArgs": ["-q"], "capAdd": [' + '"SYS_PTRACE",' * 70_000 + '"SYS_PTRACE"]}',
    "variables": '{"runArgs": [' + ",".join(f'"-e", "a{number}=1"' for number in range(50_000)) + "]}",
    "arguments": '{"runArgs": [' + '"-p=1",' * 100_000 + '"-p=1"]}',
    "unknown properties": "{" + ",".join(f'"{number}": 1' for number in range(60_000)) + "}",
}
"""Each is less than the 1 MiB that is read of a file."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LONG_LISTS)
def test_a_configuration_with_very_many_entries_is_adapted_in_time(name: str) -> None:
    """A thread of the runner does it, of which there are few, so it must not take minutes."""
    assert len(LONG_LISTS[name]) < 1 << 20
    adapted = adapt_configuration(LONG_LISTS[name], make_grant())
    assert adapted.text
    assert len(adapted.warnings) <= MAX_WARNINGS
    assert all(len(each) < 400 for each in adapted.warnings)


def test_a_warning_shows_a_part_of_a_long_value() -> None:
    for configuration in ({"appPort": "a" * 100_000 + ":80"}, {"workspaceMount": f"source=a,target=/{'a' * 100_000}"}):
        (warning,) = adapt_configuration(json.dumps(configuration), make_grant()).warnings
        assert len(warning) < 400
