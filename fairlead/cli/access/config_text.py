"""The settings in the Config: reads them, and changes some without touching the others.

The Config is YAML text in one field, so a patch of it replaces all settings. Comments in it are lost when a command
changes it; the commands say so.
"""

import re
from collections.abc import Callable

from fairlead.cli.ui.output import print_note
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, get_path

CONFIGS, CONFIG_NAME = "configs", "service-manager-config"
MAX_ATTEMPTS = 5
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)


def read_config(client: Client) -> Object:
    """The Config itself."""
    return client.get(CONFIGS, CONFIG_NAME)


def read_text(client: Client) -> str:
    """The settings as they were written."""
    return _raw(read_config(client))


def parse_config(config: Object) -> Object:
    """The settings of a Config; empty if there are none."""
    return _parse(_raw(config))


def read_settings(client: Client) -> Object:
    """The settings of the Config; empty if there are none."""
    return parse_config(read_config(client))


def update_settings(client: Client, update: Callable[[Object], None]) -> None:
    """Changes the settings in place, with optimistic locking."""
    for _ in range(MAX_ATTEMPTS):
        config = client.get(CONFIGS, CONFIG_NAME)
        raw = _raw(config)
        settings = _parse(raw)
        update(settings)
        text = yaml.encode(settings).decode() if settings else None  # without settings, no manager owns the field
        version = get_path(config, "metadata.resourceVersion")
        try:
            client.patch(CONFIGS, CONFIG_NAME, {"metadata": {"resourceVersion": version}, "spec": {"raw": text}})
        except ApiStatusError as problem:
            if problem.reason != "Conflict":
                raise
            continue
        if _COMMENT.search(raw):
            print_note("warning: comments in the Config are not preserved")
        return
    raise ClientError(f"the Config was changed concurrently {MAX_ATTEMPTS} times; try again")


def _raw(config: Object) -> str:
    raw = get_path(config, "spec.raw")
    return raw if isinstance(raw, str) else ""


def _parse(raw: str) -> Object:
    try:
        value, _ = yaml.decode(raw.encode())
    except Malformed as error:
        raise ClientError(f"the Config cannot be parsed: {error}") from None
    return value if isinstance(value, dict) else {}
