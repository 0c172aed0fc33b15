"""Parses setting values from strings (flags, environment) or YAML (file).

A setting is a field annotated with `SettingInfo`. `settings/__init__.py` declares all settings and parses them with
`PARSERS`. A parser raises ValueError with what is wrong and how to fix it.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ON, OFF = "on", "off"
SWITCH = (ON, OFF)


@dataclass(frozen=True, slots=True)
class About:
    """The description, bounds and checks of a setting."""

    group: str
    help: str
    minimum: int = 1
    maximum: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    check: Callable[[str], str | None] | None = None
    """Returns what is wrong with a string; None if it is valid."""
    computed: str = ""
    """A description of the default, if it is computed; the field's default is then a placeholder."""


def _read_text(raw: Any, about: About) -> str:
    if about.choices == SWITCH and isinstance(raw, bool):  # YAML 1.1 parses on and off as booleans
        raw = ON if raw else OFF
    if not isinstance(raw, str):
        raise ValueError(f"{raw!r} is not a string; put it in quotes")
    if about.choices and raw not in about.choices:
        raise ValueError(f"{raw!r} is not one of {', '.join(about.choices)}")
    is_computed = not raw and about.computed
    if not is_computed and about.check and (problem := about.check(raw)):
        raise ValueError(f"{raw!r} {problem}")
    return raw


def _read_number(raw: Any, about: About) -> int:
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,18}", raw.strip()):
        raw = int(raw)
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise ValueError(f"{raw!r} is not an integer")
    if not about.minimum <= raw <= about.maximum:
        raise ValueError(f"{raw} is out of range; it must be between {about.minimum} and {about.maximum}")
    return raw


def _read_path(raw: Any, about: About) -> Path:
    text = _read_text(raw, about)
    if not text:
        raise ValueError("must not be empty; give a path, or leave out the setting")
    return absolute(text)


def absolute(text: str) -> Path:
    """An absolute path, with `~` expanded: messages show it to users in other working directories."""
    return Path(os.path.expanduser(text)).absolute()


def _read_texts(raw: Any, about: About) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list):
        raise ValueError(f"{raw!r} is neither a list nor a comma-separated string")
    return tuple(_read_text(part.strip() if isinstance(part, str) else part, about) for part in parts if part != "")


READERS: dict[Any, Callable[[Any, About], Any]] = {
    str: _read_text,
    int: _read_number,
    Path: _read_path,
    Path | None: _read_path,
    tuple[str, ...]: _read_texts,
}
