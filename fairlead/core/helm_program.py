"""Whether the machine has Helm: for the controllers that run it, and for the commands that say that it is missing."""

import shutil

HELM = "helm"


def find_helm(program: str = HELM) -> str | None:
    """The path of the program; None if there is none."""
    return shutil.which(program)
