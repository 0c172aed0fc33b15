"""app/doctor.py: each check finds its problem, and says what to do."""

import os
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairlead import __version__
from fairlead.app import doctor
from fairlead.app.data_migrations import MIGRATIONS
from fairlead.app.doctor import check_data_version, examine, with_running_address
from fairlead.client.admin_kubeconfig import KUBECONFIG_NAME, write_admin_kubeconfig
from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.core.machine.findings import Finding
from fairlead.settings import Settings
from fairlead.storage.contract import Write
from fairlead.storage.data_version import DataVersion, MigrationLock, encode_version, save_version
from fairlead.storage.migration import Migration
from fairlead.storage.open import open_store
from tests.harness.free_ports import free_port


async def find(settings: Settings, subject: str) -> Finding:
    findings = [each async for each in examine(settings)]
    return next(each for each in findings if each.subject.startswith(subject))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    ensure_certificates(data / "tls")
    return Settings(data=data, port=free_port())


async def test_a_new_installation_has_no_fatal_problem(settings: Settings) -> None:
    findings = [each async for each in examine(settings)]
    assert [each for each in findings if each.problem and each.is_fatal] == []
    assert {each.subject for each in findings} >= {"permissions", "disk", "clock", "certificate", "store (sqlite)"}


async def test_a_secret_that_others_can_read_is_a_problem(settings: Settings) -> None:
    (settings.data / "pepper.key").write_text("secret")
    (settings.data / "pepper.key").chmod(0o644)
    finding = await find(settings, "permissions")
    assert finding.is_fatal and "pepper.key" in finding.problem
    assert finding.remedy == f"chmod 600 {settings.data / 'pepper.key'}"


async def test_a_missing_folder_is_created_by_the_first_start(settings: Settings, tmp_path: Path) -> None:
    finding = await find(Settings(data=tmp_path / "none", port=settings.port), "data folder")
    assert "there is none" in finding.problem and not finding.is_fatal
    assert not (tmp_path / "none").exists()


async def test_a_full_disk_is_a_problem(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = os.statvfs(settings.data)
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", usage.f_bavail * usage.f_frsize * 2)
    warning = await find(settings, "disk")
    assert "MiB are free" in warning.problem and not warning.is_fatal
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", usage.f_bavail * usage.f_frsize * 20)
    assert (await find(settings, "disk")).is_fatal


@pytest.mark.parametrize(
    ("start", "end", "problem", "is_fatal"),
    [
        (-20, -1, "expired on", True),
        (1, 90, "not valid before", True),
        (-20, 10, "expires in 9 days", False),
        (-20, 90, "", True),
    ],
)
async def test_the_dates_of_a_certificate(
    settings: Settings, start: int, end: int, problem: str, is_fatal: bool
) -> None:
    write_certificate(settings.data / "tls" / "server.crt", timedelta(days=start), timedelta(days=end))
    finding = await find(settings, "certificate")
    assert problem in finding.problem and bool(finding.problem) == bool(problem)
    assert finding.is_fatal == is_fatal


def write_certificate(file: Path, start: timedelta, end: timedelta) -> None:
    key, now, name = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC), x509.Name([])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now + start, now + end)
    file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


async def test_something_that_is_no_certificate_is_a_problem(settings: Settings) -> None:
    (settings.data / "tls" / "server.crt").write_text("nothing")
    assert "not a readable certificate" in (await find(settings, "certificate")).problem


async def test_a_port_of_another_program_is_a_problem(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CONNECT_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", settings.port)):
        finding = await find(settings, f"port {settings.port}")
    assert finding.is_fatal and finding.problem == "another program listens on it"
    finding = await find(settings, f"port {settings.port}")
    assert not finding.is_fatal and "no server answers" in finding.problem
    assert finding.remedy.endswith("or name the port that it listens on with --port")


def test_the_port_is_that_of_the_server_that_runs_on_the_data_folder(settings: Settings) -> None:
    chosen = Settings(data=settings.data)
    assert with_running_address(chosen) == chosen
    url = f"https://127.0.0.1:{settings.port}"
    write_admin_kubeconfig(settings.data / KUBECONFIG_NAME, url, None, "key")
    assert with_running_address(chosen) == chosen, "the server of the last start does not run"
    with socket.create_server(("127.0.0.1", settings.port)):
        found = with_running_address(chosen)
        assert (found.listen, found.port) == ("127.0.0.1", settings.port)
        named = replace(chosen, origins={"port": "--port"})
        assert with_running_address(named).port == chosen.port
        for other in (f"https://fairlead.example.com:{settings.port}", "https://127.0.0.1", "https://[", "nothing"):
            write_admin_kubeconfig(settings.data / KUBECONFIG_NAME, other, None, "key")
            assert with_running_address(chosen) == chosen, other


def test_a_kubeconfig_that_is_none_is_left_to_the_server(settings: Settings) -> None:
    (settings.data / KUBECONFIG_NAME).write_text("nothing")
    assert with_running_address(Settings(data=settings.data)).port == 8443


async def test_a_port_that_needs_another_address_is_a_problem(settings: Settings) -> None:
    finding = await find(Settings(data=settings.data, port=settings.port, listen="192.0.2.1"), "port")
    assert finding.is_fatal and finding.remedy == "check --listen and --port"


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (None, "there is no program `helm`"),
        ("echo v3.17.3+ge4da497", ""),
        ("echo v4.1.4+g0000000", ""),
        ("echo v3.7.2+g663a896", "which is too old"),
        ("echo v2.17.0", "which is too old"),
        ("echo v5.0.0", "which this server was not tried with"),
        ("echo hello", "does not say its version"),
        ("exit 3", "ends with code 3"),
    ],
)
async def test_a_missing_or_unknown_helm_is_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str | None, problem: str
) -> None:
    path = tmp_path / "helm"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    monkeypatch.setattr(doctor, "find_helm", lambda: None if program is None else str(path))
    finding = await find(settings, "helm")
    assert problem in finding.problem and bool(finding.problem) is bool(problem)
    assert not finding.is_fatal or not problem
    assert ("make helm-tools" in finding.remedy) is bool(problem)


