"""A volume for the home folder of the workspace's user, which outlives containers.

The user is known when the container is created: the one of the configuration, which the engine writes to a file before,
else that of the image. Where its home is, only the image says. podman fills a new volume with what the image has there,
with the same owners.
"""

import os
import subprocess
from collections.abc import Callable, Sequence

from .run_options import OPTIONS, is_reserved

VOLUME = "fairlead-home"
USER = "/run/home-user"
"""The user of sessions, as the configuration says; empty for that of the image."""
PASSWD_BYTES = 1 << 20
MAX_USER = 256
MAX_PATH = 200


def describe_home(
    podman: str, arguments: Sequence[str], work_folder: str, note: Callable[[str], None]
) -> tuple[list[str], str]:
    """The option of `podman run` that mounts the volume, and where; both are empty if there is none. `arguments` are
    those of the dev container CLI."""
    image = find_image(arguments)
    user = read_user() or find_image_user(podman, image)
    home = find_home(podman, image, user)
    if not home:
        note(f"the home folder is not kept: the image does not say where {user[:MAX_USER]} has one")
        return [], ""
    is_above_work = f"{work_folder}/".startswith(f"{home.rstrip('/')}/")
    if not home.startswith("/") or is_reserved(home) or is_above_work or "," in home or len(home) > MAX_PATH:
        note(f"the home folder is not kept: a volume cannot be at {home}, the home of {user[:MAX_USER]}")
        return [], ""
    return [f"--mount=type=volume,source={VOLUME},target={home}"], home


def find_image(arguments: Sequence[str]) -> str:
    """The first operand of a command line of `run`."""
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith("-"):
            return argument
        name, has_value, _ = argument.partition("=")
        if OPTIONS.get(name) and not (has_value and name.startswith("--")):
            next(remaining, "")
    return ""


def read_user() -> str:
    try:
        with open(USER) as file:
            return file.read(MAX_USER).strip()
    except FileNotFoundError:
        return ""


def find_image_user(podman: str, image: str) -> str:
    return run_podman(podman, "image", "inspect", "--format", "{{.Config.User}}", image) or "root"


def find_home(podman: str, image: str, user: str) -> str:
    """The home of a user, or of the number of one, in the list of users of an image; empty if it is not there. Images
    in stores of others cannot be mounted, but containers of them can; this one never runs."""
    container = run_podman(podman, "create", "--quiet", image)
    if not container:
        return ""
    try:
        root = run_podman(podman, "mount", container)
        return parse_home(read_passwd(root), user.partition(":")[0]) if root else ""
    finally:
        run_podman(podman, "rm", container)


def run_podman(podman: str, *arguments: str) -> str:
    """What it prints; empty if it fails."""
    found = subprocess.run([podman, *arguments], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def read_passwd(root: str) -> str:
    """The image chose it: a link is not followed, and what is longer is cut."""
    try:
        descriptor = os.open(os.path.join(root, "etc/passwd"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, errors="replace") as file:
        return file.read(PASSWD_BYTES)


def parse_home(passwd: str, user: str) -> str:
    for line in passwd.splitlines():
        match line.split(":"):
            case [name, _, uid, _, _, home, _] if user in (name, uid):
                return home
    return ""
