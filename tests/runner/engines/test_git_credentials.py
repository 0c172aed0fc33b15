"""`git` in a real dev container, with credentials that are never on its disk, and a server with TLS and a login."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.client import ClientError
from fairlead.core.objects import Object
from fairlead.runner.engines.contract import ExecOptions, GitSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.git.service import GitCredentials
from tests.runner.harness.git_server import GitServer, running_git_server
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import Outcome, run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "917c4ed0-0000-4000-8000-000000000001"
TOKEN = "canary-of-the-token"
CONNECT = "import socket,sys;s=socket.socket(socket.AF_UNIX);s.settimeout(20);s.connect('/run/fairlead/sockets/git');"
ASK = CONNECT + "s.sendall(bytes.fromhex(sys.argv[1]));s.shutdown(1);print(s.makefile().read())"


@dataclass
class Api:
    """The server, of which the service uses one request."""

    tokens: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    error: ClientError | None = None

    async def get_git_credentials(self, workspace: Object, host: str, path: str) -> Object:
        self.requests.append((host, path))
        if self.error is not None:
            raise self.error
        return {"username": "ada", "password": self.tokens[host]} if host in self.tokens else {}


@dataclass
class OpenedWorkspace:
    """A running workspace."""

    containers: Containers
    engine: DevcontainerEngine
    server: GitServer
    api: Api
    service: GitCredentials
    template: Object = field(default_factory=dict)

    async def offer(self) -> None:
        """As before a session."""
        record = SimpleNamespace(engine="devcontainer")
        workspace = SimpleNamespace(uid=UID, record=record, workspace={"status": {"instance": self.template}})
        await self.service.offer(cast("Any", workspace))

    async def run(self, script: str, user: str = "") -> Outcome:
        return await run_inside(self.engine, UID, script, ExecOptions(user=user))

    async def ask(self, request: bytes, user: str = "") -> Outcome:
        return await self.run(f'python3 -c "{ASK}" {request.hex()}', user)

    async def git(self, command: str) -> Outcome:
        return await self.run(f"export GIT_TERMINAL_PROMPT=0 GIT_SSL_CAINFO=/tmp/ca.pem; git {command}")


@pytest.fixture(scope="module")
def place(containers: Containers) -> Iterator[tuple[Containers, DevcontainerEngine, GitServer]]:
    url = containers.commit("demo", {".devcontainer.json": json.dumps({"image": IMAGE, "remoteUser": "dev"})})
    spec = WorkspaceSpec(
        uid=UID,
        namespace="project",
        name="demo",
        owner="ada",
        source=GitSource(url),
        commit_name='Ada "L" \\ #;\n[core] x',
        commit_email="ada@example.com",
        git_path_hosts=("paths.example.com",),
    )
    engine = containers.engine()
    with running_git_server(containers.number, containers.folder / "git", f"ada:{TOKEN}") as server:
        server.create("shop.git")
        asyncio.run(engine.up(spec, RecordedTask()))
        asyncio.run(run_inside(engine, UID, f"cat >/tmp/ca.pem <<E\n{server.certificate}E"))
        yield containers, engine, server


@pytest.fixture
async def opened(place: tuple[Containers, DevcontainerEngine, GitServer]) -> Any:
    containers, engine, server = place
    api = Api({server.host: TOKEN})
    services = SimpleNamespace(api=api, engines={"devcontainer": engine})
    service = GitCredentials(cast("Any", services))
    running = OpenedWorkspace(containers, engine, server, api, service)
    await running.offer()
    try:
        yield running
    finally:
        await service.close()


async def test_a_session_commits_as_the_owner_and_pushes_to_a_private_repository(opened: OpenedWorkspace) -> None:
    url = opened.server.url("shop.git")
    script = (
        f"clone -q {url} /tmp/shop && cd /tmp/shop && git commit -q --allow-empty -m x && git push origin HEAD:main"
    )
    pushed = await opened.git(script)
    assert pushed.code == 0, pushed.errors
    assert opened.server.log("shop.git", "%an|%ae") == 'Ada "L" \\ #;[core] x|ada@example.com\n'
    assert set(opened.api.requests) == {(opened.server.host, "")}
    folders = ("/ws", "/var", "/private", "/workspaces")
    assert opened.containers.run(UID, "grep", "-rlsF", TOKEN, *folders, check=False) == ""


async def test_what_the_user_or_the_image_configures_takes_precedence(opened: OpenedWorkspace) -> None:
    await opened.run("printf '[user]\\nname = Own\\n[x]\\ny = system\\n' >/etc/gitconfig", user="root")
    try:
        script = "git config user.name; git config x.y; git config --global user.name G; git config user.name"
        read = await opened.run(script)
        assert read.output.splitlines() == ['Ada "L" \\ #;[core] x', "system", "G"]
    finally:
        await opened.run("rm -f /etc/gitconfig ~dev/.gitconfig", user="root")


async def test_revoked_credentials_are_of_no_use_for_the_next_request(opened: OpenedWorkspace) -> None:
    assert (await opened.git(f"ls-remote {opened.server.url('shop.git')}")).code == 0
    opened.api.tokens.clear()
    refused = await opened.git(f"ls-remote {opened.server.url('shop.git')}")
    assert refused.code != 0 and "could not read Username" in refused.errors


async def test_without_the_server_git_says_that_it_has_no_credentials(opened: OpenedWorkspace) -> None:
    opened.api.error = ClientError("the server cannot be reached")
    refused = await opened.git(f"ls-remote {opened.server.url('shop.git')}")
    assert refused.code != 0 and "could not read Username" in refused.errors


async def test_another_user_of_the_container_gets_nothing(opened: OpenedWorkspace) -> None:
    refused = await opened.ask(b"action=get\nprotocol=https\nhost=h\n\n", user="nobody")
    assert "PermissionError" in refused.errors
    works = await opened.run("git config user.email; touch /run/fairlead/sockets/x", user="nobody")
    assert works.output == "ada@example.com\n" and "Permission denied" in works.errors
    assert opened.api.requests == []


HOSTILE = {
    "a line break in the host": b"protocol=https\nhost=evil.example.com\nhost=%HOST%\n\n",
    "a carriage return": b"protocol=https\nhost=%HOST%\rx\n\n",
    "no host": b"protocol=https\npath=x\n\n",
    "an empty host": b"protocol=https\nhost=\n\n",
    "a URL": b"url=https://%HOST%/\nprotocol=https\nhost=%HOST%\n\n",
    "a path of another line": b"protocol=https\nhost=%HOST%\npath=x\0y\n\n",
    "in the clear": b"protocol=http\nhost=%HOST%\n\n",
    "another user": b"protocol=https\nhost=%HOST%\nusername=root\n\n",
    "too long": b"protocol=https\nhost=%HOST%\npath=" + b"x" * 17000 + b"\n\n",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_request_gets_nothing(opened: OpenedWorkspace, name: str) -> None:
    request = b"action=get\n" + HOSTILE[name].replace(b"%HOST%", opened.server.host.encode())
    answered = await opened.ask(request)
    assert TOKEN not in answered.output + answered.errors
    good = f"action=get\nprotocol=https\nhost={opened.server.host}\n\n"
    assert TOKEN in (await opened.ask(good.encode())).output, "the next one is served"


async def test_connections_that_say_nothing_do_not_block_others_for_long(opened: OpenedWorkspace) -> None:
    script = "import socket,time\nheld=[]\nfor _ in range(16):\n s=socket.socket(socket.AF_UNIX)\n"
    script += " s.connect('/run/fairlead/sockets/git')\n held.append(s)\ntime.sleep(60)\n"
    holding = asyncio.create_task(opened.run(f'timeout 60 python3 -c "{script}"'))
    await asyncio.sleep(1)
    listed = await asyncio.wait_for(opened.git(f"ls-remote {opened.server.url('shop.git')}"), 45)
    holding.cancel()
    assert listed.code == 0, listed.errors


async def test_the_host_of_a_hostile_repository_gets_its_own_credentials_only(opened: OpenedWorkspace) -> None:
    url = "https://paths.example.com/a/b.git"
    filled = await opened.run(f"printf 'url={url}\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill")
    assert filled.code != 0 and TOKEN not in filled.output
    assert opened.api.requests == [("paths.example.com", "a/b.git")]


async def test_a_template_without_credentials_gives_the_workspace_no_socket(opened: OpenedWorkspace) -> None:
    await opened.service.close()
    opened.containers.run(UID, "rm", "-f", "/private/sockets/git")
    opened.template = {"credentialForwarding": {"git": {"disabled": True}}}
    await opened.offer()
    assert (await opened.run("test -e /run/fairlead/sockets/git")).code == 1


async def test_the_socket_goes_with_the_container_and_comes_back(opened: OpenedWorkspace) -> None:
    task = RecordedTask("again")
    await opened.engine.stop(UID, task)
    serving = [each.serving for each in opened.service._offered.values()]
    await asyncio.wait_for(asyncio.gather(*serving, return_exceptions=True), 20)
    assert opened.service._offered == {}
    spec = WorkspaceSpec(uid=UID, namespace="project", name="demo", owner="ada", source=GitSource("file:///none"))
    await opened.engine.up(spec, task)
    await opened.offer()
    listed = await opened.git(f"ls-remote {opened.server.url('shop.git')}")
    assert listed.code == 0, listed.errors
