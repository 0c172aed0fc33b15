"""Repositories that try to reach the machine, another workspace or the runner, with the real CLI and real containers.

Each table has one row per trick. The tricks of a table are in one repository, because everything that is refused is
reported at once, and because one container can try many things.
"""

import asyncio
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.runner.engines.contract import EngineError, GitSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer import configuration as configuration_module
from fairlead.runner.engines.devcontainer.adaptation import Adapted
from tests.runner.harness.podman import IMAGE, Containers
from tests.runner.harness.processes import list_pids
from tests.runner.harness.sessions import run_inside
from tests.runner.harness.tasks import RecordedTask

UID = "badbadba-0000-4000-8000-00000000000{}"
CANARY = "canary-of-the-machine"
SECRET, GIT_TOKEN = "canary-of-a-secret", "canary-of-the-git-token"

# --- what is refused before anything is built -------------------------------------------------------------------------

REFUSED_CONFIGURATION: Mapping[str, tuple[dict[str, Any], str]] = {
    "command on the machine": ({"initializeCommand": "touch {marker}"}, "initializeCommand is refused"),
    "privileged by an argument": ({"runArgs": ["--privileged"]}, "runArgs '--privileged' is refused"),
    "processes of the machine": ({"runArgs": ["--pid=host"]}, "runArgs '--pid=host' is refused"),
    "network of the machine": ({"runArgs": ["--network=host"]}, "runArgs '--network=host' is refused"),
    "users of the machine": ({"runArgs": ["--userns=host"]}, "runArgs '--userns=host' is refused"),
    "device": ({"runArgs": ["--device=/dev/sda"]}, "runArgs '--device=/dev/sda' is refused"),
    "volume by an argument": ({"runArgs": ["-v", "/:/host"]}, "runArgs '/:/host' is refused"),
    "environment file": (
        {"runArgs": ["--env-file=/proc/1/environ"]},
        "runArgs '--env-file=/proc/1/environ' is refused",
    ),
    "port of the machine": ({"appPort": [22]}, "appPort is refused"),
    "feature of any registry": (
        {"features": {"registry.example.com/x/y:1": {}}},
        "feature 'registry.example.com/x/y:1'",
    ),
    "unknown property": ({"extends": "/etc"}, "extends is not a property"),
}
"""Properties of a devcontainer.json, and what the refusal says if nothing is adapted: what the adaptation would leave
out is refused."""

LEFT_OUT: Mapping[str, tuple[dict[str, Any], str]] = {
    "command on the machine": ({"initializeCommand": "touch {marker}"}, "initializeCommand is left out"),
    "privileged": ({"privileged": True}, "privileged is left out"),
    "capability": ({"capAdd": ["SYS_ADMIN", "SYS_PTRACE", "ALL"]}, "capAdd SYS_ADMIN is left out"),
    "all capabilities": ({"runArgs": ["--cap-add=ALL"]}, "capAdd ALL is left out"),
    "no seccomp": ({"securityOpt": ["seccomp=unconfined"]}, "securityOpt seccomp=unconfined is left out"),
    "no AppArmor": ({"runArgs": ["--security-opt", "apparmor=unconfined"]}, "apparmor=unconfined is left out"),
    "privileged by an argument": ({"runArgs": ["--privileged"]}, "privileged is left out"),
    "processes of the machine": ({"runArgs": ["--pid=host"]}, "runArgs --pid=host is left out"),
    "shared memory of the machine": ({"runArgs": ["--ipc", "host"]}, "runArgs --ipc=host is left out"),
    "network of the machine": ({"runArgs": ["--network=host"]}, "runArgs --network=host is left out"),
    "users of the machine": ({"runArgs": ["--userns=host"]}, "runArgs --userns=host is left out"),
    "device": ({"runArgs": ["--device=/dev/sda"]}, "runArgs --device=/dev/sda is left out"),
    "volume by an argument": ({"runArgs": ["-v", "/:/host"]}, "source=/,target=/host is left out"),
    "mount by an argument": ({"runArgs": ["--mount", "type=bind,source=/etc,target=/e"]}, "target=/e is left out"),
    "environment file": ({"runArgs": ["--env-file=/proc/1/environ"]}, "--env-file=/proc/1/environ is left out"),
    "hooks": ({"runArgs": ["--hooks-dir", "/workspaces/demo"]}, "--hooks-dir=/workspaces/demo is left out"),
    "mount of the root": ({"mounts": ["type=bind,source=/,target=/root2"]}, "target=/root2 is left out"),
    "socket of podman": (
        {"mounts": ["type=bind,source=/run/podman/podman.sock,target=/var/run/docker.sock"]},
        "docker.sock is left out",
    ),
    "mount over the secrets": ({"mounts": ["type=tmpfs,target=/run/fairlead"]}, "target=/run/fairlead is left out"),
    "device as a volume": (
        {"mounts": ["type=volume,source=v,target=/v,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/"]},
        "volume-opt=device=/ is left out",
    ),
    "folder as a volume": ({"mounts": ["type=volume,source=../../etc,target=/v2"]}, "target=/v2 is left out"),
    "work folder elsewhere": (
        {"workspaceMount": "type=bind,source=/,target=/w", "workspaceFolder": "/w"},
        "the work folder is mounted at /w",
    ),
    "port of the machine": ({"appPort": ["0.0.0.0:{port}:{port}"]}, "no port of the machine is opened"),
    "unknown property": ({"extends": "/etc"}, "extends is left out"),
    "options of builds": (
        {"build": {"dockerfile": "Dockerfile", "options": ["--volume=/:/host", "--secret=id=x,src=/etc/shadow"]}},
        "build.options is left out",
    ),
}
"""Properties of a devcontainer.json, and the warning."""

