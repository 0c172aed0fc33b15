"""The web console. Only with the setting `console`."""

from fairlead.console.build import CONSOLE_PATH, PAGES_PATH, load_build
from fairlead.core.call import CONSOLE
from fairlead.features.contract import Feature, Services
from fairlead.server.api.routing import MountedPath
from fairlead.server.console import ConsoleHandler, redirect_browser


def build_console_feature(services: Services) -> Feature:
    return Feature(
        name="console",
        find_mounts=(find_console,),
        mounts={CONSOLE: ConsoleHandler(load_build())},
        public_stages={"/": redirect_browser},
    )


def find_console(path: str) -> MountedPath | None:
    return MountedPath(CONSOLE, path) if path == CONSOLE_PATH or path.startswith(PAGES_PATH) else None
