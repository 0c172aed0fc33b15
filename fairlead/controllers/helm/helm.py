"""Runs the `helm` program in a subprocess. Called by `deploy.py`.

Each run has a private temporary directory for the kubeconfig, the values and helm's own files, and inherits only PATH
and the CA certificates from the environment. Credentials are passed in files, never as arguments, which are visible to
other processes. The chart is downloaded and checked before (`fetch.py`), and helm gets the path of an archive: it has
no repositories, no registries, no proxy and no plug-ins, and connects to the cluster only. Memory, CPU time and file
size of a run are limited (`limited_process.py`). The output of helm is not logged. Failures to start it are an
InstanceError of the release.

Error messages of helm are shown in conditions, which the author of the chart may read. So that they do not leak what a
server inside the network answers or what is in a local file, only messages about the release itself are shown, without
credentials and addresses; of an unreachable cluster only a fixed text. The patterns are those of Helm 3.17 and 4.2,
which differ: 3 counts errors, 4 uses server-side apply.

The number of concurrent runs is limited (`slots.py`).
"""

import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fairlead.controllers.helm import end_with_parent
from fairlead.controllers.helm.chart import Chart, Release, build_kubeconfig, manifest_chart_files
from fairlead.controllers.helm.limited_process import run_limited
from fairlead.controllers.helm.missing_rules import PERMISSIONS_MISSING, describe_missing_rules
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.core import yaml
from fairlead.core.files import write_file
from fairlead.core.machine.helm_program import HELM, HELM_ADVICE, find_helm
from fairlead.core.waiting import run_to_end
from fairlead.upstream.access import ClusterEndpoint

MAX_MESSAGE_LENGTH = 2_000
FORCE_CONFLICTS = "--force-conflicts"
MISSING_HELM = f"there is no program `{HELM}` on the server's PATH; {HELM_ADVICE}"
CLUSTER_NOT_REACHED = "helm could not reach the cluster, or the cluster rejected the server's credential"

# Prefixes of errors about the release itself, not about the download of the chart or the connection to the cluster.
_release_error = re.compile(
    r"Error: (?:"
    r"(?:UPGRADE|INSTALLATION) FAILED: "
    r"|execution error at |template: |parse error at |YAML parse error on |values don't meet the specifications"
    r"|[\w.-]+/(?:charts/[\w.-]+/)*templates/\S+:\d+:\d+ executing "
    r"|failed to parse \[\.\.\.\]/values\.yaml: |chart requires kubeVersion: |chart dependencies processing failed"
    r"|[Aa]n error occurred while checking for chart dependencies"
    r"|unable to build kubernetes objects|[Uu]nable to continue with |failed to install CRD "
    r"|\d+ errors? occurred: |server-side apply failed for object |conflict occurred while applying object "
    r"|create: failed to create: |query: failed to query with labels: "
    r"|failed (?:pre|post)-(?:install|upgrade|delete): |another operation \(install/upgrade/rollback\)"
    r"|cannot re-?use a name|release[: ]|uninstall: |uninstallation completed with |failed to delete release: "
    r"|timed out waiting for |context deadline exceeded"
    r'|[\w.-]+ "[^"]{1,253}" is (?:invalid|forbidden): '
    r")"
)
# Of another server than the cluster. Helm has no reason to say this any more, but what it says then is not shown.
_download_error = re.compile(
    r"looks like |failed to fetch|failed to download|failed to do request|\b(?:Get|GET|Head|HEAD) \"|dial tcp"
    r"|authenticating to "
)
_cluster_unreachable = re.compile(r"[Kk]ubernetes cluster unreachable: ")
_release_not_found = re.compile(r"Error: uninstall: Release not loaded: \S+: release: not found")
_release_pending = re.compile(r"Error: UPGRADE FAILED: another operation \(install/upgrade/rollback\) is in progress")
_release_forbidden = re.compile(r"Error: uninstall: Release not loaded: .* is forbidden: ")
_address_pattern = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9A-Fa-f:]{3,}\](?::\d+)?"
)