INHERITED = {
    "privileged by a feature": "privileged is left out",
    "capability by a feature": "capAdd SYS_ADMIN is left out",
    "no AppArmor by a feature": "securityOpt apparmor=unconfined is left out",
    "socket of podman by a feature": "dst=/var/run/docker.sock is left out",
}
LABEL = [{"privileged": True, "mounts": [{"type": "bind", "source": "/", "target": "/host"}]}]
FEATURE = {
    "id": "evil",
    "version": "1.0.0",
    "name": "Evil",
    "privileged": True,
    "init": True,
    "customizations": {"vscode": {"settings": {"terminal.integrated.shell.linux": "/evil"}}},
    "capAdd": ["SYS_ADMIN"],
    "securityOpt": ["apparmor=unconfined"],
    "entrypoint": "/entrypoint",
    "mounts": [{"type": "bind", "source": "/run/podman/podman.sock", "target": "/var/run/docker.sock"}],
}

# --- what a container may try -----------------------------------------------------------------------------------------

PROBES = {
    "a file of the machine": "cat {canary}",
    "a file of the machine, by a link in the repository": "cat link",
    "the folder of the runner": "ls {state}",
    "a file of the machine, by the first process": "cat /proc/1/root{canary}",
    "the socket of podman": "ls /run/podman/podman.sock /var/run/docker.sock",
    "the environment of the runner": "cat /proc/*/environ | tr '\\0' '\\n' | grep canary-of-the-machine",
    "processes of the machine": "cat /proc/*/cmdline | tr '\\0' ' ' | grep -E '[p]ytest|[c]onmon'",
    "the variable of the runner in containerEnv": '[ -n "$LEAK" ]',
    "the token of the clone": "grep -rs canary-of-the-git .git /tmp /run /root",
    "a submodule with a command as its URL": "ls sub/x",
    "a filter of git": "ls {marker}",
    "another root user": "[ $(awk '{print $3}' /proc/self/uid_map) -gt 65536 ]",
    "a mount": "mount -t tmpfs none /mnt",
    "a device": "mknod /tmp/disk b 8 0",
    "a raw socket": "python3 -c 'import socket as s; s.socket(s.AF_PACKET, s.SOCK_RAW)'",
    "settings of the kernel": "echo x >/proc/sys/kernel/core_pattern",
    "a restart of the machine": "echo h >/proc/sysrq-trigger",
    "its own limits": "cd /sys/fs/cgroup; f=memory/memory.limit_in_bytes; [ -e $f ] || f=memory.max; echo 8G >$f",
    "its own secrets folder": "touch /run/fairlead/secrets/x",
    "addresses of IPv6": "grep -v ' lo$' /proc/net/if_inet6",
    "more processes": "for i in $(seq 300); do sleep 3 & done 2>/dev/null; [ $(ls /proc | grep -c '^[0-9]') -gt 200 ]",
    "more memory": "python3 -c 'b\"x\" * (1 << 30)'",
    "more shared memory": "head -c 400M /dev/zero >/dev/shm/x",
}
"""Commands of the root user inside. Each fails."""

