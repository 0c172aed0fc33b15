"""Prebuilds: the image of a repository is built before a workspace needs it.

A prebuild is an `up` that keeps nothing but the archive of its image (`shared_images.py`). Each one begins with a new
disk, on which nothing of the repository has run: else its image would not be kept. No command of the repository but
those of the build runs, and there are no secrets but those of the clone, which the build does not see.
"""

from dataclasses import dataclass

from fairlead.runner.engines.contract import EngineError, Reason, TaskContext, WorkspaceSpec
from fairlead.runner.engines.devcontainer.build_keys import read_key
from fairlead.runner.engines.devcontainer.cleanup import remove_everything
from fairlead.runner.engines.devcontainer.creation import plan_creation
from fairlead.runner.engines.devcontainer.detached import DetachedCommand
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json
from fairlead.runner.engines.devcontainer.pulled_images import PulledImages
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.shared_images import SAVE_SECONDS, SharedImages


@dataclass(frozen=True, slots=True)
class Prebuild:
    settings: Settings
    images: SharedImages
    pulled: PulledImages
    folder: WorkspaceFolder
    spec: WorkspaceSpec
    task: TaskContext

    async def run(self) -> None:
        former = read_json(self.folder.spec)
        if former is not None and not former.get("is_prebuild"):
            message = "it has files of a workspace, which a prebuild would delete; create a new one for the prebuild"
            raise EngineError(Reason.CONFIGURATION_INVALID, message)
        await self._remove()
        try:
            creation = plan_creation(self.images, self.pulled, self.folder, self.spec, self.task)
            await creation.run(has_container=False)
            repository = creation.grant.repository
            async with self.task.step("Save", SAVE_SECONDS):
                # The turn of the build is over when the image is saved.
                turn = await self.images.take_turn(repository, SAVE_SECONDS)
                turn.release()
            self.task.log(f"{self._describe_result(repository)}\n".encode())
        finally:
            await self._remove()

    def _describe_result(self, repository: str) -> str:
        key = read_key(self.folder)
        if key and (self.images.folder / repository / f"{key}.tar").exists():
            return "the image is kept: workspaces of this repository and project start without a build"
        if key:
            return "warning: the image is not kept: the machine lacks disk space for it"
        return "warning: no image is kept: nothing is built, or what the result depends on is not known"

    async def _remove(self) -> None:
        await DetachedCommand(self.folder.task).kill()
        await remove_everything(self.settings, self.folder)
