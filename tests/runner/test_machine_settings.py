"""The configuration file of a runner: what it means, and that nothing in it is misread."""

import tomllib
from pathlib import Path
from typing import Any, cast

import pytest

from fairlead.core.files import FileProblem
from fairlead.core.machine.findings import Finding
from fairlead.runner import registry
from fairlead.runner.doctor import examine
from fairlead.runner.engines.contract import Limits
from fairlead.runner.engines.devcontainer import settings as engine_settings
from fairlead.runner.engines.devcontainer.isolation.ranges import claim_existing
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import describe_mirrors
from fairlead.runner.engines.devcontainer.settings import REFUSED_NETWORKS, DiskLimits, Settings
from fairlead.runner.machine_settings import DEFAULT_MACHINE, MachineSettings, read_machine_settings
from fairlead.runner.registry import load_engines
from fairlead.runner.settings import RunnerSettings

COMPLETE = """
first_uid: 1500000000
network_pool: 172.20.0.0/16
feature_sources: [registry.example.com/features, registry.example.com:5000/team/]
refused_networks: [10.0.0.0/8, 192.168.0.0/16]
max_limits: {memory: 8Gi, cpus: 1.5, processes: 2048}
disk_limits: {bytes: 100Mi, operations: 500}
"""
CHOSEN = MachineSettings(
    first_uid=1_500_000_000,
    network_pool="172.20.0.0/16",
    feature_sources=("registry.example.com/features", "registry.example.com:5000/team/"),
    refused_networks=("10.0.0.0/8", "192.168.0.0/16"),
    max_limits=Limits(memory_bytes=8 << 30, cpus=1.5, processes=2048),
    disk_limits=DiskLimits(bytes_per_second=100 << 20, operations_per_second=500),
)


def read(tmp_path: Path, text: str) -> MachineSettings:
    path = tmp_path / "runner.yaml"
    path.write_text(text)
    return read_machine_settings(path)


def test_a_file_has_some_settings_or_none(tmp_path: Path) -> None:
    assert read(tmp_path, COMPLETE) == CHOSEN
    assert read(tmp_path, "") == DEFAULT_MACHINE == MachineSettings()
    assert read(tmp_path, "max_limits: {cpus: 2}").max_limits == Limits(cpus=2.0)
    assert read(tmp_path, "disk_limits: {bytes: 0, operations: 0}").disk_limits == DiskLimits(0, 0)
    assert read(tmp_path, "disk_limits: {operations: 50}").disk_limits == DiskLimits(operations_per_second=50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "must contain settings"),
        ("1: 2", "must contain settings"),
        ("first_uid: [", "invalid YAML in line"),
        ("\0", "invalid YAML"),
        ("[" * 3000, "invalid YAML"),
        ("refused_network: []", "unknown setting refused_network; did you mean refused_networks?"),
        ("first_uid: 1000", "first_uid must be a number from 65536"),
        ("first_uid: true", "first_uid must be a number"),
        ("first_uid: '1000000'", "first_uid must be a number"),
        ("first_uid: 4294900000", "and the last one is 4294967294"),
        ("first_uid: 4200000000", "need the user ids 4200000000 to 4468435455, and the last one is"),
        ("first_uid: 1999000000", "are those of processes of the runner"),
        ("first_uid: 2000000000", "are those of processes of the runner"),
        ("network_pool: 10.213.0.1/16", "network_pool must be a network of IPv4"),
        ("network_pool: fd00::/64", "network_pool must be a network of IPv4"),
        ("network_pool: 5", "network_pool must be a network of IPv4"),
        ("network_pool: 10.0.0.0/8", "network_pool must be a private network from /12 to /27"),
        ("network_pool: 10.0.0.0/28", "network_pool must be a private network"),
        ("network_pool: 127.0.0.0/16", "network_pool must be a private network"),
        ("network_pool: 169.254.0.0/16", "network_pool must be a private network"),
        ("network_pool: 8.8.0.0/16", "network_pool must be a private network"),
        ("refused_networks: 10.0.0.0/8", "refused_networks must be a list"),
        ("refused_networks: [10.0.0.1/8]", "'10.0.0.1/8' is none"),
        ("refused_networks: [-j ACCEPT]", "'-j ACCEPT' is none"),
        (f"refused_networks: [{'10.0.0.0/8, ' * 257}]", "at most 256 entries"),
        ("feature_sources: ['']", "feature_sources must be names of registries"),
        ("feature_sources: [https://registry.example.com]", "feature_sources must be names of registries"),
        ("feature_sources: [registry.example.com/../x]", "feature_sources must be names of registries"),
        ("feature_sources: [{}]", "feature_sources must be names of registries"),
        ("disk_limits: 5", "disk_limits must have some of bytes, operations, such as {bytes: 256Mi}"),
        ("disk_limits: {byte: 1}", "disk_limits has an unknown setting byte; did you mean bytes?"),
        ("disk_limits: {bytes: 1Ki}", "disk_limits bytes must be a size of at least 1Mi in a second"),
        ("disk_limits: {bytes: false}", "disk_limits bytes must be a size"),
        ("disk_limits: {bytes: 5}", "disk_limits bytes must be a size"),
        ("disk_limits: {bytes: -1Gi}", "disk_limits bytes must be a size"),
        ("disk_limits: {operations: 5}", "disk_limits operations must be a number from 50 to 4294967295, or 0"),
        ("disk_limits: {operations: false}", "disk_limits operations must be a number"),
        ("disk_limits: {operations: 1e99}", "disk_limits operations must be a number"),
        ("max_limits: 5", "max_limits must have some of memory, cpus, processes"),
        ("max_limits: {memory: 5}", "max_limits memory must be a size"),
        ("max_limits: {memory: 1Mi}", "max_limits memory must be a size of at least 64Mi"),
        ("max_limits: {cpus: 0}", "max_limits cpus must be a number"),
        ("max_limits: {cpus: .inf}", "max_limits cpus must be a number"),
        ("max_limits: {cpus: .nan}", "max_limits cpus must be a number"),
        ("max_limits: {cpus: true}", "max_limits cpus must be a number"),
        ("max_limits: {processes: 1.5}", "max_limits processes must be a number"),
        ("max_limits: {disk: 1Gi}", "max_limits has an unknown setting disk"),
        ("#" * 70000, "is larger than 64 KiB"),
    ],
)
def test_what_is_not_understood_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileProblem) as raised:
        read(tmp_path, text)
    assert message in str(raised.value) and str(raised.value).startswith(str(tmp_path / "runner.yaml"))