CONNECTIONS = """
import socket, struct, threading
route = [line.split() for line in open("/proc/net/route").readlines()[1:]]
gateway = next(socket.inet_ntoa(struct.pack("<I", int(r[2], 16))) for r in route if r[1] == "00000000")
def connect(name, place):
    try:
        socket.create_connection(place, 1).close()
        print(f"CONNECTION {name} connected\\n", end="")
    except OSError as error:
        print(f"CONNECTION {name} {type(error).__name__}\\n", end="")
for name, place in {places}.items():
    threading.Thread(target=connect, args=(name, place)).start()
"""
PLACES = {
    "metadata of clouds": '("169.254.169.254", 80)',
    "metadata of another cloud": '("100.100.100.200", 80)',
    "metadata by a name server's address": '("168.63.129.16", 80)',
    "a server of the machine": "(gateway, {port})",
    "a server of the machine by its other address": '("{address}", {port})',
    "the loopback interface of the machine": '("127.0.0.1", {port})',
}
REACHED_NOTHING = {"TimeoutError", "ConnectionRefusedError", "OSError"}


@dataclass(frozen=True, slots=True)
class Hostile:
    """A place with something to reach: files, and a server on all addresses of the machine."""

    containers: Containers
    server: socket.socket

    @property
    def values(self) -> dict[str, str]:
        folder = self.containers.folder
        return {
            "canary": str(folder / "canary"),
            "marker": str(folder / "reached"),
            "state": str(folder / "state"),
            "port": str(self.server.getsockname()[1]),
            "address": find_address(),
        }

    def fill(self, text: str) -> str:
        for name, value in self.values.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def bring_up(self, number: int, files: Mapping[str, str], *permissions: str) -> tuple[str, RecordedTask]:
        """The error of an `up`, if it fails, and its log. Nothing is left afterwards."""
        uid, task, engine = UID.format(number), RecordedTask(), self.containers.engine()
        for path in (name for name, text in files.items() if text.startswith("->")):
            link = self.containers.repositories / uid / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(files[path].removeprefix("->"))
        plain = {name: text for name, text in files.items() if not text.startswith("->")}
        spec = WorkspaceSpec(
            uid,
            "project",
            "demo",
            "mallory",
            GitSource(self.containers.commit(uid, plain)),
            secrets={"API_TOKEN": SECRET, "FAIRLEAD_GIT_TOKEN": GIT_TOKEN},
            permissions=frozenset(permissions),
        )
        try:
            asyncio.run(engine.up(spec, task))
        except EngineError as error:
            assert error.reason == Reason.POLICY_VIOLATION, error.message
            return error.message, task
        finally:
            held = [pid for pid in list_pids() if GIT_TOKEN.encode() in read_bytes(f"/proc/{pid}/environ")]
            asyncio.run(engine.delete(uid, RecordedTask("cleanup")))
        assert held == [], "the token of the clone is in the environment of a process"
        return "", task


