"""Images that a workspace must not use, seen when their description is known: no name tells that."""

import os
from collections.abc import Mapping
from typing import Any

from fairlead.runner.engines.devcontainer.command_lines import Refused, WrongPlatform
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.images import is_foreign

MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


def check_image(name: str, image: Mapping[str, Any], grant: Grant) -> None:
    """Raises Refused or WrongPlatform. An image for another architecture would fail later, with an error that says
    nothing of it."""
    machine = os.uname().machine
    if image.get("Architecture") != MACHINES.get(machine, machine):
        raise WrongPlatform(f"the image {name} is for {image.get('Architecture')}, and this machine is {machine}")
    if is_foreign(image.get("RepoTags") or (), grant.uid):
        raise Refused(f"the image {name}, which belongs to another workspace")
