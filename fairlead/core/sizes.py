"""Sizes in bytes, as people write them: `4Gi`, `500M`."""

import re

_UNITS = {
    **{"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
    **{"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40},
}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(Ki|Mi|Gi|Ti|k|M|G|T)?")


def parse_size(text: str) -> int | None:
    """The number of bytes; None if the text is not a size."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2] or ""]) if match else None


def format_size(size: int) -> str:
    """With the largest unit that divides it: `32Gi`, `1536Mi`."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