async def test_a_clock_that_is_not_synchronized_is_a_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for state, problem in ((False, "it is not synchronized"), (True, ""), (None, "")):
        monkeypatch.setattr(doctor, "is_clock_synchronized", lambda state=state: state)
        assert (await find(settings, "clock")).problem.startswith(problem)


def test_a_server_with_another_clock_is_a_problem() -> None:
    now = datetime.now(UTC)
    assert not doctor._compare_clocks(now - timedelta(seconds=3), now).problem
    assert "differs by 60 seconds" in doctor._compare_clocks(now + timedelta(seconds=60), now).problem


@pytest.mark.parametrize(
    ("store", "problem", "is_fatal"),
    [
        ("memory:", "all objects are lost", False),
        ("sqlite:{data}/none.db", "there is no database yet", False),
        ("sqlite:{data}/broken.db", "", True),
        ("postgres://u:hidden-password@127.0.0.1:1/x", "", True),
        ("etcd://127.0.0.1:1/x", "", True),
        ("nonsense:", "this is not a store URL", True),
    ],
)
async def test_a_store_that_cannot_be_read_is_a_problem(
    settings: Settings, store: str, problem: str, is_fatal: bool
) -> None:
    (settings.data / "broken.db").write_bytes(b"this is not a database" * 100)
    url = store.format(data=settings.data)
    finding = await find(Settings(data=settings.data, port=settings.port, store=url), "store")
    assert finding.problem.startswith(problem) and finding.problem and finding.is_fatal == is_fatal
    assert "hidden-password" not in finding.problem + finding.remedy


def migration(version: int, minimum: int = 0) -> Migration:
    return Migration(version, f"9.{version}.0", minimum, "for tests", lambda key, value: None)


MIGRATES = f"the next start of Fairlead {__version__} migrates it to 2"
HISTORY = (migration(1), migration(2, minimum=1))


@pytest.mark.parametrize(
    ("record", "subject", "problem", "is_fatal"),
    [
        (DataVersion(2, 1, "9.1.0", "9.2.0"), "data version 2", "", True),
        (
            DataVersion(3, 2, "9.2.0", "9.3.0"),
            "data version 3, of a newer version of Fairlead: this one can use it",
            "",
            True,
        ),
        (
            *(DataVersion(1, 0, "", "9.1.0"), "data version 1"),
            *(f"{MIGRATES}; older versions than 9.1.0 cannot use it then", False),
        ),
        (
            *(None, "data version 0"),
            *(f"{MIGRATES}; older versions than 9.1.0 cannot use it then", False),
        ),
        (
            *(DataVersion(1, 1, "9.1.0", "9.1.0", MigrationLock(2, "other", prepared=2)), "data version 1"),
            *("a migration to 2 is in progress, or was interrupted: the next start continues it", False),
        ),
        (
            *(DataVersion(4, 3, "9.3.0", "9.4.0"), "data version"),
            f"the data in the store needs Fairlead 9.3.0 or newer, and this is {__version__}: a newer version has "
            "migrated it (data version 4, this one knows 2)",
            True,
        ),
        (b"[]", "data version", "the record of the data version in the store is not readable (", True),
    ],
)
def test_the_version_of_the_data(
    record: DataVersion | bytes | None, subject: str, problem: str, is_fatal: bool
) -> None:
    value = encode_version(record) if isinstance(record, DataVersion) else record
    finding = check_data_version(value, HISTORY)
    assert (finding.subject, finding.is_fatal) == (subject, is_fatal)
    assert finding.problem.startswith(problem) and bool(finding.problem) == bool(problem)
    assert bool(finding.remedy) == bool(problem)


async def test_the_version_of_the_data_is_read_while_a_server_uses_the_store(settings: Settings) -> None:
    assert not [each async for each in examine(settings) if each.subject.startswith("data version")]
    store = await open_store(settings.store_url)
    try:
        assert (await find(settings, "store")).problem == ""
        assert not [each async for each in examine(settings) if each.subject.startswith("data version")]
        await store.commit([Write(("", "configmaps", "default", "a"), b"{}", 0)])
        assert "migrates it to" in (await find(settings, "data version 0")).problem
        known = len(MIGRATIONS)
        revision = await save_version(store, DataVersion(known), 0)
        assert (await find(settings, f"data version {known}")).problem == ""
        await save_version(store, DataVersion(known + 1, known + 1, "9.0.0"), revision)
        finding = await find(settings, "data version")
        assert finding.is_fatal and finding.problem.startswith("the data in the store needs Fairlead 9.0.0 or newer")
        assert finding.remedy.startswith("install Fairlead 9.0.0 or newer")
    finally:
        await store.close()
