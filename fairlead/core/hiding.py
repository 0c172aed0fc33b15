"""Importing a package as if another one were not installed. Used for structlog in `log.py`.

Some packages import others merely because they are there, for features that we do not use, and every start waits.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """Whoever imports the package meanwhile is told that there is none. Afterwards all is as before."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    for name in before:
        del sys.modules[name]
    sys.modules[package] = None  # type: ignore[assignment]  # how Python itself notes what must not be found
    try:
        yield
    finally:
        del sys.modules[package]
        sys.modules.update(before)
