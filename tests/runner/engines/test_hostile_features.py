"""Features of dev containers from a registry whose operator, or whose authors, are hostile.

The CLI fetches and unpacks them in the holder, and their scripts run in builds. A template means what it says for them,
too, and whatever they do ends with a reason, within the limits of the workspace.
"""

import asyncio
import gzip
import json
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.contract import EngineError, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.isolation.holder import ENVIRONMENT
from fairlead.runner.engines.devcontainer.settings import Deadlines
from tests.runner.harness.hostile_registry import (
    FEATURE_MANIFEST,
    Entry,
    HostileFeature,
    make_layer,
)
from tests.runner.harness.image_registry import ImageRegistry, running_registry
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "fea70000-0000-4000-8000-00000000000{}"
SECRET = "canary-of-a-secret"
DISK_BYTES = 512 << 20
MAX_MESSAGE = 4200

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True, slots=True)
class Author:
    """Who publishes features, and names them in a repository."""

    containers: Containers
    registry: ImageRegistry
    folder: Path

    def name(self, feature: str) -> str:
        return f"{self.registry.address}/{feature}:1"

    def publish(self, feature: str, published: HostileFeature) -> str:
        published.write(self.folder / feature)
        return self.name(feature)

    def depend_on(self, *features: str) -> dict[str, Any]:
        return {"dependsOn": {self.name(each): {} for each in features}}

    async def bring_up(self, number: int, feature: str, *permissions: str, **changes: Any) -> "Attempt":
        """What an `up` of a workspace with this feature ends with. `changes` are those of the engine's settings."""
        uid = UID.format(number)
        configuration = {"image": IMAGE, "userEnvProbe": "none", "remoteUser": "root", "features": {feature: {}}}
        url = self.containers.commit(
            f"{uid}-{time.monotonic_ns()}", {".devcontainer/devcontainer.json": json.dumps(configuration)}
        )
        engine = self.containers.engine(workspace_disk_bytes=DISK_BYTES, **changes)
        task = RecordedTask()
        spec = WorkspaceSpec(
            uid,
            "project",
            "demo",
            "mallory",
            GitSource(url),
            secrets={"API_TOKEN": SECRET},
            permissions=frozenset(permissions),
        )
        inside = held = ""
        try:
            await engine.up(spec, task)
            inside = (await run_inside(engine, uid, "env; find /installed; cat /proc/self/status; ls -d /host")).output
            held = self.containers.run(uid, "/usr/bin/find", "/ws/home", "/workspaces", "/private", "-name", "planted")
        except EngineError as error:
            return Attempt(error.reason, error.message, task.text)
        finally:
            await engine.delete(uid, RecordedTask("delete"))
        return Attempt("", "", task.text, inside, held)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Empty reason: the workspace came up."""

    reason: str
    message: str
    log: str
    inside: str = ""
    held: str = ""
    """What was planted in the holder."""


@pytest.fixture(scope="module")
def author(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Author]:
    """The CLI speaks only TLS to registries, and trusts none of tests."""
    folder = tmp_path_factory.mktemp("registry") / "features"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, running_registry(containers.number, folder, with_tls=True) as registry:
        patch.setitem(ENVIRONMENT, "NODE_TLS_REJECT_UNAUTHORIZED", "0")
        yield Author(containers, registry, folder)


# --- what features ask for --------------------------------------------------------------------------------------------

GREEDY: Mapping[str, Any] = {
    "privileged": True,
    "capAdd": ["SYS_ADMIN"],
    "securityOpt": ["seccomp=unconfined"],
    "mounts": [{"type": "bind", "source": "/", "target": "/host"}],
}
LEFT_OUT = (
    "privileged is left out",
    "capAdd SYS_ADMIN is left out",
    "securityOpt seccomp=unconfined is left out",
    "the mount type=bind,src=/,dst=/host is left out",
)


def assert_confined(found: Attempt) -> None:
    """A workspace that asked for everything has nothing of it."""
    status = dict(line.split(":\t") for line in found.inside.splitlines() if ":\t" in line)
    assert not int(status["CapEff"], 16) >> 21 & 1, "it has SYS_ADMIN"
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert "/host" not in found.inside.splitlines()


@pytest.mark.parametrize("place", ["archive", "manifest"])
async def test_what_a_feature_asks_for_that_another_one_depends_on_is_left_out(author: Author, place: str) -> None:
    """A manifest may say something else than the archive: neither is asked alone."""
    greedy = HostileFeature(GREEDY) if place == "archive" else HostileFeature(announced=GREEDY)
    author.publish(f"greedy-{place}/third", greedy)
    second = HostileFeature(author.depend_on(f"greedy-{place}/third"))
    author.publish(f"greedy-{place}/second", second)
    first = author.publish(f"greedy-{place}/first", HostileFeature(author.depend_on(f"greedy-{place}/second")))
    found = await author.bring_up(1, first, "features")
    assert found.reason == "", found.message
    assert [each for each in LEFT_OUT if each not in found.log] == []
    assert_confined(found)


async def test_a_feature_that_changes_after_it_was_checked_gets_no_more(author: Author) -> None:
    author.publish("changed/second", HostileFeature(GREEDY))
    second = author.folder / "changed/second"
    answer = {"body": (second / "manifest.json").read_text(), "headers": {"Content-Type": FEATURE_MANIFEST}}
    behaviour = {"/changed/first/manifests/": {"after": 1, **answer}}
    name = author.publish("changed/first", HostileFeature(behaviour=behaviour))
    for blob in (each for each in second.iterdir() if not each.suffix):
        (author.folder / "changed/first" / blob.name).write_bytes(blob.read_bytes())
    found = await author.bring_up(2, name, "features")
    assert author.registry.count("/changed/first/manifests/") > 1
    assert found.reason == "", found.message
    assert "the mount type=bind,src=/,dst=/host is left out" in found.log
    assert_confined(found)


async def test_a_listed_source_does_not_stand_for_what_its_features_depend_on(author: Author) -> None:
    other = author.publish("unlisted/tool", HostileFeature())
    name = author.publish("listed/tool", HostileFeature(author.depend_on("unlisted/tool")))
    sources = (f"{author.registry.address}/listed",)
    found = await author.bring_up(3, name, feature_sources=sources)
    assert found.reason == Reason.POLICY_VIOLATION
    assert found.message == (
        f"feature {other!r} is not from a source that the runner lists; it needs the permission features"
    )


async def test_a_feature_is_installed_with_those_that_it_depends_on_and_without_secrets(author: Author) -> None:
    """Links and devices in its archive lead nowhere, and paths above it are not written to."""
    author.publish("good/base", HostileFeature(install="#!/bin/sh\nmkdir -p /installed && touch /installed/base\n"))
    metadata = {**author.depend_on("good/base"), "installsAfter": [author.name("good/base")], "init": True}
    metadata |= {"containerEnv": {"OF_FEATURE": "yes"}, "postCreateCommand": "echo hook-of-feature"}
    entries = [
        Entry("./link", kind=tarfile.SYMTYPE, link="/ws/home"),
        Entry("./link/planted", b"bad"),
        Entry("/ws/home/planted", b"bad"),
        Entry("../../../../../../ws/home/planted", b"bad"),
        Entry("./secrets", kind=tarfile.LNKTYPE, link="/private/secrets/API_TOKEN"),
        Entry("./all-secrets", kind=tarfile.SYMTYPE, link="/run/secrets.json"),
        Entry("./device", kind=tarfile.CHRTYPE, device=(1, 5)),
        Entry("./pipe", kind=tarfile.FIFOTYPE),
    ]
    install = "#!/bin/sh\ncat secrets all-secrets; env; find . -type b -o -type c -o -type p; cp -r . /installed/tool\n"
    name = author.publish("good/tool", HostileFeature(metadata, install, entries))
    found = await author.bring_up(4, name, "features")
    assert found.reason == "", found.message
    assert "OF_FEATURE=yes" in found.inside and "hook-of-feature" in found.log
    assert "/installed/base" in found.inside and "/installed/tool" in found.inside
    assert SECRET not in found.log
    assert "\n./device\n" not in found.log
    assert found.held == ""


# --- what features cost -----------------------------------------------------------------------------------------------


def nest(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


BROKEN: Mapping[str, tuple[HostileFeature, str, str]] = {
    "no-layers": (HostileFeature(manifest={"layers": []}), Reason.CONFIGURATION_INVALID, "TypeError"),
    "wrong-types": (
        HostileFeature({"mounts": {"a": 1}, "containerEnv": ["a"], "dependsOn": [1], "installsAfter": 7}),
        Reason.CONFIGURATION_INVALID,
        "not iterable",
    ),
    "deep": (
        HostileFeature(archive=make_layer([Entry("./devcontainer-feature.json", b'{"id":' + nest(200_000))])),
        Reason.CONFIGURATION_INVALID,
        "Failed to download package",
    ),
    "long-answer": (
        HostileFeature({"customizations": {"x": "y" * (3 << 20)}}),
        Reason.CONFIGURATION_INVALID,
        "is longer than 2 MiB",
    ),
    "too-long-answer": (
        HostileFeature({"customizations": {"x": "y" * (20 << 20)}}),
        Reason.CONFIGURATION_INVALID,
        "the dev container CLI",
    ),
    "bomb": (
        HostileFeature(archive=gzip.compress(make_layer([Entry("./zeros", bytes(DISK_BYTES))]), 1)),
        Reason.WORKSPACE_DISK_FULL,
        "the disk of the workspace is full",
    ),
    "no-answer": (
        HostileFeature(behaviour={"/manifests/": {"seconds": 600}}),
        Reason.STEP_TIMED_OUT,
        "took longer than 30 seconds",
    ),
}
"""Features, with the reason that an `up` fails with, and what its message says."""


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_feature_ends_the_start_with_a_reason(author: Author, name: str) -> None:
    feature, reason, said = BROKEN[name]
    published = author.publish(f"broken/{name}", feature)
    deadlines = Deadlines(configure=30 if reason == Reason.STEP_TIMED_OUT else 300)
    found = await author.bring_up(5, published, "features", deadlines=deadlines)
    assert found.reason == reason, found.message
    assert said in found.message
    assert len(found.message) < MAX_MESSAGE and "    at " not in found.message


async def test_features_that_depend_on_each_other_are_named(author: Author) -> None:
    author.publish("circle/two", HostileFeature(author.depend_on("circle/one")))
    name = author.publish("circle/one", HostileFeature(author.depend_on("circle/two")))
    found = await author.bring_up(6, name, "features")
    assert found.reason == Reason.CONFIGURATION_INVALID
    assert "Circular dependency detected" in found.message and author.name("circle/two") in found.message


@pytest.mark.parametrize("part", ["manifests", "blobs"])
async def test_a_feature_without_an_end_takes_no_more_memory_than_the_tools_have(
    author: Author, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI keeps in memory what a registry sends. Another workspace does not notice."""
    for module in ("isolation.cgroups", "configuration"):
        monkeypatch.setattr(f"fairlead.runner.engines.devcontainer.{module}.TOOLS_MEMORY_BYTES", 128 << 20)
    endless = author.publish(f"endless/of-{part}", HostileFeature(behaviour={f"/{part}/": {"endless": True}}))
    other = author.publish(f"beside/of-{part}", HostileFeature(author.depend_on()))
    attempts = await asyncio.gather(
        author.bring_up(7, endless, "features"),
        author.bring_up(8, other, "features"),
    )
    assert attempts[0].reason == Reason.CONFIGURATION_INVALID
    assert "the dev container CLI was killed; it may need more memory than 128Mi" in attempts[0].message
    assert attempts[1].reason == "", attempts[1].message