def find_address() -> str:
    """An address of the machine that no container has; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def hostile(containers: Containers) -> Iterator[Hostile]:
    os.environ["FAIRLEAD_RUNNER_KEY"] = CANARY
    (containers.folder / "canary").write_text(CANARY)
    try:
        with socket.create_server(("0.0.0.0", 0)) as server:
            opened = Hostile(containers, server)
            yield opened
            assert not Path(opened.values["marker"]).exists(), "a command ran on the machine"
    finally:
        del os.environ["FAIRLEAD_RUNNER_KEY"]


def merge_tricks(hostile: Hostile, table: Mapping[str, tuple[dict[str, Any], str]]) -> dict[str, object]:
    merged: dict[str, object] = {}
    for properties, _ in table.values():
        for name, value in json.loads(hostile.fill(json.dumps(properties))).items():
            before = merged.get(name)
            match before:
                case list():
                    value = [*before, *value]
                case dict():
                    value = {**before, **value}
            merged[name] = value
    return merged


@pytest.fixture(scope="module")
def refused_configuration(hostile: Hostile) -> str:
    merged = merge_tricks(hostile, REFUSED_CONFIGURATION)
    files = {".devcontainer/devcontainer.json": json.dumps({"image": IMAGE, **merged})}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configuration_module, "adapt_configuration", lambda text, grant: Adapted(""))
        return hostile.bring_up(1, files)[0]


@pytest.mark.parametrize("trick", REFUSED_CONFIGURATION)
def test_a_configuration_is_refused(refused_configuration: str, trick: str) -> None:
    assert REFUSED_CONFIGURATION[trick][1] in refused_configuration


INSIDE = """
grep -E '^(CapEff|Seccomp|NoNewPrivs):' /proc/self/status
for path in /host /root2 /e /v /v2 /dev/sda /var/run/docker.sock; do [ ! -e $path ] || echo "there is $path"; done
[ -d /run/fairlead/secrets ] && echo 'secrets are there'
pwd; ls; cd /workspaces/demo 2>/dev/null
"""


@pytest.fixture(scope="module")
def left_out(hostile: Hostile) -> str:
    """The log of a workspace that asks for everything, and then tries what it could do with it."""
    configuration = {
        **merge_tricks(hostile, LEFT_OUT),
        "remoteUser": "root",
        "userEnvProbe": "none",
        "postCreateCommand": "sh probe.sh",
    }
    files = {
        ".devcontainer/devcontainer.json": json.dumps(configuration),
        ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\n",
        "probe.sh": INSIDE + write_probes(hostile),
    }
    error, task = hostile.bring_up(6, files)
    assert error == ""
    return task.text


@pytest.mark.parametrize("trick", LEFT_OUT)
def test_what_a_workspace_works_without_is_left_out_with_a_warning(left_out: str, trick: str) -> None:
    assert LEFT_OUT[trick][1] in left_out


def test_what_was_left_out_is_not_there(left_out: str) -> None:
    lines = [line.strip() for line in left_out.splitlines()]
    assert [line for line in lines if line.startswith(("reached:", "there is"))] == []
    assert [f"failed: {name}" for name in PROBES if f"failed: {name}" not in lines] == []
    assert "secrets are there" in lines and "/w" in lines
    status = dict(line.split(":") for line in lines if line.startswith(("CapEff:", "Seccomp:", "NoNewPrivs:")))
    capabilities = int(status["CapEff"], 16)
    assert capabilities >> 19 & 1, "SYS_PTRACE is given"
    assert not capabilities >> 21 & 1 and not capabilities >> 12 & 1, "SYS_ADMIN and NET_ADMIN are not"
    assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")


@pytest.fixture(scope="module")
def inherited(hostile: Hostile) -> str:
    """The label is that of a stage of a Dockerfile, which has no effect: the CLI takes those of its base image only."""
    label = json.dumps(LABEL).replace('"', '\\"')
    files = {
        ".devcontainer/devcontainer.json": json.dumps(
            {
                "build": {"dockerfile": "Dockerfile"},
                "features": {"./evil": {}},
                "remoteUser": "root",
                "userEnvProbe": "none",
                "postCreateCommand": "sh probe.sh",
            }
        ),
        ".devcontainer/Dockerfile": f'FROM {IMAGE}\nUSER root\nLABEL devcontainer.metadata="{label}"\n',
        ".devcontainer/evil/devcontainer-feature.json": json.dumps(FEATURE),
        ".devcontainer/evil/install.sh": "#!/bin/sh\n",
        "probe.sh": INSIDE + write_probes(hostile),
    }
    error, task = hostile.bring_up(2, files, "features")
    assert error == ""
    return task.text


@pytest.mark.parametrize("trick", INHERITED)
def test_what_a_feature_or_an_image_brings_is_left_out(inherited: str, trick: str) -> None:
    assert INHERITED[trick] in inherited


def test_what_a_feature_or_an_image_brings_is_not_there(inherited: str) -> None:
    lines = [line.strip() for line in inherited.splitlines()]
    assert [line for line in lines if line.startswith(("reached:", "there is"))] == []
    assert "failed: a mount" in lines and "secrets are there" in lines


# --- services of Compose files ----------------------------------------------------------------------------------------

HOSTILE_SERVICE = """
services:
  app: {image: {image}, user: root, command: sleep infinity, volumes: ["..:/workspaces/demo"]}
  evil:
    image: {image}
    user: root
    command: sh /workspaces/demo/probe.sh
    working_dir: /workspaces/demo
    privileged: true
    cap_add: [ALL]
    security_opt: [seccomp=unconfined, apparmor=unconfined]
    pid: host
    ipc: host
    userns_mode: host
    network_mode: host
    cgroup_parent: /
    devices: [/dev/sda]
    volumes:
      - "..:/workspaces/demo"
      - "/:/host"
      - "/run/podman/podman.sock:/var/run/docker.sock"
      - {type: bind, source: ../store-link, target: /e}
      - {type: bind, source: ../private-link, target: /v}
      - "data:/run/fairlead"
