"""The engine of dev containers for a runner process of tests, which names it as `module:function`.

Two environment variables say which `Containers` it uses, which the test has opened.
"""

import os
from pathlib import Path

from fairlead.runner.engines.devcontainer.engine import DevcontainerEngine
from fairlead.runner.registry import EngineSettings
from tests.runner.harness.podman import Containers

FOLDER_VARIABLE, NUMBER_VARIABLE = "WORKSPACES_FOLDER", "WORKSPACES_NUMBER"
ENGINE = "tests.runner.harness.real_engine:create_engine"


def describe_containers(containers: Containers) -> dict[str, str]:
    """The environment of a runner that uses these containers."""
    return {
        FOLDER_VARIABLE: str(containers.folder),
        NUMBER_VARIABLE: str(containers.number),
    }


def create_engine(settings: EngineSettings) -> DevcontainerEngine:
    containers = Containers(Path(os.environ[FOLDER_VARIABLE]), int(os.environ[NUMBER_VARIABLE]))
    return containers.engine(runner=settings.runner, state_folder=settings.state_folder)
