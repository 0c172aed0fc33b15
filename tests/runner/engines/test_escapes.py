"""Known faults of podman, buildah, runc and git, tried on a real workspace: they lead to its own holder at most.

Each attack looks for a canary of the machine: a file that only root can read, and a folder that only root can write to.
The programs of a test machine have many of these faults. Where one works, what it reaches is that of the workspace.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError, GitSource, WorkspaceSpec
from fairlead.runner.engines.devcontainer.diagnosis import CORE_PATTERN
from fairlead.runner.engines.devcontainer.isolation.holder import find_holder
from fairlead.runner.engines.devcontainer.layout import open_folder
from tests.runner.harness.canaries import CANARY, Closed, open_closed
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.root_programs import HARNESS_VARIABLE
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "e5ca9e00-0000-4000-8000-00000000000{}"
FROM = f"FROM {IMAGE} AS base\nUSER root\n"


@dataclass(frozen=True, slots=True)
class Machine:
    containers: Containers
    closed: Closed


@dataclass(frozen=True, slots=True)
class Attack:
    """A repository. `{closed}` and `{key}` in its texts are paths of the machine; `->` begins a link."""

    files: Mapping[str, str] = field(default_factory=dict)
    dockerfile: str = ""
    configuration: Mapping[str, object] = field(default_factory=dict)
    script: str = "true"
    """A command of the root user inside, if the workspace comes up."""
    escaped: str = "true"
    """A command of the root user of the holder: what a fault of podman or of the runtime leads to at most."""


ATTACKS = {
    "CVE-2024-1753: a mount of another stage whose source is a link to the root": Attack(
        dockerfile=FROM + "RUN ln -s / /rootdir\nFROM base\n"
        "RUN --mount=type=bind,from=base,source=/rootdir,target=/host,rw "
        "cat /host{key}; ls /host{closed}; touch /host{closed}/written; cat /host/etc/shadow; true\n",
        script="cat /host{key}; true",
    ),
    "CVE-2024-1753 with a folder that the machine has": Attack(
        dockerfile=FROM + "RUN ln -s {closed} /rootdir\nFROM base\n"
        "RUN --mount=type=bind,from=base,source=/rootdir,target=/host,rw cat /host/key; touch /host/written; true\n",
    ),
    "an ignore file that is a link": Attack(
        files={".devcontainer/.containerignore": "->{key}", ".devcontainer/.dockerignore": "->{key}"},
        dockerfile=FROM + "COPY . /copied\n",
    ),
    "an ignore file of the Dockerfile that is a link": Attack(
        files={
            ".devcontainer/Dockerfile.dockerignore": "->{key}",
            ".devcontainer/Dockerfile.containerignore": "->/dev/zero",
        },
        dockerfile=FROM + "COPY . /copied\n",
    ),
    "an ignore file that has no end": Attack(
        files={".devcontainer/.containerignore": "->/dev/zero"}, dockerfile=FROM + "COPY . /copied\n"
    ),
    "a Dockerfile that is a link": Attack(
        files={".devcontainer/Linked": "->{key}"}, configuration={"build": {"dockerfile": "Linked"}}
    ),
    "a context above the repository": Attack(
        dockerfile=FROM + "COPY . /copied\nRUN find /copied; grep -r canary-that /copied; true\n",
        configuration={"build": {"dockerfile": "Dockerfile", "context": "../../../../../../.."}},
    ),
    "a feature with links": Attack(
        files={
            ".devcontainer/evil/devcontainer-feature.json": json.dumps({"id": "evil", "version": "1.0.0"}),
            ".devcontainer/evil/install.sh": "#!/bin/sh\nls -la; cat key; cat folder/key; touch folder/written; true\n",
            ".devcontainer/evil/key": "->{key}",
            ".devcontainer/evil/folder": "->{closed}",
        },
        configuration={"image": IMAGE, "features": {"./evil": {}}},
    ),
    "a configuration of features that is a link": Attack(
        files={".devcontainer/evil/devcontainer-feature.json": "->{key}", ".devcontainer/evil/install.sh": "true\n"},
        configuration={"image": IMAGE, "features": {"./evil": {}}},
    ),
    "a lock file that is a link": Attack(
        files={
            ".devcontainer/devcontainer-lock.json": "->{closed}/written",
            ".devcontainer/tool/devcontainer-feature.json": json.dumps({"id": "tool", "version": "1.0.0"}),
            ".devcontainer/tool/install.sh": "#!/bin/sh\ntrue\n",
        },
        configuration={"image": IMAGE, "features": {"./tool": {}}},
    ),
    "CVE-2024-9407: options of a mount in its propagation": Attack(
        dockerfile=FROM + "RUN --mount=type=bind,source=.,target=/host,bind-propagation=rbind;upperdir={closed} "
        "ls /host; touch /host/written; true\n",
    ),
    "CVE-2024-9675: a cache that leaves its folder": Attack(
        dockerfile=FROM + "RUN --mount=type=cache,id=../../../../../../../../..{closed},target=/host "
        "cat /host/key; touch /host/written; true\n",
    ),
    "CVE-2024-9676: a file of users that is a link": Attack(
        dockerfile=FROM + "RUN rm /etc/passwd && ln -s {key} /etc/passwd\n", configuration={"remoteUser": "root"}
    ),
    "CVE-2024-11218: a mount that another stage replaces meanwhile": Attack(
        dockerfile=FROM + "RUN ln -s {closed} /link\nFROM base AS second\n"
        "RUN --mount=type=bind,from=base,source=/link,target=/host,rw,Z cat /host/key; touch /host/written; true\n",
    ),
    "CVE-2026-44517: files of an archive that leave their folder": Attack(
        files={".devcontainer/archive.tar": "archive"},
        dockerfile=FROM + "ADD archive.tar /unpacked/\nRUN ls -la /unpacked; cat /unpacked/link/key; true\n",
        script="cat /unpacked/link/key; true",
    ),
    "CVE-2026-55686: a working folder below a link to a folder of the machine": Attack(
        dockerfile=FROM + "RUN ln -s {closed} /w\nWORKDIR /w/written\n", script="ls -la /w; true"
    ),
    "a volume below a link to a folder of the machine": Attack(
        dockerfile=FROM + "RUN ln -s {closed} /v\nVOLUME /v /v/written\n",
        script="ls -la /v /v/; cat /v/key; touch /v/written/x; true",
    ),
    "a stage with links and pipes, of which another one copies": Attack(
        dockerfile=FROM + "RUN mkdir /s && ln -s {key} /s/key && ln -s {closed} /s/folder && mkfifo /s/pipe\n"
        "FROM base AS second\nCOPY --from=base /s/key /s/folder/key /copied/\nCOPY --from=base /s /copied/\n"
        "COPY --from=base /etc/hostname /s/folder/written\n",
        script="cat /copied/key; ls -la /copied /copied/folder/; true",
    ),
    "mounts of a build of every other type": Attack(
        dockerfile=FROM + "RUN --mount=type=tmpfs,target={closed} --mount=type=secret,id=key,target=/key "
        "--mount=type=ssh cat /key {key}; touch {closed}/written; cat /proc/1/environ; ls /run/secrets; true\n"
    ),
    "a service whose working folder, volumes and memory are below links": Attack(
        files={
            ".devcontainer/compose.yaml": "services:\n  app:\n    build: {context: ., dockerfile: Dockerfile}\n"
            "    command: sleep infinity\n    volumes: [../link:/host, data:/v/written]\n    tmpfs: [/v/written2]\n"
            "  other:\n    build: {context: ., dockerfile: Dockerfile}\n    working_dir: /v/written\n"
            "    command: sleep infinity\n",
            "link": "->{closed}",
        },
        dockerfile=FROM + "RUN ln -s {closed} /v\nWORKDIR /v/written\n",
        configuration={
            "dockerComposeFile": "compose.yaml",
            "service": "app",
            "build": {},
            "workspaceFolder": "/workspaces/x",
        },
        script="ls -la /v /v/ /host; cat /v/key /host/key; touch /host/written; true",
    ),
    "variables of a Dockerfile without a value": Attack(
        dockerfile=FROM + "ENV FAIRLEAD_RUNNER_KEY=\nENV HOME=\nRUN env\n", script="env; true"
    ),
    "CVE-2024-21626: a working folder that is an open file of the runtime": Attack(
        dockerfile=FROM + "WORKDIR /proc/self/fd/8\nRUN cat ../../../../../..{key} ../../..{key}; true\n",
        script="cat ../../../../../..{key}; true",
    ),
    "CVE-2024-21626 with the folder of the workspace": Attack(
        configuration={"image": IMAGE, "workspaceFolder": "/proc/self/fd/9"}, script="cat ../../../../..{key}; true"
    ),
    "CVE-2024-45310: a mount point below a link in a volume": Attack(
        dockerfile=FROM + "RUN mkdir /shared && ln -s {closed} /shared/link\n",
        configuration={"mounts": ["source=shared,target=/shared", "type=tmpfs,target=/shared/link/written"]},
        script="ls -la /shared /shared/link/; touch /shared/link/written/x; true",
    ),
    "CVE-2025-52881: mounts over files of the kernel, by links": Attack(
        dockerfile=FROM + "RUN ln -s /proc/self/attr /attributes && ln -s /proc/sys/kernel /settings\n",
        configuration={"mounts": ["type=tmpfs,target=/attributes", "type=tmpfs,target=/settings"]},
        script="for each in /settings /proc/sys/kernel; do echo '|{closed}/written' >$each/core_pattern; done; true",
    ),
    "CVE-2025-31133 and CVE-2025-52565: /dev/null and /dev/console that are links": Attack(
        dockerfile=FROM + "RUN rm -f /dev/null /dev/console; ln -s {key} /dev/null; ln -s {key} /dev/console; true\n",
        script="cat /dev/null /proc/kcore /proc/keys 2>&1 | head -c 1000; true",
    ),
    "CVE-2025-48384: a submodule whose path ends with a carriage return": Attack(
        files={
            ".gitmodules": '[submodule "x"]\n\tpath = "x\r"\n\turl = ./x\n',
            "hooks/post-checkout": "touch /work/ran\n",
        },
        configuration={"image": IMAGE},
        script="[ ! -e ran ]",
    ),
    "any fault that leads out of the container, or out of a build": Attack(
        configuration={"image": IMAGE},
        escaped="cat {key}; cat /proc/[0-9]*/root{key}; ls {closed}; touch {closed}/written; mkdir -p {closed}/more",
    ),
    "a link in place of the work folder": Attack(
        files={"sub": "->{closed}"}, configuration={"image": IMAGE}, script="cat sub/key; touch sub/written; true"
    ),
    "links to what the tools of the machine read": Attack(
        files={
            ".devcontainer/.env": "->{key}",
            ".devcontainer/containers.conf": "->{key}",
            ".npmrc": "->{key}",
            ".git-credentials": "->{key}",
        },
        configuration={"image": IMAGE},
    ),
}


@pytest.fixture(scope="module")
def machine(containers: Containers) -> Iterator[Machine]:
    os.environ["FAIRLEAD_RUNNER_KEY"] = CANARY
    try:
        with open_closed() as closed:
            yield Machine(containers, closed)
    finally:
        del os.environ["FAIRLEAD_RUNNER_KEY"]


def fill(text: str, machine: Machine) -> str:
    return text.replace("{closed}", str(machine.closed.folder)).replace("{key}", str(machine.closed.key))


def commit(machine: Machine, uid: str, attack: Attack) -> str:
    configuration = attack.configuration or {"build": {"dockerfile": "Dockerfile"}}
    if attack.dockerfile and "build" not in configuration:
        configuration = {**configuration, "build": {"dockerfile": "Dockerfile"}}
    files = {
        ".devcontainer/devcontainer.json": json.dumps({"userEnvProbe": "none", **configuration}),
        ".devcontainer/Dockerfile": fill(attack.dockerfile or FROM, machine),
        **{name: fill(text, machine) for name, text in attack.files.items()},
    }
    folder = machine.containers.repositories / uid
    for name in [name for name, text in files.items() if text.startswith("->")]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(files.pop(name).removeprefix("->"))
    if files.pop(".devcontainer/archive.tar", ""):
        write_archive(folder / ".devcontainer/archive.tar", machine)
    return machine.containers.commit(uid, files)


def write_archive(path: Path, machine: Machine) -> None:
    """A link to a folder of the machine, and files below the link and above the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = machine.containers.folder / "archive"
    (source / "link").mkdir(parents=True, exist_ok=True)
    (source / "link/written").touch()
    names = f"s,^link$,link,;s,^above,../../../../../../..{machine.closed.folder}/above,"
    (source / "above").touch()
    environment = {**os.environ, HARNESS_VARIABLE: "1"}
    create = ["tar", "-C", str(source), "-P", f"--transform={names}", "-cf", str(path)]
    (source / "folder").mkdir(exist_ok=True)
    link = source / "folder/link"
    if not link.is_symlink():
        link.symlink_to(machine.closed.folder)
    subprocess.run(
        [*create, "-C", str(source / "folder"), "link", "-C", str(source), "link/written", "above"],
        env=environment,
        check=True,
    )


