"""The settings for the end of a server. `declarations.py` has them as fields."""

from typing import Annotated

from fairlead.settings.values import SettingInfo

ShutdownDrain = Annotated[
    int,
    SettingInfo(
        "Limits",
        "Seconds that the server still serves after the signal to stop, while /readyz responds with 503",
        minimum=0,
        maximum=3600,
    ),
]
ShutdownGrace = Annotated[
    int,
    SettingInfo(
        "Limits", "Seconds that requests in flight have to finish when the server stops", minimum=0, maximum=3600
    ),
]
