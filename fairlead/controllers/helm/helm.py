"""Runs the `helm` program in a subprocess. Called by `deploy.py`.

Each run has a private temporary directory for the kubeconfig, the values and helm's own files, and inherits only PATH,
the proxies and the CA certificates from the environment. Credentials are passed in files and on standard input, never
as arguments, which are visible to other processes. Charts are untrusted, so memory, CPU time and file size of a run are
limited. A chart is downloaded first, and helm gets a copy of it without references to other documents
(`chart_archive.py`). The output of helm is not logged. Failures to start it are an InstanceError of the release.

Error messages of helm are shown in conditions, which the author of the chart may read. So that they do not leak what a
server inside the network answers or what is in a local file, only messages about the release itself are shown, without
credentials and addresses; of a failed download or an unreachable cluster only a fixed text. The patterns are those of
Helm 3.17 and 4.2, which differ: 3 counts errors, 4 uses server-side apply.

The number of concurrent runs is limited, in total and per project. There is no queue: a release without a slot reports
that in a condition and is requeued. So a project with many slow charts delays neither others nor health probes.
"""

import asyncio
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.controllers.helm import chart_archive
from fairlead.controllers.helm.chart import (
    Release,
    build_kubeconfig,
    chart_arguments,
    login_arguments,
    manifest_chart_files,
)
from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError
from fairlead.core import yaml
from fairlead.core.files import write_file
from fairlead.upstream.access import ClusterEndpoint

MAX_MESSAGE_LENGTH = 500
CHART_NOT_FETCHED = "the chart could not be downloaded; check its repository, name, version, username and password"
INVALID_ARCHIVE = (
    f"the chart is not a gzipped archive, or unpacks to more than {chart_archive.MAX_UNPACKED_BYTES >> 20} MiB or "
    f"{chart_archive.MAX_FILES} files; correct the chart"
)
CLUSTER_NOT_REACHED = "helm could not reach the cluster, or the cluster rejected the stored credential"

# Prefixes of errors about the release itself, not about the download of the chart or the connection to the cluster.
_release_error = re.compile(
    r"Error: (?:"
    r"(?:UPGRADE|INSTALLATION) FAILED: "
    r"|execution error at |template: |parse error at |YAML parse error on |values don't meet the specifications"
    r"|[\w.-]+/(?:charts/[\w.-]+/)*templates/\S+:\d+:\d+ executing "
    r"|failed to parse \[\.\.\.\]/values\.yaml: |chart requires kubeVersion: |chart dependencies processing failed"
    r"|an error occurred while checking for chart dependencies"
    r"|chart \"[^\"]*\"(?: version \"[^\"]*\")? not found in "
    r"|unable to build kubernetes objects|[Uu]nable to continue with |failed to install CRD "
    r"|\d+ errors? occurred: |server-side apply failed for object |conflict occurred while applying object "
    r"|create: failed to create: |query: failed to query with labels: "
    r"|failed (?:pre|post)-(?:install|upgrade|delete): |another operation \(install/upgrade/rollback\)"
    r"|cannot re-?use a name|release[: ]|uninstall: |uninstallation completed with |failed to delete release: "
    r"|timed out waiting for |context deadline exceeded"
    r")"
)
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
    """An error about the release, truncated, without secrets and addresses; for a failed download or connection a fixed
    text; otherwise empty."""
    text = _last_error(stderr)
    for secret in secrets:
        text = text.replace(secret, "[...]")
    if _cluster_unreachable.search(text):
        return CLUSTER_NOT_REACHED
    is_about_release = _release_error.match(text)
    if _download_error.search(text):
        return "" if is_about_release else CHART_NOT_FETCHED
    if not is_about_release:
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


