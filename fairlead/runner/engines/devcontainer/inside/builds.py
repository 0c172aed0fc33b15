"""Builds of images, in place of `podman build`: what was built for one workspace is used by the next one.

The result gets a second name, with a digest of everything that it depends on. The runner saves the image with the name
that it was told before the build (`announcement.py`), and shows it to the workspaces of the same repository and project
as a file. Nothing secret can be in it: a build gets neither secrets nor an environment.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .announcement import announce
from .build_key import KEY_LENGTH, Build, compute_key, explain_difference, ignore_files
from .dockerfile import read_dockerfile
from .pulls import PullFailed, pull_image
from .run_options import Refused, is_below

SHARED = "localhost/fairlead-shared"
CACHE = "/cache"
MAX_DOCKERFILE_BYTES = 1 << 20
CLI_FOLDERS = ("/var/tmp/devcontainercli-root", "/ws/home/empty-folder")
"""The contexts that the CLI makes itself: of features, and an empty one for what is built from an image."""
OF_FEATURES = ["FROM", "scratch", "COPY", ".", "/tmp/build-features/"]
VALUED = frozenset({"-f", "-t", "--target", "--build-arg", "--label"})
FLAGS = frozenset({"--no-cache", "--pull"})
PREPROCESSED = ".in"
"""The end of the names of Dockerfiles that podman gives to the C preprocessor, which can include any other file."""


def run_build(arguments: Sequence[str], settings: Mapping[str, Any]) -> int:
    """Returns the exit code for the CLI. Raises Refused, and PullFailed if the build failed, and an image of it is
    missing."""
    podman = settings["podman"]
    check_context(arguments[-1], settings["work_folder"])
    command = [podman, "build", *settings["build"], *arguments]
    build = parse_build(arguments)
    if build is not None and is_of_features(build):
        return subprocess.run([*command[:2], "--quiet", "--timestamp=0", *command[2:]], check=False).returncode
    try:
        key = find_key(build, podman) if settings["is_shared"] and build is not None and build.tags else None
    except PullFailed:
        announce(None)
        code = subprocess.run(command, check=False).returncode
        if code != 0:
            raise
        return code
    is_awaited = announce(key)
    if build is None or key is None:
        return subprocess.run(command, check=False).returncode
    if not build.is_fresh and load_shared(key, build.tags, podman, is_awaited=is_awaited):
        print("nothing to build: this image was built before, for a workspace of this repository", file=sys.stderr)
        return 0
    print(f"no image that was built before fits: {explain_difference(key, list_cached_keys())}", file=sys.stderr)
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        subprocess.run([podman, "tag", build.tags[0], f"{SHARED}:{key}"], check=False)
    return code


def check_context(context: str, work_folder: str) -> None:
    """Raises Refused for a folder that is not in the repository: elsewhere in the holder are secrets, and images of
    others, which would be in the result."""
    path = os.path.realpath(context)
    if not any(is_below(path, folder) for folder in (work_folder, *CLI_FOLDERS)):
        raise Refused(f"the context {context} of a build, which is not in the repository")


def is_of_features(build: Build) -> bool:
    """Whether it only puts the files of features into an image, as the CLI does before the build that uses them. That
    runs nothing, so the key of the next build can still be trusted; and its result is always the same, with the same
    ID, which the next key depends on. It is quickly made, and not shared."""
    try:
        with open(build.dockerfile, encoding="utf-8") as file:
            return file.read(MAX_DOCKERFILE_BYTES).split() == OF_FEATURES
    except (OSError, UnicodeDecodeError):
        return False


def load_shared(key: str, tags: Sequence[str], podman: str, *, is_awaited: bool) -> bool:
    """Whether the image was there. If the runner will save it for others, that is the one of an archive, and not one
    that has got the name on this disk: images of archives in the repository have any names that they like."""
    name = f"{SHARED}:{key}"
    if is_awaited or subprocess.run([podman, "image", "exists", name], check=False).returncode != 0:
        archive = f"{CACHE}/{key}.tar"
        if not os.path.exists(archive):
            return False
        if subprocess.run([podman, "load", "--quiet", "--input", archive], check=False).returncode != 0:
            return False
    return subprocess.run([podman, "tag", name, *tags], check=False).returncode == 0


def list_cached_keys() -> list[str]:
    """The keys of the archives that are here."""
    names = os.listdir(CACHE) if os.path.isdir(CACHE) else []
    keys = (name.removesuffix(".tar") for name in names if name.endswith(".tar"))
    return sorted(key for key in keys if len(key) == KEY_LENGTH)


def parse_build(arguments: Sequence[str]) -> Build | None:
    """None if there are options whose effect on the result is not known. One is `--cache-from`: podman then takes
    layers from a registry in place of running the instructions, and that registry chooses what is in them."""
    build = Build()
    remaining: Iterator[str] = iter(arguments)
    for argument in remaining:
        name, has_value, value = argument.partition("=")
        if not argument.startswith("-"):
            build.context = argument
            continue
        if name in VALUED and not has_value:
            value = next(remaining, "")
        elif argument not in FLAGS and not (name in VALUED and name.startswith("--")):
            return None
        match name:
            case "-f":
                build.dockerfile = value
            case "-t":
                build.tags.append(value)
            case "--build-arg":
                key, is_given, text = value.partition("=")
                if not is_given:  # it comes from the environment
                    return None
                build.arguments[key] = text
            case _:
                build.options.append(f"{name}={value}" if name in VALUED else argument)
    return build


def find_key(build: Build, podman: str) -> str | None:
    """None if the result depends on something that is not understood: then it is not shared."""
    if not os.path.isdir(build.context) or any(map(os.path.islink, ignore_files(build))):
        return None
    if os.path.realpath(build.dockerfile).endswith(PREPROCESSED) or build.dockerfile.endswith(PREPROCESSED):
        return None
    if "--pull" in build.options:  # the images that are here now may not be those that the build gets
        return None
    try:
        with open(build.dockerfile, encoding="utf-8", newline="") as file:
            text = file.read(MAX_DOCKERFILE_BYTES + 1)
    except (OSError, UnicodeDecodeError):
        return None
    used = read_dockerfile(text, build.arguments) if len(text) <= MAX_DOCKERFILE_BYTES else None
    if used is None:
        return None
    image_ids: list[str] = []
    for name in used.images:
        image = describe_image(name, podman)
        if image is None or (image.get("Config") or {}).get("OnBuild"):  # that does what it likes
            return None
        image_ids.append(str(image["Id"]))
    return compute_key(build, text, used.sources, image_ids)


def describe_image(name: str, podman: str) -> Mapping[str, Any] | None:
    """The image that a build starts from. It is pulled if it is missing; raises PullFailed."""
    command = [podman, "image", "inspect", name]
    found = subprocess.run(command, capture_output=True, check=False)
    if found.returncode != 0:
        pull_image(podman, ["--quiet", name])
        found = subprocess.run(command, capture_output=True, check=False)
    if found.returncode != 0:
        return None
    image: Mapping[str, Any] = json.loads(found.stdout)[0]
    return image
