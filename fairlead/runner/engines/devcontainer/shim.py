"""The program that the dev container CLI runs as `--docker-path`, in front of podman.

It checks each command line, also those that follow from labels of images that were built meanwhile, which no check of
the configuration before can see. What it refuses is appended to a file, from which the engine reports it.

The CLI runs it a dozen times in each `up`. So it starts without the packages of its environment, and imports what few
commands need only for them.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlead.runner.engines.devcontainer.command_lines import Command, Refused, WrongPlatform, rewrite_command
from fairlead.runner.engines.devcontainer.grant import IDS_PER_WORKSPACE, Grant, load_grant

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


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Replaces this process by podman, or returns the exit code of a refusal. `folder` is that of the workspace."""
    grant = load_grant(folder / "grant.json")
    try:
        command = rewrite_command(arguments, grant, read_container_id(folder))
        if command.image:
            return inspect_image(command, grant)
        if command.is_creation:
            (folder / "container.id").unlink(missing_ok=True)  # podman refuses to replace it
        if command.build:
            from fairlead.runner.engines.devcontainer.builds import run_build

            return run_build(command, grant, folder)
        if command.session_user:
            give_ownership(command.session_user, grant, folder)
    except (Refused, WrongPlatform) as refusal:
        kind = "PlatformMismatch" if isinstance(refusal, WrongPlatform) else "PolicyViolation"
        record_refusal(folder, kind, str(refusal))
        print(f"refused by the runner: {refusal}", file=sys.stderr)
        return REFUSED
    os.execve(grant.podman, [grant.podman, *command.arguments], {**command.environment, **podman_environment(grant)})


def podman_environment(grant: Grant) -> dict[str, str]:
    return {"PATH": PATH, "HOME": f"{grant.folder}/home", "TMPDIR": f"{grant.folder}/tmp", **grant.podman_environment}


def read_container_id(folder: Path) -> str:
    try:
        return (folder / "container.id").read_text().strip()
    except FileNotFoundError:
        return ""


def inspect_image(command: Command, grant: Grant) -> int:
    """Describes an image to the CLI, unless the workspace must not use it."""
    import subprocess

    from fairlead.runner.engines.devcontainer.image_checks import check_image

    found = subprocess.run(
        [grant.podman, *command.arguments], env=podman_environment(grant), stdout=subprocess.PIPE, check=False
    )
    for image in json.loads(found.stdout) if found.returncode == 0 else []:
        check_image(command.image, image, grant)
    sys.stdout.write(found.stdout.decode())
    return found.returncode


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
