"""Settings of runners that the server deploys into clusters."""

from typing import Annotated

from fairlead.settings.values import SettingInfo

RunnerImage = Annotated[
    str,
    SettingInfo(
        "Clusters",
        "Image of runners that the server deploys into clusters, if a Runner names none",
        computed_default="none: such runners are not deployed",
    ),
]
