"""The services of Compose files beside the workspace, which the shim starts before its container.

The plan of them is made by the runner (`compose/rendering.py`) from properties that its policy has adapted, and each
container is checked here once more, by the rules for the container of the workspace. They share its network: names of
services lead to the loopback.

    services.prepare SETTINGS PROGRAM [ARGUMENT ...]    builds and pulls their images, and then runs a program
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .announcement import announce
from .pulls import PullFailed, pull_image
from .run_options import LeftOut, Refused, rewrite_run

PLAN = "/run/services.json"
LABEL = "fairlead.service"
"""Of the container of a service: the digest of what it was planned to be."""
LOOPBACK = "127.0.0.1"
BIND = "--mount=type=bind,source="
CHECK_SECONDS = 1.0
TEST_SECONDS = 20.0
"""For one command that says whether a service is healthy."""
HEALTHY, COMPLETED = "service_healthy", "service_completed_successfully"
MAX_LINE = 500
Note = Callable[[str], None]
Settings = Mapping[str, Any]


class StartFailed(Exception):
    """A service cannot be started."""


def read_plan() -> Mapping[str, Any] | None:
    """None if the workspace has no Compose files."""
    try:
        with open(PLAN) as file:
            plan: Mapping[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return plan


def container_name(service: str) -> str:
    return f"service-{service}"


def image_name(service: Mapping[str, Any]) -> str:
    return service["image"] or f"localhost/service-{service['digest'][:24]}"


def host_options(plan: Mapping[str, Any]) -> list[str]:
    return [f"--add-host={each}:{LOOPBACK}" for each in plan["hosts"]]


# --- images -----------------------------------------------------------------------------------------------------------


def prepare(settings: Settings) -> str:
    """Builds and pulls what new containers need. Returns why that failed; empty if it did not. Raises Refused and
    PullFailed."""
    from .builds import check_context  # which the shim, whose commands use this module, has no use for

    podman = settings["podman"]
    plan = read_plan() or {"services": ()}
    for service in plan["services"]:
        if find_container(podman, service["name"])[0] == service["digest"]:
            continue
        if service["build"]:
            check_context(service["build"]["context"], settings["work_folder"])
            announce(None)  # it runs what the repository says
            if build_image(settings, service) != 0:
                return f"the image of the service {service['name']} cannot be built"
        elif subprocess.run([podman, "image", "exists", service["image"]], check=False).returncode != 0:
            pull_image(podman, ["--quiet", service["image"]])
    return ""


def build_image(settings: Settings, service: Mapping[str, Any]) -> int:
    build = service["build"]
    command = [
        *(settings["podman"], "build", *settings["build"]),
        *("-f", build["dockerfile"], "-t", image_name(service)),
        *(("--target", build["target"]) if build["target"] else ()),
        *(f"--build-arg={name}={value}" for name, value in build["args"].items()),
        build["context"],
    ]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode


# --- containers -------------------------------------------------------------------------------------------------------


def start_services(settings: Settings, note: Note) -> None:
    """Starts what does not run yet, in order. Raises StartFailed."""
    plan = read_plan()
    if plan is None:
        return
    for service in plan["services"]:
        for each in service["waits"]:
            wait_for(settings, each, note)
        start_service(settings, plan, service, note)
    for each in plan["main"]["waits"]:
        wait_for(settings, each, note)


def start_service(settings: Settings, plan: Mapping[str, Any], service: Mapping[str, Any], note: Note) -> None:
    podman, name = settings["podman"], service["name"]
    digest, is_running = find_container(podman, name)
    if digest == service["digest"]:
        command = [podman, "start", container_name(name)]
        if is_running:
            return
    else:
        command = [podman, *describe_run(settings, plan, service, note)]
    print(f"Starting the service {name}", file=sys.stderr, flush=True)
    started = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if started.returncode != 0:
        raise StartFailed(f"the service {name} cannot be started: {last_line(started.stderr)}")


def describe_run(settings: Settings, plan: Mapping[str, Any], service: Mapping[str, Any], note: Note) -> list[str]:
    """The arguments of podman, checked like those that the CLI has for the container of the workspace."""
    name = service["name"]

    def note_of_service(text: str) -> None:
        note(f"service {name}: {text}")

    entrypoint = [f"--entrypoint={json.dumps(service['entrypoint'])}"] if service["entrypoint"] is not None else []
    wanted = [*service["options"], *entrypoint, image_name(service), *(service["command"] or ())]
    checked = rewrite_run(wanted, settings["permissions"], settings["work_folder"], note_of_service)
    return [
        *("run", "--detach", "--replace", f"--name={container_name(name)}", *settings["service"]),
        *(f"--label={LABEL}={service['digest']}", f"--restart={service['restart']}", "--no-healthcheck"),
        *host_options(plan),
        *([f"--workdir={service['folder']}"] if service["folder"] else ()),
        *resolve_binds(checked, settings["work_folder"], note_of_service),
    ]


def resolve_binds(arguments: Sequence[str], work_folder: str, note: Note) -> list[str]:
    """The arguments with the folders that mounts of the work folder really lead to, and without those that lead out of
    it. What does not exist becomes a folder, as with Docker."""
    result: list[str] = []
    for argument in arguments:
        try:
            result.append(resolve_bind(argument, work_folder) if argument.startswith(BIND) else argument)
        except LeftOut as reason:
            note(str(reason))
    return result


def resolve_bind(argument: str, work_folder: str) -> str:
    source, _, rest = argument.removeprefix(BIND).partition(",")
    path = os.path.realpath(source)
    if path != work_folder and not path.startswith(f"{work_folder}/"):
        raise LeftOut(f"the mount of {source} is left out: it leads out of the work folder")
    os.makedirs(path if not os.path.exists(path) else work_folder, exist_ok=True)
    return f"{BIND}{path},{rest}"


def find_container(podman: str, name: str) -> tuple[str, bool]:
    """The digest of the container of a service, and whether it runs. Empty if there is none."""
    shown = f'{{{{index .Config.Labels "{LABEL}"}}}} {{{{.State.Running}}}}'
    found = subprocess.run(
        [podman, "container", "inspect", f"--format={shown}", container_name(name)],
        capture_output=True,
        text=True,
        check=False,
    )
    digest, _, is_running = found.stdout.strip().partition(" ")
    return (digest, is_running == "true") if found.returncode == 0 else ("", False)


def wait_for(settings: Settings, wait: Mapping[str, Any], note: Note) -> None:
    """Until a service is healthy, or has ended well. What takes too long is noted, and the start goes on."""
    podman, name = settings["podman"], wait["service"]
    deadline = time.monotonic() + wait["seconds"]
    command = wait["command"] or find_image_test(podman, name)
    if wait["condition"] == HEALTHY and (wait["is_off"] or not command):
        return
    print(f"Waiting for the service {name}", file=sys.stderr, flush=True)
    while time.monotonic() < deadline:
        has_ended = wait["condition"] == COMPLETED and inspect_status(podman, name) == "exited"
        if has_ended or (wait["condition"] == HEALTHY and is_healthy(podman, name, command)):
            return  # the runner says with which code
        time.sleep(CHECK_SECONDS)
    wanted = "ended" if wait["condition"] == COMPLETED else "healthy"
    note(f"service {name}: it was not {wanted} after {wait['seconds']:g} s")


def is_healthy(podman: str, name: str, command: Sequence[str]) -> bool:
    try:
        tested = subprocess.run(
            [podman, "exec", container_name(name), *command], capture_output=True, check=False, timeout=TEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return tested.returncode == 0


def find_image_test(podman: str, name: str) -> list[str]:
    """The command by which an image says whether it is healthy; empty if it has none."""
    image = _ask(podman, "container", "inspect", "--format={{.Image}}", container_name(name))
    found = json.loads(_ask(podman, "image", "inspect", "--format={{json .HealthCheck}}", image) or "null") or {}
    return read_test([str(each) for each in found.get("Test") or ()])


def read_test(words: Sequence[str]) -> list[str]:
    """The command of a test as images and Compose files have it; empty if there is none."""
    match list(words):
        case ["CMD-SHELL", *line]:
            return ["/bin/sh", "-c", " ".join(line)]
        case ["CMD", *command]:
            return command
    return []


def inspect_status(podman: str, name: str) -> str:
    return _ask(podman, "container", "inspect", "--format={{.State.Status}}", container_name(name))


def _ask(podman: str, *arguments: str) -> str:
    return subprocess.run([podman, *arguments], capture_output=True, text=True, check=False).stdout.strip()


def last_line(text: str) -> str:
    return (text.rstrip().rpartition("\n")[2].strip() or "no message")[:MAX_LINE]


# --- the container of the workspace -----------------------------------------------------------------------------------


def add_main_command(podman: str, plan: Mapping[str, Any], arguments: Sequence[str], image: str) -> list[str]:
    """The arguments of `podman run` with the command of the service that is the workspace, which the CLI does not know.
    Its own command runs what follows, and stays when that has ended."""
    main = plan["main"]
    if main["entrypoint"] is None and main["command"] is None:
        return list(arguments)
    entrypoint = main["entrypoint"]
    if entrypoint is None:
        entrypoint = json.loads(
            _ask(podman, "image", "inspect", "--format={{json .Config.Entrypoint}}", image) or "null"
        )
    return [*arguments, *(entrypoint or ()), *(main["command"] or ())]


def main(arguments: Sequence[str]) -> int:
    """Replaces this process by the program, or returns an exit code."""
    from .shim import read_settings, record_refusal

    try:
        problem = prepare(read_settings())
    except PullFailed as failure:
        record_refusal("ImagePullFailed", str(failure))
        return 1
    except Refused as refusal:
        record_refusal("PolicyViolation", str(refusal))
        return 1
    if problem:
        print(json.dumps({"outcome": "error", "message": problem}))
        return 1
    os.execvp(arguments[0], list(arguments))
