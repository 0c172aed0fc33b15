"""Parses setting values from strings (flags, environment) or YAML (file).

A setting is a field annotated with `SettingInfo`. `declarations.py` has all of them; `load` parses them with `PARSERS`.
A parser raises ValueError with what is wrong and how to fix it.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ON, OFF = "on", "off"
ON_OFF = (ON, OFF)
OWN, HOST = "own", "host"
"""Who decides about requests that a kube-apiserver, the host, forwards."""


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """The description, bounds and checks of a setting."""

    group: str
    help: str
    changed_by: str
    """Who has a reason to change it. A setting that no one would change is a constant instead."""
    minimum: int = 1
    maximum: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    check: Callable[[str], str | None] | None = None
    """Returns what is wrong with a string; None if it is valid."""
    computed_default: str = ""
    """A description of the default, if it is computed; the field's default is then a placeholder."""


def _parse_string(raw: Any, info: SettingInfo) -> str:
    if ON in info.choices and isinstance(raw, bool):  # YAML 1.1 parses on and off as booleans
        raw = ON if raw else OFF
    if not isinstance(raw, str):
        raise ValueError(f"{raw!r} is not a string; put it in quotes")
    if info.choices and raw not in info.choices:
        raise ValueError(f"{raw!r} is not one of {', '.join(info.choices)}")
    is_computed = not raw and info.computed_default
    if not is_computed and info.check and (problem := info.check(raw)):
        raise ValueError(f"{raw!r} {problem}")
    return raw


def _parse_integer(raw: Any, info: SettingInfo) -> int:
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,18}", raw.strip()):
        raw = int(raw)
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise ValueError(f"{raw!r} is not an integer")
    if not info.minimum <= raw <= info.maximum:
        raise ValueError(f"{raw} is out of range; it must be between {info.minimum} and {info.maximum}")
    return raw


def _parse_path(raw: Any, info: SettingInfo) -> Path:
    text = _parse_string(raw, info)
    if not text:
        raise ValueError("must not be empty; give a path, or leave out the setting")
    return absolute_path(text)


def absolute_path(text: str) -> Path:
    """An absolute path, with `~` expanded: messages show it to users in other working directories."""
    return Path(os.path.expanduser(text)).absolute()


def _parse_strings(raw: Any, info: SettingInfo) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list):
        raise ValueError(f"{raw!r} is neither a list nor a comma-separated string")
    return tuple(_parse_string(part.strip() if isinstance(part, str) else part, info) for part in parts if part != "")


PARSERS: dict[Any, Callable[[Any, SettingInfo], Any]] = {
    str: _parse_string,
    int: _parse_integer,
    Path: _parse_path,
    Path | None: _parse_path,
    tuple[str, ...]: _parse_strings,
}
