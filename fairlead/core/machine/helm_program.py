"""Whether the machine has Helm: for the controllers that run it, and for the commands that say that it is missing."""

import re
import shutil
import subprocess

HELM = "helm"
HELM_ADVICE = (
    "run `make helm-tools` in a checkout, use the container image, which has it, or put Helm 3.8 or newer on the PATH "
    "of the server"
)
"""How to get Helm."""
KNOWN_MAJORS = (3, 4)
MIN_VERSION = (3, 8)
VERSION_SECONDS = 10.0

_version_pattern = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.", re.ASCII)


def find_helm(program: str = HELM) -> str | None:
    """The path of the program; None if there is none."""
    return shutil.which(program)


def find_helm_problem(path: str) -> str:
    """Runs `helm version`, and returns why this Helm may not work; empty if it is of a known version."""
    try:
        done = subprocess.run(
            [path, "version", "--short"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{path} cannot be run: {error}"
    found = _version_pattern.match(done.stdout.strip())
    if done.returncode or found is None:
        return f"{path} does not say its version: `{path} version --short` ends with code {done.returncode}"
    version = int(found[1]), int(found[2])
    if version < MIN_VERSION:
        return f"{path} is Helm {done.stdout.strip()[:40]}, which is too old"
    if version[0] not in KNOWN_MAJORS:
        return f"{path} is Helm {done.stdout.strip()[:40]}, which this server was not tried with"
    return ""
