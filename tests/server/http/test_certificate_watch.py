"""Tests of `fairlead.server.http.certificate_watch`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import CertificateFiles, read_certificate_files
from fairlead.core.files import FileProblem
from fairlead.server.http import certificate_watch
from fairlead.server.http.certificate_watch import MAIN_PORT, ReloadCounter, watch_certificate
from fairlead.server.metrics.exposition import TEXT, render_families
from fairlead.server.metrics.installation import reload_families
from tests.harness.certificates import create_authority
from tests.harness.eventually import TIMEOUT_SECONDS, eventually


@asynccontextmanager
async def watching(files: CertificateFiles, found: list[CertificateFiles]) -> AsyncIterator[None]:
    async def record(changed: CertificateFiles) -> None:
        found.append(changed)

    task = asyncio.create_task(watch_certificate(files, record))
    await asyncio.sleep(0.05)
    yield
    task.cancel()


@pytest.fixture(autouse=True)
def poll_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_watch, "POLL_SECONDS", 0.01)


async def wait_for(found: list[CertificateFiles], count: int) -> None:
    await eventually(lambda: len(found) >= count, TIMEOUT_SECONDS)


async def test_a_new_certificate_is_reported_once_it_is_complete(tmp_path: Path) -> None:
    authority, found = create_authority(tmp_path), list[CertificateFiles]()
    cert, key = authority.issue("server")
    first = read_certificate_files(cert, key)
    async with watching(first, found):
        next_cert, next_key = authority.issue("next")
        next_key.replace(key)
        await asyncio.sleep(0.1)
        assert found == []  # the key of another certificate
        next_cert.replace(cert)
        await wait_for(found, 1)
    (second,) = found
    assert second == read_certificate_files(cert, key) != first


async def test_files_behind_a_symbolic_link_are_followed(tmp_path: Path) -> None:
    """As Kubernetes replaces mounted secrets: the link to a folder is replaced."""
    one, two = create_authority(tmp_path / "one"), create_authority(tmp_path / "two")
    one.issue("tls"), two.issue("tls")
    (tmp_path / "data").symlink_to("one")
    found = list[CertificateFiles]()
    async with watching(read_certificate_files(tmp_path / "data/tls.crt", tmp_path / "data/tls.key"), found):
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").replace(tmp_path / "data")
        await wait_for(found, 1)
    assert found[0].cert == (tmp_path / "two" / "tls.crt").read_bytes()


async def test_files_that_are_touched_or_missing_change_nothing(tmp_path: Path) -> None:
    authority, found = create_authority(tmp_path), list[CertificateFiles]()
    cert, key = authority.issue("server")
    async with watching(read_certificate_files(cert, key), found):
        content = cert.read_bytes()
        cert.unlink()
        await asyncio.sleep(0.05)
        cert.write_bytes(content)
        key.touch()
        await asyncio.sleep(0.05)
    assert found == []


@pytest.mark.parametrize(
    ("cert", "key", "message"),
    [
        (None, None, "server.crt: no such file"),
        (b"", None, "server.key: no such file"),
        (b"x", b"y", "not PEM"),
    ],
)
def test_unusable_files_are_reported(tmp_path: Path, cert: bytes | None, key: bytes | None, message: str) -> None:
    cert_file, key_file = tmp_path / "server.crt", tmp_path / "server.key"
    for file, content in ((cert_file, cert), (key_file, key)):
        if content is not None:
            file.write_bytes(content)
    with pytest.raises(FileProblem, match=message):
        read_certificate_files(cert_file, key_file)


def test_a_key_that_does_not_match_is_reported(tmp_path: Path) -> None:
    authority = create_authority(tmp_path)
    (cert, _), (_, key) = authority.issue("one"), authority.issue("two")
    with pytest.raises(FileProblem, match="does not match"):
        read_certificate_files(cert, key)


async def test_any_other_error_is_logged_and_the_change_is_tried_again(tmp_path: Path) -> None:
    authority, attempts = create_authority(tmp_path), list[CertificateFiles]()
    cert, key = authority.issue("server")

    async def fail_once(changed: CertificateFiles) -> None:
        attempts.append(changed)
        if len(attempts) == 1:
            raise OSError(28, "No space left on device")

    task = asyncio.create_task(watch_certificate(read_certificate_files(cert, key), fail_once))
    await asyncio.sleep(0.05)
    for new, old in zip(authority.issue("next"), (cert, key), strict=True):
        new.replace(old)
    await wait_for(attempts, 2)
    assert attempts[0] == attempts[1] and not task.done()
    task.cancel()


async def test_a_renewal_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_watch, "RENEWAL_POLLS", 1)
    attempts = list[int]()

    def fail() -> None:
        attempts.append(1)
        raise RuntimeError("no lock")

    files = read_certificate_files(*create_authority(tmp_path).issue("server"))
    task = asyncio.create_task(watch_certificate(files, lambda _: asyncio.sleep(0), fail))
    await eventually(lambda: len(attempts) >= 2, TIMEOUT_SECONDS)
    assert not task.done()
    task.cancel()


async def test_attempts_to_use_changed_files_are_counted(tmp_path: Path) -> None:
    authority, reloads = create_authority(tmp_path), ReloadCounter()
    files = read_certificate_files(*authority.issue("server"))

    async def ignore(changed: CertificateFiles) -> None:
        pass

    task = asyncio.create_task(watch_certificate(files, ignore, count=partial(reloads.count, MAIN_PORT)))
    await asyncio.sleep(0.05)
    files.key_file.write_bytes(b"damaged")
    await eventually(lambda: reloads.results["main", "failure"] > 0, TIMEOUT_SECONDS)
    assert reloads.results["main", "success"] == 0
    authority.issue("server")
    await eventually(lambda: reloads.results["main", "success"] > 0, TIMEOUT_SECONDS)
    task.cancel()
    page = render_families(reload_families(reloads), TEXT).decode()
    assert 'fairlead_certificate_reloads_total{port="main",result="success"} 1.0' in page