def test_registries_have_mirrors(tmp_path: Path) -> None:
    text = "registry_mirrors: {quay.io: mirror.example.com/quay, docker.io: 'http://10.0.0.5:5000'}"
    mirrors = read(tmp_path, text).registry_mirrors
    assert mirrors == (("docker.io", "http://10.0.0.5:5000"), ("quay.io", "mirror.example.com/quay"))
    described = describe_mirrors(Settings(tmp_path, "runner", registry_mirrors=mirrors))
    found = tomllib.loads(described)["registry"]
    assert [each["location"] for each in found] == ["docker.io", "quay.io"]
    assert [each["mirror"] for each in found] == [
        [{"location": "10.0.0.5:5000", "insecure": True}],
        [{"location": "mirror.example.com/quay", "insecure": False}],
    ]
    for wrong in (
        "[x]",
        "{docker.io: 'https://x'}",
        "{docker.io: ''}",
        "{'a\"b': x}",
        "{docker.io: 'x\"\\ny'}",
        "{1: x}",
    ):
        with pytest.raises(FileProblem, match="registry_mirrors must have"):
            read(tmp_path, f"registry_mirrors: {wrong}")
    for loopback in ("http://127.0.0.1:5000", "localhost/hub", "localhost"):
        with pytest.raises(FileProblem, match="must have mirrors that workspaces reach"):
            read(tmp_path, f"registry_mirrors: {{docker.io: '{loopback}'}}")
    assert read(tmp_path, "registry_mirrors: {docker.io: localhost.example.com}").registry_mirrors


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(FileProblem) as raised:
        read(tmp_path, "first_uid: 1\nnetwork_pool: x\nfirst_gid: 1\n")
    assert [line.split(": ")[1].split(" ")[0] for line in str(raised.value).splitlines()] == [
        "unknown",
        "first_uid",
        "network_pool",
    ]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="no such file; create it, or leave out --config"):
        read_machine_settings(tmp_path / "missing")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the ranges of a machine, in place of the real one."""
    folder = tmp_path / "ranges"
    create = engine_settings.Settings

    def create_settings(*arguments: Any, **changes: Any) -> Settings:
        return create(*arguments, **{**changes, "ranges_folder": folder})

    monkeypatch.setattr(engine_settings, "Settings", create_settings)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(registry, "TOOLS_FOLDER", tmp_path / "tools")
    return folder


def load(settings: RunnerSettings) -> Settings:
    engine = cast(Any, load_engines(settings, ("devcontainer",))["devcontainer"])
    return cast(Settings, engine.settings)


def test_the_engine_gets_what_the_file_says(tmp_path: Path, shared: Path) -> None:
    chosen = load(RunnerSettings("local", "", tmp_path / "state", machine=CHOSEN))
    assert (chosen.first_uid, chosen.network_pool) == (CHOSEN.first_uid, CHOSEN.network_pool)
    assert (chosen.feature_sources, chosen.max_limits) == (CHOSEN.feature_sources, CHOSEN.max_limits)
    assert chosen.refused_networks == (*REFUSED_NETWORKS, *CHOSEN.refused_networks)


async def test_a_runner_with_a_range_that_another_one_has_does_not_start(tmp_path: Path, shared: Path) -> None:
    claim_existing(load(RunnerSettings("first", "", tmp_path / "first")))
    load(RunnerSettings("same", "", tmp_path / "same"))
    overlapping = MachineSettings(network_pool="10.213.0.0/20", first_uid=1_500_000_000)
    settings = RunnerSettings("second", "", tmp_path / "second", machine=overlapping)
    with pytest.raises(FileProblem, match="overlap with those of another runner on this machine"):
        load(settings)
    findings: list[Finding] = [each async for each in examine(settings)]
    found = next(each for each in findings if each.subject == "user ids and networks")
    assert found.is_fatal and "overlap" in found.problem and "--config" in found.remedy
