"""Describes the settings of the server's start: value, default, where the value comes from, and what it does.

Values are shortened where they may contain a secret: URLs lose user, password and query.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlead.settings import SETTINGS, Settings, flag, variable


def describe_settings(settings: Settings) -> Iterator[dict[str, Any]]:
    """One entry for each setting, in the order of their declaration."""
    for name, setting in SETTINGS.items():
        value = settings.store_url if name == "store" else getattr(settings, name)
        yield {
            "name": name,
            "group": setting.info.group,
            "value": shorten_value(value),
            "default": setting.default_text,
            "source": settings.origins.get(name, ""),
            "flag": flag(name),
            "variable": variable(name),
            "description": setting.info.help,
            "changedBy": setting.info.changed_by,
        }


def shorten_value(value: object) -> object:
    """The value as JSON can express it, without what may be a secret."""
    if isinstance(value, list | tuple):
        return [shorten_value(each) for each in value]
    text = str(value) if isinstance(value, Path) else value
    return shorten_url(text) if isinstance(text, str) and "://" in text else text


def shorten_url(url: str) -> str:
    """Without user, password and query, any of which may be a secret."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.partition("?")[0]
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