"""
WAIT_FOR_PROBES = """
import os, time
open("begin", "w").close()
while not os.path.exists("done"):
    time.sleep(0.2)
print(open("probes.txt", errors="replace").read())
"""
"""The service begins when the container is complete, because both have the same limits, which it exhausts. This waits
without starting processes, for which there may be no room."""


@pytest.fixture(scope="module")
def hostile_service(hostile: Hostile) -> str:
    """The log of a workspace with a service that asks for everything, and then tries what it could do with it."""
    configuration = {
        "dockerComposeFile": "compose.yaml",
        "service": "app",
        "workspaceFolder": "/workspaces/demo",
        "remoteUser": "root",
        "userEnvProbe": "none",
        "postCreateCommand": "python3 wait.py",
    }
    probes = (
        "until [ -e begin ]; do sleep 0.2; done\n{" + INSIDE + write_probes(hostile) + "\n} >probes.txt 2>&1\n: >done"
    )
    files = {
        ".devcontainer/devcontainer.json": json.dumps(configuration),
        ".devcontainer/compose.yaml": HOSTILE_SERVICE.replace("{image}", IMAGE),
        "probe.sh": probes,
        "wait.py": WAIT_FOR_PROBES,
        "link": f"->{hostile.values['canary']}",
        "store-link": "->/ws",
        "private-link": "->/private",
    }
    error, task = hostile.bring_up(8, files)
    assert error == ""
    return task.text


@pytest.mark.parametrize(
    "says",
    [
        *("privileged is left out", "capAdd ALL is left out", "securityOpt seccomp=unconfined is left out"),
        *("pid host is left out", "ipc host is left out", "userns_mode host is left out", "cgroup_parent is left out"),
        *("network_mode host is left out", "devices ['/dev/sda'] is left out", "target=/host is left out"),
        *("docker.sock is left out", "target=/run/fairlead is left out"),
        *("store-link is left out: it leads out of", "private-link is left out: it leads out of"),
    ],
)
def test_a_service_of_a_compose_file_gets_no_more_than_the_container(hostile_service: str, says: str) -> None:
    assert any(line.startswith("warning: service evil: ") and says in line for line in hostile_service.splitlines())


def test_a_service_of_a_compose_file_reaches_nothing(hostile_service: str) -> None:
    lines = [line.strip() for line in hostile_service.splitlines()]
    assert [line for line in lines if line.startswith(("reached:", "there is", "secrets are there"))] == []
    assert [f"failed: {name}" for name in PROBES if f"failed: {name}" not in lines] == []
    results = [line.rsplit(" ", 1)[1] for line in lines if line.startswith("CONNECTION ")]
    assert len(results) == len(PLACES) and set(results) <= REACHED_NOTHING
    assert SECRET not in hostile_service and CANARY not in hostile_service and GIT_TOKEN not in hostile_service


# --- what runs, and reaches nothing -----------------------------------------------------------------------------------


def write_probes(hostile: Hostile) -> str:
    """A script that prints a line for each probe: whether it failed, as it must."""
    lines = [
        f"if ({hostile.fill(command)}) >/dev/null 2>&1; then echo 'reached: {name}'; else echo 'failed: {name}'; fi"
        for name, command in PROBES.items()
    ]
    places = "{" + ", ".join(f"{name!r}: {hostile.fill(place)}" for name, place in PLACES.items()) + "}"
    program = CONNECTIONS.replace("{places}", places)
    return "\n".join(["cd /workspaces/demo", f"python3 - <<'END'\n{program}\nEND", *lines, "env; true"])


@pytest.fixture(scope="module")
def attempts(hostile: Hostile) -> str:
    """The log of a workspace that tries everything, once during the build and once in a lifecycle command."""
    polluted = {"initializeCommand": hostile.fill("touch {marker}"), "runArgs": ["--privileged"], "privileged": True}
    configuration = {
        "build": {"dockerfile": "Dockerfile"},
        "remoteUser": "root",
        "userEnvProbe": "none",
        "containerEnv": {"LEAK": "${localEnv:FAIRLEAD_RUNNER_KEY}", "CONTAINERS_CONF": "/workspaces/demo/x"},
        "postCreateCommand": "sh /workspaces/demo/probes",
    }
    text = json.dumps(configuration)[:-1] + f', "__proto__": {json.dumps(polluted)}}}'
    files = {
        ".devcontainer/devcontainer.json": text,
        ".devcontainer/Dockerfile": f"FROM {IMAGE}\nUSER root\nCOPY network /n\n"
        "RUN python3 /n | sed s/^CONNECTION/DURING-BUILD/; env; cat /proc/*/cmdline | tr '\\0' ' '\n",
        ".devcontainer/network": write_probes(hostile).split("<<'END'\n")[1].split("\nEND")[0],
        ".gitmodules": '[submodule "sub"]\n\tpath = sub\n\turl = ext::sh -c touch% /work/sub/x\n',
        ".gitattributes": "* filter=evil\n*.evil filter=lfs diff=evil\n",
        "probes": write_probes(hostile),
        "link": f"->{hostile.values['canary']}",
    }
    error, task = hostile.bring_up(4, files)
    assert error == ""
    return task.text


@pytest.mark.parametrize("probe", PROBES)
def test_a_container_does_not_reach(attempts: str, probe: str) -> None:
    assert f"failed: {probe}" in attempts.splitlines()


@pytest.mark.parametrize("moment", ["CONNECTION", "DURING-BUILD"])
@pytest.mark.parametrize("place", PLACES)
def test_neither_a_container_nor_a_build_connects_to(attempts: str, place: str, moment: str) -> None:
    results = [line.rsplit(" ", 1)[1] for line in attempts.splitlines() if line.startswith(f"{moment} {place} ")]
    assert results and set(results) <= REACHED_NOTHING


def test_secrets_in_the_environment_of_a_command_are_masked_in_the_log(attempts: str) -> None:
    assert "API_TOKEN=********" in attempts
    assert SECRET not in attempts and CANARY not in attempts and GIT_TOKEN not in attempts


# --- dotfiles ---------------------------------------------------------------------------------------------------------

PREPARE_DOTFILES = """
mkdir /tmp/dot && cd /tmp/dot && git init -q && cp /workspaces/demo/install.sh . && ln -s {canary} .profile-of-machine
printf '[submodule "x"]\\n\\tpath = x\\n\\turl = ext::sh -c touch% {marker}\\n' >.gitmodules
git add -A && git -c user.name=m -c user.email=m@example.com commit -qm First
"""
INSTALL = """#!/bin/sh
exec 3>&2 >$HOME/seen 2>&1
id -un; env; ls -d /ws /private /opt/fairlead /etc/fairlead; cat {canary} .profile-of-machine; touch {marker}
cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'
yes | head -c 100000 >&3
exit 1
"""


async def test_dotfiles_are_installed_inside_by_the_user_of_the_workspace(hostile: Hostile) -> None:
    """Their author gets what that user has: no more, and nothing of the clone."""
    uid, task = UID.format(5), RecordedTask()
    engine = hostile.containers.engine(protocols=frozenset({"https", "ssh", "file"}))
    configuration = {
        "image": IMAGE,
        "remoteUser": "dev",
        "userEnvProbe": "none",
        "onCreateCommand": "sh /workspaces/demo/prepare.sh",
    }
    files = {
        ".devcontainer.json": json.dumps(configuration),
        "prepare.sh": hostile.fill(PREPARE_DOTFILES),
        "install.sh": hostile.fill(INSTALL),
    }
    spec = WorkspaceSpec(
        uid,
        "project",
        "demo",
        "mallory",
        GitSource(hostile.containers.commit(uid, files)),
        secrets={"API_TOKEN": SECRET, "FAIRLEAD_GIT_TOKEN": GIT_TOKEN},
        options={"dotfiles": "file:///tmp/dot"},
    )
    try:
        await engine.up(spec, task)
        seen = (await run_inside(engine, uid, "cat /home/dev/seen")).output
    finally:
        await engine.delete(uid, RecordedTask("cleanup"))
    assert seen.splitlines()[0] == "dev"
    assert "cannot access '/ws'" in seen and "cannot access '/etc/fairlead'" in seen
    assert CANARY not in seen and GIT_TOKEN not in seen
    assert SECRET not in task.text and CANARY not in task.text
