"""The program with which the server deploys charts. It is no part of the server, and may be installed later."""

import shutil

HELM = "helm"
MISSING_HELM = f"there is no program `{HELM}` on the server's PATH; install Helm 3.8 or newer there"


def find_helm(program: str = HELM) -> str | None:
    """The path of the program; None if there is none."""
    return shutil.which(program)
