"""Defaults of settings that depend on the environment."""

import os
from pathlib import Path

from fairlead.settings.sources import StartError, flag


def default_data_folder() -> Path:
    data_home = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore relative paths.
    if data_home.startswith("/"):
        return Path(data_home) / "fairlead"
    try:
        return Path.home() / ".local" / "share" / "fairlead"
    except RuntimeError as error:
        raise StartError(f"the user has no home folder; set the data folder with {flag('data')}") from error
