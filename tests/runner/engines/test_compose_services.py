"""Workspaces of Compose files, with real containers: services beside them, from the first start to the end."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from fairlead.runner.engines.contract import ContainerState, EngineError, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from tests.runner.harness.podman import IMAGE, Containers, expect_nothing_left
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "c0400000-0000-4000-8000-000000000001"
SERVER = """
import signal, socket, sys
def end(*arguments):
    open("/data/end", "a").write("ended\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
listening = socket.create_server(("0.0.0.0", 5432))
starts = open("/data/starts", "a+")
starts.write("start\\n")
starts.flush()
open("/tmp/ready", "w")
print("the database is ready", flush=True)
while True:
    connected, _ = listening.accept()
    starts.seek(0)
    connected.sendall(f"starts: {len(starts.readlines())}, {open('/seed.txt').read()}".encode())
    connected.close()
"""
ASK = "import socket; s = socket.create_connection(('database', 5432)); print(s.makefile().read())"
COMPOSE = f"""
services:
  app:
    image: {IMAGE}
    user: dev
    command: sh -c "echo the workspace has begun; exec sleep infinity"
    volumes: ["../..:/workspaces:cached"]
    environment: {{STAGE: "${{STAGE:-none}}"}}
    depends_on:
      db: {{condition: service_healthy}}
      migrate: {{condition: service_completed_successfully}}
  db:
    build: {{context: ../db}}
    user: root
    volumes: ["data:/data", "./seed.txt:/seed.txt:ro", "/etc:/host"]
    healthcheck: {{test: [CMD, test, -e, /tmp/ready], interval: 1s}}
    restart: unless-stopped
    networks: {{default: {{aliases: [database]}}}}
    ports: ["15432:5432"]
    cap_add: [SYS_ADMIN]
  migrate:
    image: {IMAGE}
    command: [sh, -c, "echo migrated >/workspaces/demo/migrated; exit 3"]
    user: root
    volumes: ["../..:/workspaces"]
  broken:
    image: {IMAGE}
    command: [sh, -c, "echo it is broken; exit 7"]
volumes: {{data: }}
"""
CONFIGURATION: dict[str, Any] = {
    "dockerComposeFile": "compose.yaml",
    "service": "app",
    "workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}",
    "userEnvProbe": "none",
    "postCreateCommand": f'python3 -c "{ASK}" >created; echo $STAGE >>created',
}


@dataclass(frozen=True, slots=True)
class Workspace:
    containers: Containers
    engine: DevcontainerEngine
    spec: WorkspaceSpec
    task: RecordedTask

    async def run(self, script: str) -> list[str]:
        found = await run_inside(self.engine, UID, script)
        assert found.code == 0, found.errors
        return found.output.split("\n")[:-1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workspace(containers: Containers) -> AsyncIterator[Workspace]:
    files = {
        ".devcontainer/devcontainer.json": json.dumps(CONFIGURATION),
        ".devcontainer/compose.yaml": COMPOSE,
        ".devcontainer/.env": "STAGE=testing\n",
        ".devcontainer/seed.txt": "seeded",
        "db/Dockerfile": f"FROM {IMAGE}\nCOPY server.py /server.py\nCMD exec python3 /server.py\n",
        "db/server.py": SERVER,
    }
    spec = WorkspaceSpec(
        UID,
        "project",
        "demo",
        "ada",
        GitSource(containers.commit(UID, files)),
        secrets={"API_TOKEN": "canary-of-a-secret"},
        environment={"OF_THE_TEMPLATE": "value"},
    )
    engine, task = containers.engine(), RecordedTask()
    await engine.up(spec, task)
    yield Workspace(containers, engine, spec, task)
    first_uid = containers.find_first_uid(UID)
    await engine.delete(UID, RecordedTask())
    expect_nothing_left(UID, first_uid, seconds=60)


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_workspace_finds_its_services_when_its_commands_run(workspace: Workspace) -> None:
    lines = await workspace.run("cat created migrated; pwd; id -un; git status --short; echo $STAGE")
    assert lines[:5] == ["starts: 1, seeded", "testing", "migrated", "/workspaces/demo", "dev"]
    assert sorted(lines[5:-1]) == ["?? created", "?? migrated"] and lines[-1] == "testing"


async def test_what_services_may_not_have_and_how_they_end_is_in_the_log(workspace: Workspace) -> None:
    text = workspace.task.text
    assert "warning: service db: mount type=bind,source=/etc,target=/host is left out: only volumes" in text
    assert "warning: service db: capAdd SYS_ADMIN is left out" in text
    assert "warning: service db: port 15432 of the machine is not opened; use 5432" in text
    assert "warning: service migrate: it has ended with code 3" in text
    assert "warning: service broken: it has ended with code 7" in text


async def test_services_have_the_ids_the_limits_and_the_network_of_the_workspace(workspace: Workspace) -> None:
    found = workspace.containers.podman
    own = found(UID, "exec", "service-db", "sh", "-c", "cat /proc/self/uid_map /proc/self/cgroup").splitlines()
    assert own[0] == (await workspace.run("cat /proc/self/uid_map"))[0]
    assert any("/box/libpod-" in line for line in own if "memory" in line or line.startswith("0::"))
    networks = [found(UID, "exec", name, "readlink", "/proc/self/ns/net") for name in ("workspace", "service-db")]
    assert networks[0] == networks[1]


async def test_services_get_neither_secrets_nor_variables_of_the_template(workspace: Workspace) -> None:
    assert (await workspace.run("cat /run/fairlead/secrets/API_TOKEN; echo; echo $OF_THE_TEMPLATE"))[1] == "value"
    shown = workspace.containers.podman(UID, "exec", "service-db", "sh", "-c", "env; ls /run/fairlead 2>&1; true")
    assert "OF_THE_TEMPLATE" not in shown and "canary" not in shown and "No such file" in shown


async def test_ports_of_services_are_ports_of_the_workspace(workspace: Workspace) -> None:
    listed = {each.port: each for each in await workspace.engine.list_ports(UID)}
    assert listed[5432].process == "python3"
    stream = await workspace.engine.open_port(UID, 5432)
    assert (await stream.reader.read(1 << 16)).startswith(b"starts: ")
    await stream.abort()


async def test_the_log_of_a_service_can_be_read(workspace: Workspace) -> None:
    assert await workspace.engine.read_service_log(UID, "db") == b"the database is ready\n"
    assert await workspace.engine.read_service_log(UID, "broken") == b"it is broken\n"
    assert await workspace.engine.read_service_log(UID, "app") == b"the workspace has begun\n"
    with pytest.raises(EngineError, match="the workspace has no service"):
        await workspace.engine.read_service_log(UID, "../etc")


async def test_services_stop_and_start_with_the_workspace_and_keep_their_files(workspace: Workspace) -> None:
    before = workspace.containers.podman(UID, "container", "inspect", "--format={{.Id}}", "service-db")
    await workspace.engine.stop(UID, RecordedTask())
    assert (await workspace.engine.status(UID)).state == ContainerState.STOPPED
    task = RecordedTask()
    await workspace.engine.up(workspace.spec, task)
    assert task.steps == ["Prepare", "Configure", "Start"]
    assert workspace.containers.podman(UID, "container", "inspect", "--format={{.Id}}", "service-db") == before
    assert await workspace.run(f'python3 -c "{ASK}"') == ["starts: 2, seeded"]
    assert workspace.containers.podman(UID, "exec", "service-db", "cat", "/data/end") == "ended\n"


async def test_a_changed_service_is_created_anew_and_a_link_out_of_the_repository_is_left_out(
    workspace: Workspace,
) -> None:
    changed = COMPOSE.replace("./seed.txt:/seed.txt:ro", "./link:/private:ro,./new:/new".replace(",./", '", "./'))
    edited = changed.replace("../db}", "../db, args: {X: y}}")
    await workspace.run(f"cd .devcontainer && cat >compose.yaml <<'END'\n{edited}\nEND\nln -s /private link")
    await workspace.engine.stop(UID, RecordedTask())
    task = RecordedTask()
    await workspace.engine.up(workspace.spec, task)
    assert "service db: the mount of /workspaces/demo/.devcontainer/link is left out: it leads out" in task.text
    listed = workspace.containers.podman(UID, "exec", "service-db", "sh", "-c", "ls -d /private /new 2>/dev/null; true")
    assert listed == "/new\n"


async def test_an_image_of_a_service_that_cannot_be_pulled_fails_the_start_with_podmans_reason(
    containers: Containers,
) -> None:
    uid = UID[:-1] + "2"
    missing = "registry.invalid/missing:1"
    files = {
        ".devcontainer/devcontainer.json": json.dumps({"dockerComposeFile": "compose.yaml", "service": "app"}),
        ".devcontainer/compose.yaml": f"services: {{app: {{image: {IMAGE}}}, db: {{image: '{missing}'}}}}",
    }
    engine = containers.engine()
    spec = WorkspaceSpec(uid, "project", "demo", "ada", GitSource(containers.commit(uid, files)))
    try:
        with pytest.raises(EngineError) as raised:
            await engine.up(spec, RecordedTask())
        assert raised.value.reason == Reason.IMAGE_PULL_FAILED
        assert raised.value.message.startswith(f"the image {missing} cannot be pulled: ")
        assert "registry.invalid" in raised.value.message.partition("pulled: ")[2]
    finally:
        await engine.delete(uid, RecordedTask())


async def test_a_workspace_whose_own_command_ends_says_so_and_what_to_do(containers: Containers) -> None:
    uid = UID[:-1] + "3"
    files = {
        ".devcontainer/devcontainer.json": json.dumps({"dockerComposeFile": "compose.yaml", "service": "app"}),
        ".devcontainer/compose.yaml": f'services: {{app: {{image: {IMAGE}, command: sh -c "echo no more; exit 3"}}}}',
    }
    engine = containers.engine()
    spec = WorkspaceSpec(uid, "project", "demo", "ada", GitSource(containers.commit(uid, files)))
    try:
        with pytest.raises(EngineError) as raised:
            await engine.up(spec, RecordedTask())
        assert raised.value.message.startswith(
            "the service app, which is the workspace, has ended with code 3 (no more); give it a command that stays, "
            "such as `command: sleep infinity`. What failed: "
        )
    finally:
        await engine.delete(uid, RecordedTask())
