"""A hook of the build backend: the wheel installs the manual pages into share/man/man1.

`make dist` writes them before it builds. Without them, as in an editable installation, the wheel has none.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MANUAL = "build/man1"


class ManualPages(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard" and (Path(self.root) / MANUAL).is_dir():
            build_data["shared_data"][MANUAL] = "share/man/man1"
