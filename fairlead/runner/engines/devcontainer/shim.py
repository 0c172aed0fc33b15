"""The program that the dev container CLI runs as `--docker-path`, in front of podman.

It checks each command line, also those that follow from labels of images that were built meanwhile, which no check of
the configuration before can see. What it refuses is appended to a file, from which the engine reports it.

The CLI runs it a dozen times in each `up`. So it starts without the packages of its environment, and imports what few
commands need only for them.
"""

import fcntl
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlead.runner.engines.devcontainer.build_limits import limit_processes
from fairlead.runner.engines.devcontainer.command_lines import Command, Refused, rewrite_command
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE, Grant, load_grant

MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REFUSED = 125
"""The exit code of podman's own errors."""
LAUNCHER = """#!{python} -IS
import sys
from pathlib import Path
sys.path.insert(0, {packages!r})
from fairlead.runner.engines.devcontainer.shim import main
sys.exit(main(Path(__file__).parent, sys.argv[1:]))
"""


class WrongPlatform(Exception):
    """The image is for another kind of machine."""


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Replaces this process by podman, or returns the exit code of a refusal. `folder` is that of the workspace."""
    grant = load_grant(folder / "grant.json")
    try:
        command = rewrite_command(arguments, grant, read_container_id(folder))
        if command.image:
            return inspect_image(command, grant)
        if command.is_creation:
            (folder / "container.id").unlink(missing_ok=True)  # podman refuses to replace it
        if command.dockerfile:
            command = replace_dockerfile(command, grant, folder)
            hold_build_lock(folder.parent.parent)
            limit_processes(grant.uid, grant.processes)
        if command.session_user:
            give_ownership(command.session_user, grant, folder)
    except (Refused, WrongPlatform) as refusal:
        kind = "PolicyViolation" if isinstance(refusal, Refused) else "PlatformMismatch"
        record_refusal(folder, kind, str(refusal))
        print(f"refused by the runner: {refusal}", file=sys.stderr)
        return REFUSED
    os.execve(grant.podman, [grant.podman, *command.arguments], {**podman_environment(grant), **command.environment})


def podman_environment(grant: Grant) -> dict[str, str]:
    return {"PATH": PATH, "HOME": f"{grant.folder}/home", "TMPDIR": f"{grant.folder}/tmp", **grant.podman_environment}


def read_container_id(folder: Path) -> str:
    try:
        return (folder / "container.id").read_text().strip()
    except FileNotFoundError:
        return ""


def inspect_image(command: Command, grant: Grant) -> int:
    """Describes an image to the CLI. One for another architecture is refused here: it would fail later, with an error
    that says nothing of it."""
    import subprocess

    found = subprocess.run(
        [grant.podman, *command.arguments], env=podman_environment(grant), stdout=subprocess.PIPE, check=False
    )
    described = json.loads(found.stdout) if found.returncode == 0 else []
    machine = os.uname().machine
    for image in described:
        if image.get("Architecture") != MACHINES.get(machine, machine):
            text = f"the image {command.image} is for {image.get('Architecture')}, and this machine is {machine}"
            raise WrongPlatform(text)
    sys.stdout.write(found.stdout.decode())
    return found.returncode


def replace_dockerfile(command: Command, grant: Grant, folder: Path) -> Command:
    """Lets podman build the text that was checked."""
    from fairlead.runner.engines.devcontainer.dockerfile import check_dockerfile

    text = Path(command.dockerfile).read_text(encoding="utf-8", errors="surrogateescape")
    text, refused = check_dockerfile(text, command.build_arguments, grant.uid, grant.permissions)
    if refused:
        raise Refused(", ".join(refused))
    copy = folder / "tmp" / f"Dockerfile-{os.getpid()}"
    copy.write_text(text, encoding="utf-8", errors="surrogateescape")
    arguments = [str(copy) if argument == command.dockerfile else argument for argument in command.arguments]
    return Command(arguments)


def hold_build_lock(state: Path) -> None:
    """Builds share this lock until podman ends. While none holds it, what builds left behind can be removed."""
    descriptor = os.open(state / "builds.lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def give_ownership(user: str, grant: Grant, folder: Path) -> None:
    """Gives the work folder and the secrets to the user of the workspace, before its first process runs there.

    The names of users are those of the container, so a process there looks them up. The container cannot change the
    folder with the secrets, where the host changes owners itself.
    """
    import subprocess

    container = read_container_id(folder)
    owned = folder / "owned"
    if (owned.exists() and owned.read_text() == container) or not container:
        return
    script = 'chown -R "$1": "$2"; id -u "$1"; id -g "$1"'
    answer = subprocess.run(
        [grant.podman, "exec", "-u", "0", container, "/bin/sh", "-c", script, "-", user, grant.work_folder],
        env=podman_environment(grant),
        capture_output=True,
        text=True,
        check=False,
    )
    match answer.stdout.split():
        case [uid, gid] if uid.isdigit() and gid.isdigit() and max(int(uid), int(gid)) < IDS_PER_WORKSPACE:
            for parent, _, names in os.walk(folder / "private"):
                for path in (Path(parent), *(Path(parent, name) for name in names)):
                    os.chown(path, grant.first_uid + int(uid), grant.first_uid + int(gid), follow_symlinks=False)
            owned.write_text(container)


def record_refusal(folder: Path, kind: str, text: str) -> None:
    with (folder / "denied").open("a") as file:
        file.write(json.dumps({"reason": kind, "message": text}) + "\n")
