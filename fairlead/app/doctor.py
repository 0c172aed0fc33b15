"""Checks an installation on its machine, for `fairlead doctor`: files, disk, clock, certificate, port, store, data.

It changes nothing, and works while the server runs and while it does not. Nothing that it reports contains a secret.
"""

import asyncio
import ctypes
import ipaddress
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from fairlead import __version__
from fairlead.app import data_migrations
from fairlead.client.admin_kubeconfig import KUBECONFIG_NAME, read_server_url
from fairlead.core.files import FileProblem, read_file
from fairlead.core.machine.findings import Finding
from fairlead.core.machine.folder_security import require_private, require_tamper_proof
from fairlead.core.machine.helm_program import HELM, HELM_ADVICE, find_helm, find_helm_problem
from fairlead.settings import Settings
from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.data_version import VERSION_KEY, DataVersion, check_readable, decode_version
from fairlead.storage.migration import Migration, MigrationPlan
from fairlead.storage.open import open_snapshot, read_stored, scheme_of

MIN_FREE_BYTES = 1 << 30
MIN_FREE_INODES = 10_000
EXPIRY_WARNING = timedelta(days=21)
"""A generated certificate is renewed 30 days before its end, when the server starts."""
MAX_CLOCK_DIFFERENCE = timedelta(seconds=5)
CONNECT_TIMEOUT = 5.0
STORE_TIMEOUT = 30.0
STA_UNSYNC = 0x40
TIMEX_BYTES, TIMEX_STATUS_OFFSET = 512, 40
"""More than the size of `struct timex`, and the offset of its field `status` on 64-bit machines."""


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """All findings, also those without a problem."""
    for finding in _check_folder(settings):
        yield finding
    yield _check_clock()
    yield await asyncio.to_thread(_check_helm)
    for finding in _check_certificate(settings, datetime.now(UTC)):
        yield finding
    answer = await asyncio.to_thread(_ask_server, settings)
    yield _check_port(settings, answer)
    if answer.date is not None:
        yield _compare_clocks(answer.date, datetime.now(UTC))
    async for finding in _check_store(settings):
        yield finding


def _check_helm() -> Finding:
    path = find_helm()
    problem = (
        find_helm_problem(path) if path is not None else f"there is no program `{HELM}` on the PATH of this command"
    )
    if not problem:
        return Finding("helm")
    advice = f"apps and virtual clusters need it: {HELM_ADVICE}; the server looks on its own PATH, not on this one"
    return Finding("helm", problem, advice, is_fatal=False)


# --- files and disk ---------------------------------------------------------------------------------------------------


def _check_folder(settings: Settings) -> Iterator[Finding]:
    if not settings.data.exists():
        advice = "the first start creates it; otherwise pass the server's folder with --data"
        yield Finding("data folder", f"{settings.data}: there is none", advice, is_fatal=False)
        yield _check_disk("disk", _existing_parent(settings.data))
        return
    yield _check_permissions(settings)
    yield _check_disk("disk", settings.data)
    if settings.audit_destination not in ("", "-"):
        yield _check_disk("disk of the audit log", _existing_parent(Path(settings.audit_destination)))


def _check_permissions(settings: Settings) -> Finding:
    """Run by root, it checks the folder as if the server ran as its owner."""
    try:
        owner = settings.data.stat().st_uid
        if owner != os.geteuid() and os.geteuid() != 0:
            problem = f"{settings.data}: it belongs to another user"
            return Finding("permissions", problem, "run this command as root, or as the user of the server")
        if owner == os.geteuid():
            require_private(settings.data)
        elif settings.data.stat().st_mode & 0o077:
            raise FileProblem(f"{settings.data}: other users may open it; run: chmod 700 {settings.data}")
        if settings.tls_key is not None:
            require_tamper_proof(settings.tls_key)
    except FileProblem as error:
        problem, _, remedy = str(error).partition("; run: ")
        return Finding("permissions", problem, remedy)
    except OSError as error:
        return Finding("permissions", f"{settings.data}: {error.strerror}", "run this command as root")
    return Finding("permissions")


