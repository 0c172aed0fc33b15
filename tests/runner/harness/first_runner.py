"""A process that brings a workspace up and prints when the build begins, to be killed then."""

from pathlib import Path

from fairlead.runner.engines.contract import GitSource, WorkspaceSpec
from tests.runner.harness.podman import Containers
from tests.runner.harness.tasks import RecordedTask


def print_build(step: str) -> None:
    if step == "Build":
        print(step, flush=True)


async def main(arguments: list[str]) -> None:
    folder, number, uid, url = arguments
    containers = Containers(Path(folder), int(number))
    task = RecordedTask("task-of-the-first-runner", on_step=print_build)
    await containers.engine().up(WorkspaceSpec(uid, "project", "demo", "ada", GitSource(url)), task)
