"""Files for secrets that a command prints once: private, and complete or not there at all.

A redirection of the shell truncates an old file before the command runs, and uses the umask. `open_secret_output` opens
a private draft before the server is asked for the secret, and the draft replaces the file when it is complete.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from fairlead.cli.ui.flags import flag
from fairlead.cli.ui.session import UsageError
from fairlead.cli.ui.streams import write_data
from fairlead.core.files import FileProblem

OutputFileFlag = Annotated[
    Path | None,
    flag("--output-file", help="Private file to write the key to; - for stdout.", metavar="FILE", default="stdout"),
]


@contextmanager
def open_secret_output(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Yields a function that writes the secret to the file or, without one, to stdout.

    Raises UsageError or FileProblem before the block if the file cannot be written.
    """
    if path is None or path == Path("-"):
        yield write_data
        return
    target = _resolve(path)
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # with mode 0600
    except OSError as error:
        raise FileProblem(f"{path}: {error.strerror or error}; specify another file") from None

    def write(content: bytes) -> None:
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
            os.replace(draft, target)
        except OSError as error:
            _report_lost_secret(path, error, content)

    try:
        yield write
    finally:
        with suppress(OSError):  # a failed write is reported already
            os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(draft)


def _write_all(descriptor: int, content: bytes) -> None:
    """Writes without a buffer: what is left in one after an error is written again when the file is closed."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _report_lost_secret(path: Path, error: OSError, content: bytes) -> None:
    """The server does not show the secret again, so it goes to stdout."""
    write_data(content)
    raise FileProblem(f"{path}: {error.strerror or error}; the key is on stdout instead") from None


def _resolve(path: Path) -> Path:
    """The file to replace. A link is followed if it is the user's own: another user's may lead anywhere.

    If the path is no link, only its folder is resolved: a link that is created later is replaced, and not followed.
    """
    target = Path(os.path.realpath(path.parent)) / path.name
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        link = path.lstat()
        if stat.S_ISLNK(link.st_mode):
            if link.st_uid != os.geteuid():
                raise UsageError(f"{path}: a symbolic link of another user; specify another file, or - for stdout")
            target = Path(os.path.realpath(path))
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        _check_replaceable(path, target.lstat())
    if not target.parent.is_dir():
        raise UsageError(f"{path}: {target.parent} is not a directory; create it, or specify another file")
    return target


def _check_replaceable(path: Path, found: os.stat_result) -> None:
    """Another user's file cannot be replaced in a sticky folder like /tmp, which shows only when the secret exists."""
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{path}: a directory; specify a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path}: not a regular file; specify another file, or - for stdout")
    if found.st_uid != os.geteuid():
        raise UsageError(f"{path}: a file of another user; specify another file, or - for stdout")