def sanitize_error(stderr: bytes, secrets: Sequence[str]) -> str:
    """An error about the release, truncated, without secrets and addresses; for a failed connection to the cluster a
    fixed text; otherwise empty."""
    text = _last_error(stderr)
    for secret in secrets:
        text = text.replace(secret, "[...]")
    if _cluster_unreachable.search(text):
        return CLUSTER_NOT_REACHED
    if _download_error.search(text) or not _release_error.match(text):
        return ""
    return "".join(each for each in _address_pattern.sub("[...]", text) if each.isprintable())[:MAX_MESSAGE_LENGTH]


def is_not_installed(stderr: bytes) -> bool:
    """Whether uninstall failed because the release does not exist."""
    return bool(_release_not_found.match(_last_error(stderr)))


def is_forbidden(stderr: bytes) -> bool:
    """Whether uninstall failed because helm was not permitted to read the release."""
    return bool(_release_forbidden.match(_last_error(stderr)))


def is_pending(stderr: bytes) -> bool:
    """Whether helm failed because another run is in progress, or was interrupted."""
    return bool(_release_pending.match(_last_error(stderr)))


def is_unknown_flag(stderr: bytes) -> bool:
    """Whether helm does not know the option to take over fields of others: only Helm 4 does."""
    return _last_error(stderr).startswith(f"Error: unknown flag: {FORCE_CONFLICTS}")


def _last_error(text: bytes) -> str:
    """The last error in the output of helm, joined into one line. It may span lines and follow warnings."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
    return " ".join(lines[starts[-1] :]) if starts else ""


TIMEOUT_MARGIN_SECONDS = 60.0
"""Seconds beyond the timeout of a release until helm is sent SIGTERM."""
RELEASE_PENDING = "ReleasePending"
PASSED_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of the server's environment that helm gets, besides PATH: for clusters without a CA of their own."""
_MAX_STDERR_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class _HelmRun:
    """The directory of one run, and the values that must not appear in messages."""

    folder: Path
    program: str
    secrets: Sequence[str] = field(repr=False)

    def environment(self) -> dict[str, str]:
        """Of our environment only what the connection to the cluster needs: charts must not see the rest. Proxies are
        for downloads, and the cluster is reached directly, as by this server itself."""
        homes = {
            name: str(self.folder / name.lower()) for name in ("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME")
        }
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if os.environ.get(name)}
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **homes, **passed}


class ChartSource(Protocol):
    """Provides the archives of charts; implemented by `fetch.py`."""

    async def fetch(self, chart: Chart, folder: Path) -> Path:
        """Returns the path of the archive, in that folder. Raises InstanceError or OSError."""