async def try_attack(machine: Machine, number: int, attack: Attack) -> str:
    """Everything that a user can see: the log, the error, and the output inside."""
    uid, engine, task = UID.format(number % 10), machine.containers.engine(), RecordedTask()
    permissions = frozenset({"features"})
    seen = ""
    spec = WorkspaceSpec(
        uid,
        "project",
        "demo",
        "mallory",
        GitSource(commit(machine, f"{uid}-{number}", attack)),
        permissions=permissions,
    )
    try:
        try:
            await engine.up(spec, task)
        except EngineError as error:
            seen = f"{error.reason} {error.message}"
        else:
            seen = "came up"
            inside = await run_inside(engine, uid, fill(attack.script, machine))
            seen += f" {inside.output} {inside.errors}"
        holder = find_holder(open_folder(engine.settings.state_folder, uid).holder)
        if holder is not None:
            escaped = await holder.run("/bin/sh", "-c", fill(attack.escaped, machine))
            seen += escaped.output + escaped.errors
            if (await holder.run("grep", "-rlsF", CANARY, "/ws", "/var")).output:
                seen += f"{CANARY} is in the store of the workspace"
    finally:
        await engine.delete(uid, RecordedTask("cleanup"))
    return task.text + seen


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_reaches_nothing_of_the_machine(machine: Machine, name: str) -> None:
    number = list(ATTACKS).index(name)
    core_pattern = CORE_PATTERN.read_text()
    seen = await try_attack(machine, number, ATTACKS[name])
    written = machine.closed.take_names()
    assert CANARY not in seen.lower()
    assert written == ["key"]
    assert CORE_PATTERN.read_text() == core_pattern
    assert "root:$" not in seen and "/overlay/" not in seen.replace("/ws/store/overlay/", "")