def _last_error(text: bytes) -> str:
    """The last error in the output of helm, joined into one line. It may span lines and follow warnings."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
    return " ".join(lines[starts[-1] :]) if starts else ""


OPERATION_TIMEOUT = 300.0
"""The `--timeout` of a helm operation."""
TIMEOUT_MARGIN_SECONDS, TERMINATION_GRACE_SECONDS = 60.0, 10.0
"""Seconds beyond that timeout until helm is sent SIGTERM, and from there until SIGKILL."""
RELEASE_PENDING = "ReleasePending"
MAX_CONCURRENT_RUNS, MAX_RUNS_PER_PROJECT = 4, 2
WAITING_FOR_HELM_SLOT = "WaitingForHelmSlot"
"""The reason while no slot for a helm run is free."""
RESOURCE_LIMITS = {
    resource.RLIMIT_AS: 4 * 2**30,
    resource.RLIMIT_CPU: 120,
    resource.RLIMIT_FSIZE: 256 * 2**20,
}
"""Of one run: address space in bytes, CPU seconds, and file size in bytes."""
PASSED_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
"""Variables of the server's environment that helm gets, besides PATH and NO_PROXY."""
_MAX_STDERR_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class _HelmRun:
    """The directory of one run, and the values that must not appear in messages."""

    folder: Path
    program: str
    cluster_host: str
    secrets: Sequence[str] = field(repr=False)

    def environment(self) -> dict[str, str]:
        """Of our environment only what downloads need: charts and plug-ins must not see the rest."""
        homes = {
            name: str(self.folder / name.lower()) for name in ("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME")
        }
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if os.environ.get(name)}
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **homes, **passed, **self._no_proxy()}

    def _no_proxy(self) -> dict[str, str]:
        """Proxies are for downloads: the cluster is reached directly, as by this server itself."""
        excluded = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
        value = f"{excluded},{self.cluster_host}" if excluded else self.cluster_host
        return {"NO_PROXY": value, "no_proxy": value}


class Helm:
    """Implements `ChartDeployer`. The program is looked up at each run: it may be installed later."""

    def __init__(self, program: str = "helm", seconds: float = OPERATION_TIMEOUT) -> None:
        self._program = program
        self._seconds = seconds

    def find_program(self) -> str:
        """The path of the program. Raises InstanceError if there is none."""
        found = shutil.which(self._program)
        if found is None:
            message = f"there is no program `{self._program}` on the server's PATH; install Helm 3.8 or newer there"
            raise InstanceError("HelmNotFound", message, ERROR)
        return found

    async def install(self, release: Release, endpoint: ClusterEndpoint) -> None:
        """Installs or upgrades the release."""
        async with self._prepare_run(release, endpoint) as run:
            if arguments := login_arguments(release):
                await self._run_checked(run, arguments, release.chart.password.encode())
            write_file(run.folder / "values.yaml", release.values.encode())
            fetched = release.chart.manifests == ""
            chart = await self._fetch_chart(run, release) if fetched else _write_manifest_chart(run, release)
            ready = ("--wait",) if release.waits else ()
            waiting = ("--timeout", f"{self._seconds:.0f}s", "--history-max", "3", *ready)
            values = ("--values", str(run.folder / "values.yaml"))
            flags = (*values, *waiting, *_target_flags(run, release))
            await self._run_checked(run, ("upgrade", "--install", *flags, "--", release.name, chart))

    async def _fetch_chart(self, run: _HelmRun, release: Release) -> str:
        """Downloads the chart, and returns the path of a copy that refers to nothing else (`chart_archive.py`)."""
        folder, copy = run.folder / "fetched", run.folder / "chart.tgz"
        folder.mkdir()
        options, chart = chart_arguments(release)
        await self._run_checked(run, ("pull", *options, "--destination", str(folder), "--", chart))
        archives = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
        command = (sys.executable, "-I", chart_archive.__file__, *map(str, archives[:1]), str(copy))
        if len(archives) != 1 or await self._run(run, command, None):
            raise InstanceError("InvalidChart", INVALID_ARCHIVE, ERROR)
        return str(copy)

    async def uninstall(self, release: Release, endpoint: ClusterEndpoint) -> None:
        """Uninstalls the release, if it exists.

        Without --ignore-not-found: that needs Helm 3.13, and treats every failure to read the release, such as a
        missing permission, as "not found".
        """
        async with self._prepare_run(release, endpoint) as run:
            arguments = (
                run.program,
                "uninstall",
                "--timeout",
                f"{self._seconds:.0f}s",
                *_target_flags(run, release),
                "--",
                release.name,
            )
            code = await self._run(run, arguments, None)
            stderr = _read_tail(run.folder / "complaint")
            # A confined release is all in its namespace, which is deleted next; its RoleBinding may be gone already.
            if code and not (is_not_installed(stderr) or (release.impersonate_user and is_forbidden(stderr))):
                raise _run_error(run, "uninstall", code)

    @asynccontextmanager
    async def _prepare_run(self, release: Release, endpoint: ClusterEndpoint) -> AsyncIterator[_HelmRun]:
        """A temporary directory for runs of the release. Raises InstanceError on local errors."""
        program = self.find_program()
        address = f"{endpoint.host}:{endpoint.port}", endpoint.host
        with ExitStack() as stack:
            try:
                folder = Path(tempfile.mkdtemp(prefix="fairlead-helm-"))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                write_file(folder / "kubeconfig", yaml.encode(build_kubeconfig(endpoint, release.namespace)))
                secret = (endpoint.token, endpoint.client_key, release.chart.password, *address, str(folder))
                yield _HelmRun(folder, program, endpoint.host, [text for text in secret if text])
            # Disk full, too many processes or files, an argument that is too long or has a NUL, a child that exits
            # before it is watched: all concern this run only, and must not end the server.
            except (OSError, ValueError, RuntimeError) as error:
                message = f"helm could not be run ({type(error).__name__}); check the server's disk, memory and limits"
                raise InstanceError("HelmFailed", message, WARNING) from error

    async def _run_checked(self, run: _HelmRun, arguments: Sequence[str], stdin_bytes: bytes | None = None) -> None:
        code = await self._run(run, (run.program, *arguments), stdin_bytes)
        if code:
            raise _run_error(run, arguments[0], code)

    async def _run(self, run: _HelmRun, command: Sequence[str], stdin_bytes: bytes | None) -> int:
        """Runs helm, or what prepares its chart, and returns the exit code. Uses files instead of pipes, so that output
        needs no buffering here."""
        with ExitStack() as files:
            stdin: int = asyncio.subprocess.DEVNULL
            if stdin_bytes is not None:
                write_file(run.folder / "given", stdin_bytes)
                stdin = files.enter_context((run.folder / "given").open("rb")).fileno()
            stderr = files.enter_context((run.folder / "complaint").open("wb"))
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr.fileno(),
                cwd=run.folder,
                env=run.environment(),
                start_new_session=True,  # so that its child processes can be killed with it
            )
            return await self._wait_for_exit(process, command[1])

    async def _wait_for_exit(self, process: asyncio.subprocess.Process, subcommand: str) -> int:
        try:
            _set_resource_limits(process.pid)
            async with asyncio.timeout(self._seconds + TIMEOUT_MARGIN_SECONDS):
                return await process.wait()
        except TimeoutError:
            message = (
                f"helm {subcommand} took longer than {self._seconds:.0f} s; check the objects that it created in "
                "the cluster"
            )
            raise InstanceError("HelmTimedOut", message, WARNING) from None
        finally:
            await _terminate(process)