def _existing_parent(path: Path) -> Path:
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def _check_disk(subject: str, folder: Path) -> Finding:
    usage = os.statvfs(folder)
    free = usage.f_bavail * usage.f_frsize
    if free < MIN_FREE_BYTES:
        problem = f"{folder}: {free >> 20} MiB are free; the server stops writing when nothing is left"
        return Finding(subject, problem, "free some space, or lower audit_disk", is_fatal=free < MIN_FREE_BYTES // 10)
    if usage.f_files and usage.f_favail < MIN_FREE_INODES:
        return Finding(subject, f"{folder}: {usage.f_favail} inodes are free", "delete files", is_fatal=False)
    return Finding(subject)


# --- clock ------------------------------------------------------------------------------------------------------------


def _check_clock() -> Finding:
    remedy = "start a time service, for example: systemctl enable --now systemd-timesyncd"
    if is_clock_synchronized() is False:
        problem = "it is not synchronized; keys and tokens may expire early or late, and replicas may disagree"
        return Finding("clock", problem, remedy, is_fatal=False)
    return Finding("clock")


def is_clock_synchronized() -> bool | None:
    """As the kernel sees it; None if it does not say."""
    buffer = ctypes.create_string_buffer(TIMEX_BYTES)  # all zero: a query that changes nothing
    with suppress(OSError, AttributeError):
        if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) >= 0:
            status = int.from_bytes(buffer.raw[TIMEX_STATUS_OFFSET : TIMEX_STATUS_OFFSET + 4], sys.byteorder)
            return not status & STA_UNSYNC
    return None


def _compare_clocks(server: datetime, now: datetime) -> Finding:
    if abs(server - now) > MAX_CLOCK_DIFFERENCE:
        problem = f"the server's clock differs by {abs(server - now).total_seconds():.0f} seconds"
        return Finding("clock of the server", problem, "synchronize the clocks of both machines")
    return Finding("clock of the server")


# --- certificate ------------------------------------------------------------------------------------------------------


def _check_certificate(settings: Settings, now: datetime) -> Iterator[Finding]:
    file = settings.tls_cert or settings.data / "tls" / "server.crt"
    renewal = "replace tls_cert and tls_key" if settings.tls_cert else "restart the server, which renews it"
    try:
        content = read_file(file)
        certificate = x509.load_pem_x509_certificate(content) if content is not None else None
    except (FileProblem, ValueError) as error:
        yield Finding("certificate", f"{file}: not a readable certificate ({error})", renewal)
        return
    if certificate is None:
        problem = f"{file}: no such file"
        remedy = "check tls_cert" if settings.tls_cert else "the first start creates it"
        yield Finding("certificate", problem, remedy, is_fatal=settings.tls_cert is not None)
        return
    yield check_expiry("certificate", file, certificate, now, renewal)
    authority = settings.tls_ca or (None if settings.tls_cert else settings.data / "tls" / "ca.crt")
    with suppress(FileProblem, ValueError):
        if authority is not None and (content := read_file(authority)) is not None:
            remedy = "replace the CA, and give clients the new one"
            yield check_expiry("certificate authority", authority, x509.load_pem_x509_certificate(content), now, remedy)


def check_expiry(subject: str, file: Path, certificate: x509.Certificate, now: datetime, remedy: str) -> Finding:
    end = certificate.not_valid_after_utc
    if end <= now:
        return Finding(subject, f"{file}: expired on {end:%Y-%m-%d}", remedy)
    if certificate.not_valid_before_utc > now:
        problem = f"{file}: not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return Finding(subject, problem, "check the clock of this machine")
    if end - now < EXPIRY_WARNING:
        return Finding(subject, f"{file}: expires in {(end - now).days} days", remedy, is_fatal=False)
    return Finding(subject)


# --- port and server --------------------------------------------------------------------------------------------------


def with_running_address(settings: Settings) -> Settings:
    """The settings with the address of the server that runs on the data folder, unless they name a port.

    A server writes its address to the kubeconfig of the administrator whenever it is ready. The file stays when the
    server stops, and has another address with `public_url`: so it counts only if something listens there.
    """
    kubeconfig = settings.data / KUBECONFIG_NAME
    if "port" in settings.origins or settings.public_url:
        return settings
    try:
        url = urlsplit(read_server_url(kubeconfig))
        host, port = str(ipaddress.ip_address(url.hostname or "")), url.port
    except (FileProblem, ValueError):  # a host name is of a `public_url` that this command was not given
        return settings
    listen = settings.listen if "listen" in settings.origins else host
    if port is None or port == settings.port or not _is_listening(_connectable(listen), port):
        return settings
    return replace(settings, listen=listen, port=port, origins={**settings.origins, "port": str(kubeconfig)})


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


