"""Images that need credentials: each is pulled for one workspace, and nothing in a workspace gets the credentials."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import (
    EngineError,
    GitSource,
    ImageSource,
    Reason,
    RegistryCredentials,
    WorkspaceSpec,
)
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from tests.runner.harness.hostile_registry import HostileImage
from tests.runner.harness.image_registry import ImageRegistry, running_registry
from tests.runner.harness.podman import TOOLS, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

FIRST, SECOND = "9011ee00-0000-4000-8000-000000000001", "9011ee00-0000-4000-8000-000000000002"
USER, PASSWORD = "ada", "canary-of-the-registry"
ENCODED = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SEARCH = f"grep -rlsE '{PASSWORD}|{ENCODED}' /ws/home /run /etc /private /var /tmp /workspaces /proc/[0-9]*/environ"
"""For the root user of the holder, who has more than the container."""


@dataclass(frozen=True, slots=True)
class Private:
    containers: Containers
    registry: ImageRegistry
    engine: DevcontainerEngine
    folder: Path

    @property
    def image(self) -> str:
        return f"{self.registry.address}/team/tools:1"

    def credentials(self, password: str = PASSWORD, path: str = "/team") -> tuple[RegistryCredentials, ...]:
        other = RegistryCredentials("registry.example.com", "x", "another-password")
        return (other, RegistryCredentials(f"{self.registry.address}{path}", USER, password))

    def spec(self, uid: str) -> WorkspaceSpec:
        configuration = {
            "dockerComposeFile": "compose.yaml",
            "service": "app",
            "workspaceFolder": "/workspaces/demo",
            "userEnvProbe": "none",
        }
        service = f"{{image: '{self.image}', user: root, command: sleep infinity}}"
        files = {
            ".devcontainer.json": json.dumps(configuration),
            "compose.yaml": f"services: {{app: {service}, db: {service}}}",
        }
        repository = self.containers.repositories / uid
        url = f"file://{repository}" if repository.exists() else self.containers.commit(uid, files)
        return WorkspaceSpec(uid, "project", "demo", "ada", GitSource(url))


@pytest.fixture(scope="module")
def private(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    folder = tmp_path_factory.mktemp("private") / "images"
    HostileImage(base=TOOLS / "workspace-image.tar").write(folder)
    (folder / "authorization").write_text(f"Basic {ENCODED}")
    with running_registry(containers.number, folder) as registry:
        registries = folder.with_name("registries.conf")
        registries.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        yield Private(containers, registry, containers.engine(registries=registries), folder)


@pytest.mark.timeout(300)
async def test_an_image_is_pulled_with_credentials_that_the_workspace_never_sees(private: Private) -> None:
    engine, spec = private.engine, private.spec(FIRST)
    with pytest.raises(EngineError) as raised:
        await engine.up(replace(spec, registries=private.credentials("wrong-password")), RecordedTask())
    assert raised.value.reason == Reason.IMAGE_PULL_FAILED
    assert "unauthorized" in raised.value.message or "authentication required" in raised.value.message
    assert "wrong-password" not in raised.value.message
    task = RecordedTask()
    await engine.up(replace(spec, registries=private.credentials()), task)
    assert (await run_inside(engine, FIRST, "id -un; cat /workspaces/demo/compose.yaml")).output.startswith("root\n")
    assert set(private.containers.podman(FIRST, "images", "--format", "{{.ReadOnly}}").split()) == {"true"}
    assert private.containers.run(FIRST, "/bin/sh", "-c", SEARCH, check=False) == ""
    assert PASSWORD not in task.text and ENCODED not in task.text
    stored = "".join(path.read_text(errors="replace") for path in engine._folder(FIRST).root.glob("*.json"))
    assert PASSWORD not in stored and ENCODED not in stored


@pytest.mark.timeout(300)
async def test_another_workspace_does_not_get_the_image_without_credentials(private: Private) -> None:
    with pytest.raises(EngineError) as raised:
        await private.engine.up(private.spec(SECOND), RecordedTask())
    assert raised.value.reason == Reason.IMAGE_PULL_FAILED
    await private.engine.delete(SECOND, RecordedTask("cleanup"))


@pytest.mark.timeout(300)
async def test_a_stopped_workspace_starts_without_the_registry_and_always_asks_it_for_a_new_container(
    private: Private,
) -> None:
    engine, spec = private.engine, private.spec(FIRST)
    await engine.stop(FIRST, RecordedTask())
    before = private.registry.count("/manifests/")
    await engine.up(spec, RecordedTask())
    assert private.registry.count("/manifests/") == before
    always = replace(spec, registries=private.credentials(), recreate=True, options={"imagePullPolicy": "Always"})
    await engine.up(always, RecordedTask())
    assert private.registry.count("/manifests/") > before
    with pytest.raises(EngineError, match="imagePullPolicy"):
        await engine.up(replace(always, options={"imagePullPolicy": "Never"}), RecordedTask())
    await engine.delete(FIRST, RecordedTask("cleanup"))


@pytest.mark.timeout(300)
async def test_images_of_a_registry_with_a_mirror_come_from_there(private: Private) -> None:
    (private.folder / "authorization").unlink()
    mirrors = (("images.example.invalid", f"http://{private.registry.address}"),)
    engine = private.containers.engine(registry_mirrors=mirrors)
    image = "images.example.invalid/team/tools:1"
    await engine.up(WorkspaceSpec(SECOND, "project", "demo", "ada", ImageSource(image)), RecordedTask())
    assert (await engine.status(SECOND)).state == "Running"
    await engine.delete(SECOND, RecordedTask("cleanup"))
    await engine.close()
