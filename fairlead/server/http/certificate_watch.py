"""Notices that files of certificates have changed, and calls back with their new content.

The files are polled: notifications do not exist on every file system, and miss the way in which Kubernetes replaces
mounted secrets. Files that do not fit together, for example because only one of them was replaced so far, are reported
once and read again later. Until then, everything stays as it is.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from fairlead.core.crypto.certificates import CertificateFiles, read_certificate_files
from fairlead.core.files import FileProblem

POLL_SECONDS = 2.0
RENEWAL_POLLS = 1_800
"""Polls between two checks whether a generated certificate has to be renewed: an hour."""

MAIN_PORT = "main"
"""The port without client certificates, in the metrics. The others are named by the purpose of their certificates."""

T = TypeVar("T")
Signature = tuple[object, ...]

log = structlog.get_logger(__name__)


class ReloadCounter:
    """Counts attempts to use changed files, by port and result, for the metrics."""

    def __init__(self) -> None:
        self.results = Counter[tuple[str, str]]()

    def count(self, port: str, is_success: bool) -> None:
        self.results[port, "success" if is_success else "failure"] += 1


def count_nothing(is_success: bool) -> None:
    """For servers without metrics."""


async def watch_files(
    sign: Callable[[], Signature],
    known: T,
    read: Callable[[], T],
    on_change: Callable[[T], Awaitable[None]],
    count: Callable[[bool], None] = count_nothing,
) -> None:
    """Calls `on_change` whenever `read` returns something else than before. Never returns.

    `sign` returns a value that changes with what is read, such as that of `sign_files`. The others raise FileProblem if
    the files are not usable. `count` is told whether an attempt was successful.
    """
    seen, reported = sign(), ""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        signature = sign()
        if signature == seen:
            continue
        try:
            found = read()
            if found != known:
                await on_change(found)
                count(True)
        except FileProblem as error:
            count(False)
            if str(error) != reported:
                log.error("changed files cannot be used; the previous ones stay in use", problem=str(error))
                reported = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - whatever it was, the next attempt may succeed
            count(False)
            if str(error) != reported:
                log.error("changed files could not be put to use; trying again", problem=repr(error))
                reported = str(error)
            continue
        seen, known, reported = signature, found, ""


async def watch_certificate(
    files: CertificateFiles,
    on_change: Callable[[CertificateFiles], Awaitable[None]],
    renew: Callable[[], object] | None = None,
    count: Callable[[bool], None] = count_nothing,
) -> None:
    """Calls `on_change` with each new certificate. `renew` renews the generated one when it is time."""

    async def report(found: CertificateFiles) -> None:
        expires = found.certificate.not_valid_after_utc
        log.info("the server certificate has changed", file=str(found.cert_file), expires=expires.isoformat())
        await on_change(found)

    def read() -> CertificateFiles:
        return read_certificate_files(files.cert_file, files.key_file)

    watching = watch_files(partial(sign_files, (files.cert_file, files.key_file)), files, read, report, count)
    if renew is None:
        await watching
    else:
        await asyncio.gather(watching, _renew_regularly(renew))


async def _renew_regularly(renew: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(POLL_SECONDS * RENEWAL_POLLS)
        try:
            await asyncio.to_thread(renew)
        except FileProblem as error:
            log.warning("the generated certificate cannot be renewed", problem=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it was, the next attempt may succeed
            log.error("the generated certificate cannot be renewed; trying again later", problem=repr(error))


def sign_files(paths: tuple[Path, ...]) -> Signature:
    """A value that changes when a file is replaced or written to, also through a symbolic link."""
    return tuple(_sign_file(path) for path in paths)


def _sign_file(path: Path) -> Signature:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
