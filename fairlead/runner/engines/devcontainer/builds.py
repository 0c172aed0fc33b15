"""Builds of images, in place of `podman build`: checked, limited, and shared between workspaces of one repository.

What was built for one workspace gets a second name, with a digest of everything that the result depends on. The next
workspace that wants the same is given that image at once. Nothing secret can be in it: a build gets neither secrets nor
an environment.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairlead.runner.engines.devcontainer.build_key import compute_key
from fairlead.runner.engines.devcontainer.build_limits import limit_processes
from fairlead.runner.engines.devcontainer.command_lines import Build, Command, Refused
from fairlead.runner.engines.devcontainer.dockerfile import check_deferred, check_dockerfile
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.image_checks import check_image
from fairlead.runner.engines.devcontainer.images import SHARED
from fairlead.runner.engines.devcontainer.layout import SHARED_IMAGES
from fairlead.runner.engines.devcontainer.shim import podman_environment

MAX_DOCKERFILE_BYTES = 1 << 20


def run_build(command: Command, grant: Grant, folder: Path) -> int:
    """Returns the exit code for the CLI. Raises Refused or WrongPlatform."""
    assert command.build is not None
    build = command.build
    text = read_dockerfile(build.dockerfile)
    checked = check_dockerfile(text, build.arguments, grant.uid, grant.permissions)
    if checked.refused:
        raise Refused(", ".join(checked.refused))
    images = [describe_image(name, grant) for name in checked.images]
    limit_processes(grant.uid, grant.processes)
    arguments = replace_dockerfile(command.arguments, build, checked.text, folder)
    if not grant.repository or None in images:
        return run_podman(arguments, grant)
    key = compute_key(build, text, checked.sources, [str(image["Id"]) for image in images if image is not None])
    with hold_record(folder.parent.parent / SHARED_IMAGES, f"{grant.repository}-{key}"):
        return build_or_share(arguments, f"{SHARED}{grant.repository}:{key}", build, grant)


def build_or_share(arguments: Sequence[str], shared: str, build: Build, grant: Grant) -> int:
    if not build.is_fresh and run_podman(["image", "exists", shared], grant) == 0:
        code = run_podman(["tag", shared, *build.tags], grant)
        print("nothing to build: this image was built before, for a workspace of this repository", file=sys.stderr)
        return code
    code = run_podman(arguments, grant)
    if code == 0 and build.tags:
        run_podman(["tag", build.tags[0], shared], grant)
    return code


def describe_image(name: str, grant: Grant) -> Mapping[str, Any] | None:
    """The image that a build starts from, after it was checked. It is pulled if it is missing; None if that fails: the
    build then reports it."""
    command = [grant.podman, "image", "inspect", name]
    environment = podman_environment(grant)
    found = subprocess.run(command, env=environment, capture_output=True, check=False)
    if found.returncode != 0:
        run_podman(["pull", "--quiet", name], grant)
        found = subprocess.run(command, env=environment, capture_output=True, check=False)
    if found.returncode != 0:
        return None
    image: Mapping[str, Any] = json.loads(found.stdout)[0]
    check_image(name, image, grant)
    deferred = (image.get("Config") or {}).get("OnBuild") or ()
    if refused := check_deferred(deferred, grant.uid, grant.permissions):
        raise Refused(f"{', '.join(refused)}, which the image {name} brings")
    return image


def read_dockerfile(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read(MAX_DOCKERFILE_BYTES + 1)
    if len(text) > MAX_DOCKERFILE_BYTES:
        raise Refused(f"a Dockerfile of more than {MAX_DOCKERFILE_BYTES >> 20} MiB")
    return text


def replace_dockerfile(arguments: Sequence[str], build: Build, text: str, folder: Path) -> list[str]:
    """Lets podman build the text that was checked."""
    copy = folder / "tmp" / f"Dockerfile-{os.getpid()}"
    copy.write_text(text, encoding="utf-8", errors="surrogateescape")
    return [str(copy) if argument == build.dockerfile else argument for argument in arguments]


@contextmanager
def hold_record(folder: Path, name: str) -> Iterator[None]:
    """Workspaces that want the same image at the same time build it once. The time of the record is that of its last
    use. Podman does not inherit the lock: the name server that it may start would keep it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / name).open("a") as record:
        fcntl.flock(record, fcntl.LOCK_EX)
        os.utime(record.fileno())
        yield


def run_podman(arguments: Sequence[str], grant: Grant) -> int:
    return subprocess.run([grant.podman, *arguments], env=podman_environment(grant), check=False).returncode
