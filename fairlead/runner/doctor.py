"""Checks what a runner needs, for `fairlead runner doctor`: its key, its server, its folder, and its engines."""

import os
from collections.abc import AsyncIterator
from contextlib import closing

from fairlead.client import ApiStatusError, CertificateError, ClientError
from fairlead.core.clock import parse_rfc3339
from fairlead.core.files import FileProblem, ensure_private_folder
from fairlead.core.machine.findings import Finding
from fairlead.core.objects import get_path
from fairlead.runner.process import connect
from fairlead.runner.registry import RangeProblem, load_engines
from fairlead.runner.report import check_engines
from fairlead.runner.settings import RunnerSettings, key_reader

MIN_FREE_BYTES = 5 * 1024**3
RANGES = "user ids and networks"


async def examine(settings: RunnerSettings) -> AsyncIterator[Finding]:
    """All findings, also those without a problem. It changes nothing but the state folder, which it creates."""
    key = _check_key(settings)
    yield key
    if not (key.problem and key.is_fatal):
        yield await _check_server(settings)
    yield _check_folder(settings)
    for name in settings.engines:
        try:
            engines = load_engines(settings, (name,))
        except RangeProblem as error:
            yield Finding(RANGES, str(error), "set first_uid and network_pool in a file, and name it with --config")
            continue
        except FileProblem as error:
            yield Finding(f"engine {name}", str(error), "use another --engine")
            continue
        for listed in (await check_engines(engines)).values():
            for finding in listed:
                yield finding


def _check_key(settings: RunnerSettings) -> Finding:
    try:
        key_reader(settings)
    except FileProblem as error:
        return Finding("key", str(error), f"fairlead runner key {settings.name}")
    if settings.key_file is not None and settings.key_file.stat().st_mode & 0o077:
        problem = f"{settings.key_file}: other users of this machine can read it"
        return Finding("key", problem, f"chmod 600 {settings.key_file}", is_fatal=False)
    return Finding("key")


async def _check_server(settings: RunnerSettings) -> Finding:
    try:
        with closing(connect(settings)) as api:
            runner = await api.get_runner()
    except ApiStatusError as error:
        remedy = f"fairlead runner key {settings.name}"
        if error.code == 404:
            remedy = f"fairlead runner create {settings.name}"
        return Finding("server", error.message, remedy)
    except CertificateError as error:
        return Finding("server", str(error), "use --ca-file with tls/ca.crt of the server's data folder")
    except (ClientError, FileProblem) as error:
        return Finding("server", str(error), "check --server, and that a firewall lets this machine reach it")
    if parse_rfc3339(get_path(runner, "metadata.deletionTimestamp")) is not None:
        return Finding("server", f"the runner {settings.name} is being deleted", "create another one")
    return Finding("server")


def _check_folder(settings: RunnerSettings) -> Finding:
    try:
        folder = ensure_private_folder(settings.state_folder)
    except FileProblem as error:
        return Finding("state folder", str(error), "use another --state")
    if not os.access(folder, os.W_OK):
        return Finding("state folder", f"{folder}: is not writable", f"chown {os.getuid()} {folder}")
    usage = os.statvfs(folder)
    if usage.f_bavail * usage.f_frsize < MIN_FREE_BYTES:
        remedy = "free some space, or use another --state"
        return Finding("state folder", f"{folder}: less than 5 GiB are free", remedy, is_fatal=False)
    return Finding("state folder")
