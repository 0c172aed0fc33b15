"""Dotfiles whose repository, server or installation is hostile, or just broken.

A template names them, so their author is another one than that of the workspace's repository. Whatever they do, the
start of the workspace ends, with a reason or without them, and its neighbour does not notice.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fairlead.runner.engines.contract import ContainerState, EngineError, GitSource, ImageSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.settings import Deadlines
from tests.runner.harness.image_registry import ImageRegistry, running_registry
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "d07f11e5-0000-4000-8000-00000000000{}"
NEIGHBOUR = UID.format("0")
DISK_BYTES = 512 << 20
COMMAND_SECONDS = 20
NOT_INSTALLED = "the dotfiles could not be installed; the workspace comes up without them"

pytestmark = pytest.mark.timeout(300)


# --- a git server -----------------------------------------------------------------------------------------------------


def describe_packet(content: str) -> str:
    """As git frames what it sends."""
    return f"{len(content.encode()) + 4:04x}{content}"


COMMIT = "1" * 40
END = "0000"
ADVERTISED = "".join(
    [
        describe_packet("# service=git-upload-pack\n") + END,
        describe_packet(f"{COMMIT} HEAD\0side-band-64k shallow ofs-delta\n"),
        describe_packet(f"{COMMIT} refs/heads/main\n"),
    ]
)
SHALLOW = describe_packet(f"shallow {COMMIT}") + END
ADVERTISEMENT = {"Content-Type": "application/x-git-upload-pack-advertisement"}
RESULT = {"Content-Type": "application/x-git-upload-pack-result"}
SERVERS: Mapping[str, Mapping[str, Any]] = {
    "nothing": {"/info/refs": {"seconds": 600}},
    "branches without an end": {
        "/info/refs": {
            "headers": ADVERTISEMENT,
            "body": ADVERTISED,
            "repeat": "".join(describe_packet(f"{COMMIT} refs/heads/branch{number}\n") for number in range(1000)),
        }
    },
    "progress without an end": {
        "/info/refs": {"headers": ADVERTISEMENT, "body": ADVERTISED + END},
        "/git-upload-pack": {
            "headers": RESULT,
            "body": SHALLOW + SHALLOW + describe_packet("NAK\n"),
            "repeat": describe_packet("\2" + "counting objects\n" * 3000),
        },
    },
}
"""What a server sends, by the path of the request."""
INSTALLATIONS = {
    "output without an end": "yes an installation that prints without an end",
    "processes without an end": "f() { f | f & }; while :; do f; done",
    "files without an end": "dd if=/dev/zero of=$HOME/zeros bs=1M",
}
"""Scripts in a repository of dotfiles."""
PREPARE = """
mkdir /tmp/dotfiles && cd /tmp/dotfiles && git init -q && cp /workspaces/demo/install.sh . && git add -A
git -c user.name=m -c user.email=m@example.com commit -qm First
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a start ended with; without a reason, the workspace came up."""

    reason: str
    message: str
    log: str

    def expect_explanation(self, *, may_lack_memory: bool) -> None:
        """That the user learns why there are no dotfiles. What prints without an end is kept by the dev container CLI:
        how fast that is decides whether it, or podman, first lacks the memory or the time for it."""
        if not self.reason:
            assert NOT_INSTALLED in self.log
        elif self.reason == Reason.COMMAND_FAILED:
            assert may_lack_memory, self.message
            assert self.message.startswith("Installing Dotfiles failed: ")
            assert len(self.message) > len("Installing Dotfiles failed: ")
        else:
            assert self.reason == Reason.STEP_TIMED_OUT
            assert self.message == f"Installing Dotfiles: took longer than {COMMAND_SECONDS} seconds"


@dataclass(frozen=True, slots=True)
class Place:
    containers: Containers
    server: ImageRegistry

    async def bring_up(self, uid: str, url: str, install: str = "", *, is_restarted: bool = False) -> Ended:
        """With `is_restarted`, also if it came up: processes may be left that keep the others, also the main process,
        from starting any."""
        configuration = {
            "image": IMAGE,
            "remoteUser": "dev",
            "userEnvProbe": "none",
            "remoteEnv": {"GIT_SSL_NO_VERIFY": "1"},
            "onCreateCommand": "[ ! -s /workspaces/demo/install.sh ] || sh /workspaces/demo/prepare.sh",
        }
        files = {".devcontainer.json": json.dumps(configuration), "install.sh": install, "prepare.sh": PREPARE}
        engine = self.containers.engine(
            deadlines=Deadlines(commands=COMMAND_SECONDS),
            protocols=frozenset({"https", "file"}),
            workspace_disk_bytes=DISK_BYTES,
        )
        source = GitSource(self.containers.commit(uid, files))
        spec = WorkspaceSpec(uid, "project", "demo", "ada", source, options={"dotfiles": url})
        task = RecordedTask()
        ended = Ended("", "", "")
        try:
            await engine.up(spec, task)
        except EngineError as error:
            assert error.step == "LifecycleCommands"
            ended = Ended(error.reason, error.message, "")
        if ended.reason or is_restarted:
            await engine.stop(uid, RecordedTask("stop"))
            await engine.up(spec, RecordedTask("again"))  # without dotfiles
        return replace(ended, log=task.text)

    async def expect_usable(self, uid: str) -> None:
        """The workspace has its container and takes sessions, and so does its neighbour. The first can be deleted."""
        engine = self.containers.engine()
        try:
            assert (await engine.status(uid)).state is ContainerState.RUNNING
            for each in (uid, NEIGHBOUR):
                assert (await asyncio.wait_for(run_inside(engine, each, "echo works"), 120)).output == "works\n"
            neighbour = await engine.status(NEIGHBOUR)
            assert (neighbour.state, neighbour.cause) == (ContainerState.RUNNING, "")
        finally:
            await engine.delete(uid, RecordedTask("delete"))


@pytest.fixture(scope="module")
def place(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("server") / "repositories"
    for number, behaviour in enumerate(SERVERS.values()):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "behaviour.json").write_text(json.dumps(behaviour))
    neighbour = WorkspaceSpec(NEIGHBOUR, "project", "neighbour", "grace", ImageSource(IMAGE))
    asyncio.run(containers.engine().up(neighbour, RecordedTask()))
    with running_registry(containers.number, folder, with_tls=True) as server:
        yield Place(containers, server)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_that_sends_too_much_or_nothing_ends_with_a_reason(place: Place, name: str) -> None:
    number = list(SERVERS).index(name)
    uid = UID.format(number + 1)
    ended = await place.bring_up(uid, f"https://{place.server.address}/{number}")
    assert place.server.count(f"/{number}/info/refs")
    assert ended.reason or name != "nothing"
    ended.expect_explanation(may_lack_memory=name != "nothing")
    await place.expect_usable(uid)


@pytest.mark.parametrize("name", INSTALLATIONS)
async def test_an_installation_without_an_end_ends_with_a_reason(place: Place, name: str) -> None:
    uid = UID.format(len(SERVERS) + list(INSTALLATIONS).index(name) + 1)
    is_restarted = name == "processes without an end"
    install = f"#!/bin/sh\n{INSTALLATIONS[name]}\n"
    ended = await place.bring_up(uid, "file:///tmp/dotfiles", install, is_restarted=is_restarted)
    ended.expect_explanation(may_lack_memory=name != "files without an end")
    await place.expect_usable(uid)
