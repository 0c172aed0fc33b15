"""The program that the dev container CLI runs as `--docker-path`, in front of podman.

It adds to each container what the engine decides (network, name, labels, secrets), refuses what the template does not
allow, shares builds, says why an image cannot be pulled, and gives the work folder to the user of the workspace. It is
not what separates the workspace from the machine: that is the holder, which it runs in. But only here is seen what the
CLI makes of labels of an image that was built meanwhile, which no check of the configuration before can see.

Its settings are in a file that the holder cannot change. What it refuses is appended to a file, from which the engine
reports it. The CLI runs it a dozen times in each `up`, so it imports what few commands need only for them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .announcement import announce
from .pulls import PullFailed, pull_image
from .run_options import Refused, rewrite_run
from .services import StartFailed, add_main_command, host_options, read_plan, resolve_binds, start_services

SETTINGS = "/etc/fairlead/shim.json"
CONTAINER_ID, OWNED, REFUSALS = "/ws/container.id", "/ws/owned", "/ws/refused"
HOME = "/ws/home-of-user"
"""Where the user has a home that outlives its containers; empty, or no file, if there is none."""
OMISSIONS = "/ws/omissions"
"""What was left out of the container, a sentence per line."""
PRIVATE = "/private"
MAX_REFUSAL = 2000
REFUSED = 125
"""The exit code of podman's own errors."""
GIVE = """
chown -R "$1": "$2"
[ -z "$3" ] || [ -n "$(find "$3" -prune -user "$1")" ] || chown -R "$1": "$3"
id -u "$1"
id -g "$1"
"""
IDS = 65536
SINCE = "24h"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


class WrongPlatform(Exception):
    """An image is for another kind of machine."""


def main(arguments: Sequence[str]) -> int:
    """Replaces this process by podman, or returns an exit code."""
    settings = read_settings()
    podman = settings["podman"]
    try:
        match list(arguments):
            case ["run", *rest]:
                announce(None)
                remove_file(CONTAINER_ID)  # podman refuses to replace it
                arguments = [
                    "run",
                    *settings["run"],
                    *keep_home(rest, settings),
                    *describe_container(rest, settings),
                ]
            case ["build", *rest]:
                from .builds import run_build

                return run_build(rest, settings)
            case ["pull", *rest]:
                pull_image(podman, rest)
                return 0
            case ["events", *rest]:
                # The CLI waits for the start of a container, which may be over before podman begins to read events.
                # There are none of other holders: podman keeps them in memory.
                arguments = ["events", f"--since={SINCE}", *rest]
            case ["start" | "create", *_]:
                announce(None)
                start_services(settings, note_omission)
            case ["exec", *rest]:
                announce(None)
                give_ownership(rest, settings)
            case ["inspect", "--type", "image", _]:
                return inspect_image([podman, *arguments])
    except PullFailed as failure:
        record_refusal("ImagePullFailed", str(failure))
        return REFUSED
    except StartFailed as failure:
        record_refusal("StartFailed", str(failure))
        return REFUSED
    except (Refused, WrongPlatform) as refusal:
        record_refusal("PlatformMismatch" if isinstance(refusal, WrongPlatform) else "PolicyViolation", str(refusal))
        print(f"refused by the runner: {refusal}", file=sys.stderr)
        return REFUSED
    os.execv(podman, [podman, *arguments])


def keep_home(arguments: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Options that mount the home folder, if the template keeps it."""
    remove_file(HOME)
    if not settings["keeps_home"]:
        return []
    from .home import describe_home

    options, home = describe_home(settings["podman"], arguments, settings["work_folder"], note_omission)
    with open(HOME, "w") as file:
        file.write(home)
    return options


def read_settings() -> Mapping[str, Any]:
    with open(SETTINGS) as file:
        settings: Mapping[str, Any] = json.load(file)
    return settings


def describe_container(arguments: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """The options and operands of `podman run` for the container of the workspace. The services beside it, which it may
    need from its first moment on, are started first."""
    work_folder = settings["work_folder"]
    checked = rewrite_run(arguments, settings["permissions"], work_folder, note_omission)
    checked = resolve_binds(checked, work_folder, note_omission)
    plan = read_plan()
    if plan is None:
        return checked
    start_services(settings, note_omission)
    image = next(each for each in checked if not each.startswith("-"))
    return [*host_options(plan), *add_main_command(settings["podman"], plan, checked, image)]


def give_ownership(arguments: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Gives the work folder, the secrets and a home that is kept to the user of the workspace, before its first process
    runs there. Files in the home change their owner only if the home itself belongs to another user.

    The names of users are those of the container, so a process there looks them up. The container cannot change the
    folder with the secrets, so no link can be in it.
    """
    user = find_user(arguments)
    container = read_text(CONTAINER_ID)
    if not user or not container or read_text(OWNED) == container:
        return
    paths = (settings["work_folder"], read_text(HOME))
    command = ["exec", "-u", "0", container, "/bin/sh", "-c", GIVE, "-", user, *paths]
    answer = subprocess.run([settings["podman"], *command], capture_output=True, text=True, check=False)
    match answer.stdout.split():
        case [uid, gid] if uid.isdigit() and gid.isdigit() and max(int(uid), int(gid)) < IDS:
            for parent, _, names in os.walk(PRIVATE):
                for path in (parent, *(os.path.join(parent, name) for name in names)):
                    os.chown(path, int(uid), int(gid), follow_symlinks=False)
            with open(OWNED, "w") as file:
                file.write(container)


def find_user(arguments: Sequence[str]) -> str:
    """The user of an `exec`, as the CLI writes it."""
    return next((arguments[index + 1] for index in range(len(arguments) - 1) if arguments[index] == "-u"), "")


def inspect_image(command: Sequence[str]) -> int:
    """Describes an image to the CLI. One for another architecture would fail later, with an error that says nothing of
    it."""
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    machine = os.uname().machine
    for image in json.loads(found.stdout) if found.returncode == 0 else []:
        if image.get("Architecture") != MACHINES.get(machine, machine):
            named = f"the image {command[-1]} is for {image.get('Architecture')}"
            raise WrongPlatform(f"{named}, and this machine is {machine}")
    sys.stdout.write(found.stdout.decode())
    return found.returncode


def note_omission(text: str) -> None:
    with open(OMISSIONS, "a") as file:
        file.write(" ".join(text[:MAX_REFUSAL].split()) + "\n")


def record_refusal(reason: str, text: str) -> None:
    with open(REFUSALS, "a") as file:
        file.write(json.dumps({"reason": reason, "message": text[:MAX_REFUSAL]}) + "\n")


def read_text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(200).strip()
    except FileNotFoundError:
        return ""


def remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
