"""Lines of a file that a running process may be writing."""

from pathlib import Path


def read_lines(path: Path) -> list[str]:
    """The complete lines: a reader may see the beginning of one before the rest is written."""
    return path.read_text().rpartition("\n")[0].splitlines()
