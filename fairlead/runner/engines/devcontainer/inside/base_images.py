"""Prints the images that a Dockerfile begins with, one in each line; nothing if they are not plain.

    base_images.py DOCKERFILE [NAME=VALUE ...]

The arguments after the path are those of the build.
"""

from .dockerfile import read_dockerfile

MAX_DOCKERFILE_BYTES = 1 << 20


def main(arguments: list[str]) -> None:
    path, *values = arguments
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(MAX_DOCKERFILE_BYTES)
    except (OSError, UnicodeDecodeError):
        return
    used = read_dockerfile(text, dict(value.partition("=")[::2] for value in values))
    for image in used.images if used is not None else ():
        print(image)