def _connectable(listen: str) -> str:
    return "127.0.0.1" if listen in ("0.0.0.0", "::") else listen


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What listens on the port: nothing, a server (then with the status of /readyz), or another program."""

    is_listening: bool = False
    ready_status: int = 0
    failed_checks: str = ""
    date: datetime | None = None


def _ask_server(settings: Settings) -> ServerAnswer:
    host = _connectable(settings.listen)
    if not _is_listening(host, settings.port):
        return ServerAnswer()
    context = ssl.create_default_context()
    context.check_hostname = False  # this machine is asked whether it serves; nothing secret is sent
    context.verify_mode = ssl.CERT_NONE
    connection = HTTPSConnection(host, settings.port, timeout=CONNECT_TIMEOUT, context=context)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        text = response.read(10_000).decode(errors="replace")
        failed = ", ".join(line[3:].split(" ")[0] for line in text.splitlines() if line.startswith("[-]"))
        return ServerAnswer(True, response.status, failed, _parse_date(response.getheader("Date", "")))
    except (OSError, HTTPException):
        return ServerAnswer(is_listening=True)
    finally:
        connection.close()


def _parse_date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


def _check_port(settings: Settings, answer: ServerAnswer) -> Finding:
    subject = f"port {settings.port}"
    if answer.ready_status == 200:
        return Finding(subject)
    if answer.ready_status in (500, 503):
        problem = f"a server answers, but is not ready: {answer.failed_checks or 'see its log'}"
        return Finding(subject, problem, "see the findings about the store and the disk, and the log of the server")
    if answer.is_listening:
        return Finding(subject, "another program listens on it", "stop it, or choose another port with --port")
    family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.listen, settings.port))
        except PermissionError:
            remedy = "use a port above 1023, or give the service AmbientCapabilities=CAP_NET_BIND_SERVICE"
            return Finding(subject, "only root may use it", remedy)
        except OSError as error:
            return Finding(subject, f"{settings.listen}: {error.strerror}", "check --listen and --port")
    start = "start the server: fairlead serve, or systemctl start fairlead"
    remedy = f"{start}; or name the port that it listens on with --port"
    return Finding(subject, "no server answers; the port is free", remedy, is_fatal=False)


# --- store ------------------------------------------------------------------------------------------------------------


async def _check_store(settings: Settings) -> AsyncIterator[Finding]:
    """Opens the store for reading, and reads a record and the version of the data."""
    scheme = scheme_of(settings.store_url)
    subject = f"store ({scheme})"
    if scheme == "memory":
        yield Finding(subject, "all objects are lost when the server stops", "use sqlite:PATH", is_fatal=False)
        return
    if scheme == "sqlite" and not _exists(settings.store_url.partition(":")[2]):
        yield Finding(subject, "there is no database yet", "the first start creates it", is_fatal=False)
        return
    try:
        async with asyncio.timeout(STORE_TIMEOUT):
            has_records, version = await _read_store(settings.store_url)
    except TimeoutError:
        problem = f"no answer within {STORE_TIMEOUT:.0f} seconds"
        yield Finding(subject, problem, "check that the store runs, and that this machine reaches it")
        return
    except (StoreUnavailable, ValueError) as error:
        problem, _, remedy = str(error).partition("; ")
        yield Finding(subject, problem, remedy or "check the setting store")
        return
    yield Finding(subject)
    if has_records:
        yield check_data_version(version, data_migrations.MIGRATIONS)


async def _read_store(url: str) -> tuple[bool, bytes | None]:
    """Whether the store has records, and the record of the data version."""
    has_records = False
    async with open_snapshot(url) as snapshot:
        async for _ in snapshot.records:
            has_records = True
            break
        await snapshot.records.aclose()
    record = await read_stored(url, VERSION_KEY)
    return has_records, record.value if record is not None else None


def check_data_version(record: bytes | None, history: Sequence[Migration]) -> Finding:
    """Whether this version can use the data, and whether its next start migrates it."""
    plan = MigrationPlan(history, __version__, "")
    try:
        found = decode_version(record) if record is not None else DataVersion()
        check_readable(found, plan.version, plan.release)
    except StoreUnavailable as error:
        problem, _, remedy = str(error).partition("; ")
        return Finding("data version", problem, remedy)
    subject = f"data version {found.version}"
    if found.version >= plan.version:
        is_newer = found.version > plan.version
        return Finding(f"{subject}, of a newer version of Fairlead: this one can use it" if is_newer else subject)
    target = plan.target(found)
    if found.migration is not None:
        problem = (
            f"a migration to {found.migration.target} is in progress, or was interrupted: the next start continues it"
        )
    else:
        problem = f"the next start of Fairlead {__version__} migrates it to {plan.version}"
    if target.minimum_version > found.minimum_version:
        problem += f"; older versions than {target.minimum_release} cannot use it then"
    return Finding(subject, problem, "make a backup before: fairlead backup FILE", is_fatal=False)


def _exists(path: str) -> bool:
    return os.path.exists(path)


async def count_objects(settings: Settings) -> dict[str, int]:
    """The number of stored records of each resource, as `plural.group`. Raises StoreUnavailable and ValueError."""
    counts: dict[str, int] = {}
    async with open_snapshot(settings.store_url) as snapshot:
        async for record in snapshot.records:
            group = record.key[0]
            plural = record.key[1]
            name = f"{plural}.{group}" if group else plural
            counts[name] = counts.get(name, 0) + 1
    return counts