class Helm:
    """Implements `ChartDeployer`. The program is looked up at each run: it may be installed later."""

    def __init__(self, charts: ChartSource, program: str = HELM) -> None:
        self._charts = charts
        self._program = program

    def find_program(self) -> str:
        """The path of the program. Raises InstanceError if there is none."""
        found = find_helm(self._program)
        if found is None:
            raise InstanceError("HelmNotFound", MISSING_HELM, ERROR)
        return found

    async def install(self, release: Release, endpoint: ClusterEndpoint, *, forces_conflicts: bool = False) -> None:
        """Installs or upgrades the release. With `forces_conflicts`, it takes over fields that others have changed, as
        far as helm knows that: Helm 3 does so in any case."""
        async with self._prepare_run(release, endpoint) as run:
            await asyncio.to_thread(write_file, run.folder / "values.yaml", release.values.encode())
            if release.chart.manifests:
                chart = await asyncio.to_thread(_write_manifest_chart, run, release)
            else:
                chart = str(await self._charts.fetch(release.chart, run.folder))
            ready = ("--wait",) if release.waits else ()
            waiting = ("--timeout", f"{release.timeout}s", "--history-max", "3", *ready)
            values = ("--values", str(run.folder / "values.yaml"))
            flags = (*values, *waiting, *_target_flags(run, release))
            command = ("upgrade", "--install", *flags, "--", release.name, chart)
            forced = ("upgrade", FORCE_CONFLICTS, *command[1:])
            code = await self._run(run, forced if forces_conflicts else command, release.timeout)
            if code and forces_conflicts and is_unknown_flag(_read_tail(run.folder / "complaint")):
                code = await self._run(run, command, release.timeout)
            if code:
                raise _run_error(run, "upgrade", code)

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        """Uninstalls the release, if it exists.

        Without --ignore-not-found: that needs Helm 3.13, and treats every failure to read the release, such as a
        missing permission, as "not found".
        """
        async with self._prepare_run(release, endpoint) as run:
            arguments = (
                "uninstall",
                "--timeout",
                f"{release.timeout}s",
                *_target_flags(run, release),
                "--",
                release.name,
            )
            code = await self._run(run, arguments, release.timeout)
            stderr = _read_tail(run.folder / "complaint")
            # A confined release is all in its namespace, which is deleted next; its RoleBinding may be gone already.
            if code and not (is_not_installed(stderr) or (release.impersonate_user and is_forbidden(stderr))):
                raise _run_error(run, "uninstall", code)

    @asynccontextmanager
    async def _prepare_run(self, release: Release, endpoint: ClusterEndpoint) -> AsyncIterator[_HelmRun]:
        """A temporary directory for runs of the release. Raises InstanceError on local errors."""
        program = self.find_program()
        address = f"{endpoint.host}:{endpoint.port}", endpoint.host
        folder: Path | None = None
        try:
            try:
                folder = await asyncio.to_thread(_create_folder, endpoint, release)
                secret = (endpoint.token, release.chart.password, *address, str(folder))
                yield _HelmRun(folder, program, [text for text in secret if text])
            # Disk full, too many processes or files, an argument that is too long or has a NUL, a child that exits
            # before it is watched: all concern this run only, and must not end the server.
            except (OSError, ValueError, RuntimeError) as error:
                message = f"helm could not be run ({type(error).__name__}); check the server's disk, memory and limits"
                raise InstanceError("HelmFailed", message, WARNING) from error
        finally:
            if folder is not None:
                await _remove_folder(folder)

    async def _run(self, run: _HelmRun, arguments: Sequence[str], seconds: int) -> int:
        """Runs helm, and returns the exit code."""
        command = (sys.executable, "-I", end_with_parent.__file__, str(os.getpid()), run.program, *arguments)
        limit = seconds + TIMEOUT_MARGIN_SECONDS
        try:
            code = await run_limited(command, run.folder, run.folder / "complaint", run.environment(), limit)
        except TimeoutError:
            message = (
                f"helm {arguments[0]} took longer than {seconds} s; check the objects that it created in the cluster"
            )
            raise InstanceError("HelmTimedOut", message, WARNING) from None
        if code == end_with_parent.CANNOT_START:
            raise OSError(f"{run.program} cannot be started")
        return code


def _create_folder(endpoint: ClusterEndpoint, release: Release) -> Path:
    """The private folder of a run, with the kubeconfig."""
    folder = Path(tempfile.mkdtemp(prefix="fairlead-helm-"))
    try:
        write_file(folder / "kubeconfig", yaml.encode(build_kubeconfig(endpoint, release.namespace)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


async def _remove_folder(folder: Path) -> None:
    """In a thread, since helm may have unpacked a large chart in it; and in any case, also if the task is cancelled."""
    await run_to_end(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))


def _write_manifest_chart(run: _HelmRun, release: Release) -> str:
    folder = run.folder / "chart"
    (folder / "templates").mkdir(parents=True)
    for name, text in manifest_chart_files(release).items():
        write_file(folder / name, text.encode())
    return str(folder)


def _target_flags(run: _HelmRun, release: Release) -> Sequence[str]:
    confined = ("--kube-as-user", release.impersonate_user) if release.impersonate_user else ()
    return "--namespace", release.namespace, "--kubeconfig", str(run.folder / "kubeconfig"), *confined


def _run_error(run: _HelmRun, subcommand: str, code: int) -> InstanceError:
    stderr = _read_tail(run.folder / "complaint")
    if is_pending(stderr):
        message = (
            "an earlier helm run is still in progress, or was interrupted; after 10 minutes its pending release record "
            "is deleted, and the chart is deployed again"
        )
        return InstanceError(RELEASE_PENDING, message, WARNING)
    missing_rules = describe_missing_rules(_last_error(stderr))
    if missing_rules:
        return InstanceError(PERMISSIONS_MISSING, missing_rules, ERROR)
    message = sanitize_error(stderr, run.secrets) or f"exit code {code}, with an error that is not about the release"
    advice = "correct the chart, its values or the cluster"
    return InstanceError("HelmFailed", f"helm {subcommand} failed: {message}; {advice}", WARNING)


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MAX_STDERR_BYTES))
        return file.read(_MAX_STDERR_BYTES)
