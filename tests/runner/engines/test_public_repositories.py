"""Configurations of public repositories under the default policy: what runs, what warns and what is refused."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.contract import EngineError, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.adaptation import adapt_configuration
from fairlead.runner.engines.devcontainer.isolation.holder import ENVIRONMENT
from tests.runner.engines.public_configurations import FEATURES, IMAGE, REFUSED, TABLE, PublicConfiguration
from tests.runner.engines.test_compose import render
from tests.runner.harness import podman
from tests.runner.harness.grants import make_grant
from tests.runner.harness.hostile_registry import HostileFeature
from tests.runner.harness.image_registry import ImageRegistry, running_registry
from tests.runner.harness.podman import Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "9b11c000-0000-4000-8000-{:012d}"
MIN_SHARE = 0.8
WORK_FOLDER, BASENAME = "/workspaces/demo", "${localWorkspaceFolderBasename}"
LONG = pytest.mark.long
ALIKE = {
    **dict.fromkeys(("Python, image only", "Python, notebooks", "Node.js", "PHP", "Ruby"), "Documentation"),
    **dict.fromkeys(("Python, features", "Java", "C#", "Terraform"), "TypeScript framework, features"),
    **dict.fromkeys(("Rust, cache in a volume",), "Node.js, modules in a volume"),
    **dict.fromkeys(("Go, properties", "C++, kernel settings"), "Go"),
    **dict.fromkeys(("C++, Dockerfile", "Firmware, devices"), "Operator, network of the machine"),
    **dict.fromkeys(("TypeScript framework, ports of the machine", "Java, keys of the user"), "Robotics, desktop"),
    **dict.fromkeys(("Cloud tools, a script on the machine first",), "Robotics, desktop"),
    **dict.fromkeys(("Python, machine learning with GPUs",), "Database, variables of a file"),
}
"""Configurations that run as others do: what is left out of them is seen without a container."""
ALIKE_COMPOSE = (
    "Django with a database, Compose",
    "Messages and search, Compose with limits of the machine",
    "Containers of the machine, Compose",
)
METADATA: dict[str, dict[str, Any]] = {
    "docker-in-docker": {
        "privileged": True,
        "entrypoint": "/bin/true",
        "mounts": [{"source": "docker-${devcontainerId}", "target": "/var/lib/docker", "type": "volume"}],
    },
    "docker-outside-of-docker": {
        "securityOpt": ["label=disable"],
        "mounts": [{"source": "/var/run/docker.sock", "target": "/var/run/docker-host.sock", "type": "bind"}],
    },
}
"""What these features ask for, as those of that name do."""


@dataclass(frozen=True, slots=True)
class Public:
    containers: Containers
    registry: ImageRegistry
    folder: Path

    @property
    def namespace(self) -> str:
        return f"{self.registry.address}/devcontainers/features"

    def publish(self, feature: str) -> None:
        name = feature.rpartition("/")[2].partition(":")[0]
        target = self.folder / "devcontainers/features" / name
        if feature.startswith(FEATURES) and not target.exists():
            install = f"#!/bin/sh\nmkdir -p /installed && touch /installed/{name}\n"
            HostileFeature({"id": name, **METADATA.get(name, {})}, install).write(target)

    def fill(self, text: str) -> str:
        return text.replace(IMAGE, podman.IMAGE).replace(FEATURES, self.namespace)


@pytest.fixture(scope="module")
def public(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Public]:
    """The CLI speaks only TLS to registries, and trusts none of tests."""
    folder = tmp_path_factory.mktemp("registry") / "features"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, running_registry(containers.number, folder, with_tls=True) as registry:
        patch.setitem(ENVIRONMENT, "NODE_TLS_REJECT_UNAUTHORIZED", "0")
        yield Public(containers, registry, folder)


def test_most_public_configurations_run_under_the_default_policy() -> None:
    refused = [name for name, each in TABLE.items() if each.outcome == REFUSED]
    assert len(TABLE) >= 30 and 1 - len(refused) / len(TABLE) >= MIN_SHARE


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_left_out_of_a_configuration_that_runs_as_another_one(name: str) -> None:
    wanted = TABLE[name]
    grant = make_grant(feature_sources=(FEATURES,))
    warnings = "\n".join(adapt_configuration(json.dumps(wanted.properties), grant).warnings)
    assert (wanted.says in warnings) if wanted.says else warnings == ""


@pytest.mark.parametrize("name", [name for name, each in TABLE.items() if each.compose])
def test_what_is_left_out_of_services_is_seen_without_a_container(tmp_path: Path, name: str) -> None:
    wanted = TABLE[name]
    composed = render(tmp_path, wanted.compose.replace(IMAGE, podman.IMAGE), wanted.properties)
    adapted = adapt_configuration(json.dumps(composed.configuration), make_grant(feature_sources=(FEATURES,)))
    warnings = "\n".join([*composed.warnings, *adapted.warnings])
    assert (wanted.says in warnings) if wanted.says else warnings == ""
    assert tuple(each["name"] for each in composed.plan["services"]) == wanted.services


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG if name in (*ALIKE, *ALIKE_COMPOSE) else ()) for name in TABLE]
)
async def test_a_public_configuration(public: Public, name: str) -> None:
    wanted = TABLE[name]
    uid = UID.format(list(TABLE).index(name))
    for feature in wanted.properties.get("features", {}):
        public.publish(feature)
    text = public.fill(json.dumps({"userEnvProbe": "none", **wanted.properties}))
    files = {".devcontainer/devcontainer.json": text}
    if wanted.dockerfile:
        files[".devcontainer/Dockerfile"] = public.fill(wanted.dockerfile)
    if wanted.compose:
        files[".devcontainer/compose.yaml"] = public.fill(wanted.compose)
    spec = WorkspaceSpec(uid, "project", "demo", "ada", GitSource(public.containers.commit(uid, files)))
    engine = public.containers.engine(feature_sources=(public.namespace,))
    task = RecordedTask()
    try:
        if wanted.outcome == REFUSED:
            with pytest.raises(EngineError) as raised:
                await engine.up(spec, task)
            assert raised.value.reason == Reason.POLICY_VIOLATION and wanted.says in raised.value.message
            return
        await engine.up(spec, task)
        await check_running(public, wanted, engine, uid)
        warnings = "\n".join(line for line in task.text.splitlines() if line.startswith("warning: "))
        assert (wanted.says in warnings) if wanted.says else warnings == ""
    finally:
        await engine.delete(uid, RecordedTask("cleanup"))


async def check_running(public: Public, wanted: PublicConfiguration, engine: Any, uid: str) -> None:
    """Sessions are where the repository wants them, with the sources and the features."""
    found = await run_inside(engine, uid, "pwd; ls -a .devcontainer; ls /installed 2>/dev/null; true")
    lines = found.output.split()
    assert lines[0] == wanted.properties.get("workspaceFolder", WORK_FOLDER).replace(BASENAME, "demo")
    assert "devcontainer.json" in lines
    names = [each.rpartition("/")[2].partition(":")[0] for each in wanted.properties.get("features", {})]
    assert [each for each in names if each not in lines] == []
    running = public.containers.podman(uid, "ps", "--format={{.Names}}").split()
    assert sorted(running) == sorted(["workspace", *(f"service-{each}" for each in wanted.services)])
