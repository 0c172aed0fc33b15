"""The standard streams of a command: closed ones, locales that are not UTF-8, and output that cannot be written.

Each line is written when it is complete, also into a pipe or a file: the reader of a watch or a log gets it at once.
JSON and YAML are UTF-8 in every locale. In other output, characters that the locale does not have are escaped.
"""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper

WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE)
STREAMS = ("stdin", "stdout", "stderr")


def run_with_streams(run: Callable[[], None]) -> None:
    """Runs a command that ends with SystemExit, and exits with code 1 if its output cannot be written."""
    _prepare_streams()
    try:
        run()
        code: str | int | None = 0
    except SystemExit as exit:
        code = exit.code
    except OSError as error:
        if error.filename is None and error.errno not in WRITE_ERRORS:
            raise
        code = _report_write_error(error) if error.filename is None else _report_file_error(error)
    try:
        sys.stdout.flush()  # at the latest now, while an error can be reported
    except OSError as error:
        code = _report_write_error(error)
    sys.exit(code)


def _prepare_streams() -> None:
    for descriptor, name in enumerate(STREAMS):
        if getattr(sys, name) is None:  # closed, as with `>&-`; the next file would get its descriptor
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, "w" if descriptor else "r", encoding="utf-8"))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)


def _report_file_error(error: OSError) -> int:
    """For files of libraries, such as the start-up file of a shell. Commands report their own files as FileProblem."""
    print(f"fairlead: {error.filename}: {error.strerror}; make it accessible, and try again", file=sys.stderr)
    return 1


def _report_write_error(error: OSError) -> int:
    """Says that the output is incomplete, unless a program such as `head` has read what it needs."""
    with suppress(OSError):
        if error.errno != errno.EPIPE:
            print(f"fairlead: cannot write the output: {error.strerror}; it is incomplete", file=sys.stderr, flush=True)
    # What is still buffered would fail again when the process ends.
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            os.dup2(null, stream.fileno())
    return 1


def write_data(encoded: bytes) -> None:
    """Writes JSON or YAML to stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(encoded)
    sys.stdout.flush()