def _write_manifest_chart(run: _HelmRun, release: Release) -> str:
    folder = run.folder / "chart"
    (folder / "templates").mkdir(parents=True)
    for name, text in manifest_chart_files(release).items():
        write_file(folder / name, text.encode())
    return str(folder)


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Terminates the process group, with SIGTERM first: then helm marks the release as failed in the cluster, whereas
    a killed one leaves it pending."""
    try:
        if process.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                os.killpg(process.pid, signal.SIGTERM)
                async with asyncio.timeout(TERMINATION_GRACE_SECONDS):
                    await process.wait()
    finally:  # also when the task is cancelled again during the grace period
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _set_resource_limits(pid: int) -> None:
    """Sets limits from outside: a `preexec_fn` can deadlock in a process with threads."""
    if sys.platform == "linux":
        for limit, maximum in RESOURCE_LIMITS.items():
            with suppress(ProcessLookupError):  # it has exited already
                _, hard = resource.prlimit(pid, limit)
                bound = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
                resource.prlimit(pid, limit, (bound, bound))


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
    message = sanitize_error(stderr, run.secrets) or f"exit code {code}, with an error that is not about the release"
    advice = "correct the chart, its values or the cluster"
    return InstanceError("HelmFailed", f"helm {subcommand} failed: {message}; {advice}", WARNING)


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MAX_STDERR_BYTES))
        return file.read(_MAX_STDERR_BYTES)


class HelmSlots:
    """Limits concurrent helm runs, in total and per project."""

    def __init__(self, max_runs: int = MAX_CONCURRENT_RUNS, max_per_project: int = MAX_RUNS_PER_PROJECT) -> None:
        self._max_runs = max_runs
        self._max_per_project = max_per_project
        self._in_use: Counter[str] = Counter()

    @contextmanager
    def acquire(self, project: str) -> Iterator[None]:
        """Holds a slot for the block. Raises InstanceError if none is free."""
        if self._in_use.total() >= self._max_runs or self._in_use[project] >= self._max_per_project:
            message = "the limit of concurrent helm runs is reached; this is retried soon"
            raise InstanceError(WAITING_FOR_HELM_SLOT, message, INFO)
        self._in_use[project] += 1
        try:
            yield
        finally:
            self._in_use[project] -= 1
            if not self._in_use[project]:
                del self._in_use[project]
