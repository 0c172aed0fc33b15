"""Loading what stays for as long as the process does. Used by `app` around the start of the view, and when it is ready.

Python's collector looks for cycles among everything that was made. While a million objects are loaded it would look
through them again and again, and afterwards with every full round, and none of them ever is garbage that it could find.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """What is made meanwhile, and all that was there before, is never looked through again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def keep_everything() -> None:
    """Sets aside all that there is now. A full round takes a microsecond for each object and holds up the event loop,
    so it should only look at what was made since the server began to serve."""
    gc.collect()
    gc.freeze()
