"""The web console. Only with the setting `console`."""

from fairlead.console.build import load_build
from fairlead.core.call import CONSOLE
from fairlead.features.contract import Feature, Services
from fairlead.server.console import ConsoleHandler, redirect_browser


def build_console_feature(services: Services) -> Feature:
    return Feature(
        name="console",
        mounts={CONSOLE: ConsoleHandler(load_build())},
        public_stages=(redirect_browser,),
    )
