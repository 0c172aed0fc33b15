"""What people give as the value of a setting, as text or as YAML has it, made into the value that is meant.

A setting is a field with an About beside its type; `settings/__init__.py` declares them all and reads them with READERS. Each
reader raises ValueError with what is wrong and how it is put right.
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
    """What a field knows beside its name, type and default."""

    group: str
    help: str
    minimum: int = 1
    maximum: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    check: Callable[[str], str | None] | None = None
    """Looks at one text and says what is wrong with it."""
    computed: str = ""
    """The default in words, where the one on the field only stands for it."""


def _read_text(raw: Any, about: About) -> str:
    if about.choices == SWITCH and isinstance(raw, bool):  # what YAML makes of on and off
        raw = ON if raw else OFF
    if not isinstance(raw, str):
        raise ValueError(f"{raw!r} is not a text; put it in quotes")
    if about.choices and raw not in about.choices:
        raise ValueError(f"{raw!r} is none of {', '.join(about.choices)}")
    computed = not raw and about.computed
    if not computed and about.check and (wrong := about.check(raw)):
        raise ValueError(f"{raw!r} {wrong}")
    return raw


def _read_number(raw: Any, about: About) -> int:
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,18}", raw.strip()):
        raw = int(raw)
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise ValueError(f"{raw!r} is not a whole number")
    if not about.minimum <= raw <= about.maximum:
        raise ValueError(f"{raw} is out of bounds; it must be between {about.minimum} and {about.maximum}")
    return raw


def _read_path(raw: Any, about: About) -> Path:
    text = _read_text(raw, about)
    if not text:
        raise ValueError("must not be empty; name a path, or leave it out")
    return absolute(text)


def absolute(text: str) -> Path:
    """Because paths are shown to people who stand elsewhere."""
    return Path(os.path.expanduser(text)).absolute()


def _read_texts(raw: Any, about: About) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list):
        raise ValueError(f"{raw!r} is neither a list nor a text with commas between")
    return tuple(_read_text(part.strip() if isinstance(part, str) else part, about) for part in parts if part != "")


READERS: dict[Any, Callable[[Any, About], Any]] = {
    str: _read_text,
    int: _read_number,
    Path: _read_path,
    Path | None: _read_path,
    tuple[str, ...]: _read_texts,
}
