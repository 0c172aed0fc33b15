"""Runs the `helm` program in a subprocess. Called by `deploy.py`.

Each run has a private temporary directory for the kubeconfig, the values and helm's own files, and inherits only PATH
from the environment. Credentials are passed in files and on standard input, never as arguments, which are visible to
other processes. Charts are untrusted, so memory, CPU time and file size of a run are limited. The output of helm is not
logged. Failures to start it are an InstanceError of the release.

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

from fairlead.controllers.helm.chart import Release, chart_arguments, kubeconfig, login
from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, Trouble
from fairlead.core import yaml
from fairlead.core.files import write_file
from fairlead.upstream.access import Access

LENGTH = 500
CHART_NOT_FETCHED = (
    "the chart could not be downloaded; check repo, name, version, username and password in helmRelease.chart"
)
CLUSTER_NOT_REACHED = "helm could not reach the cluster, or the cluster rejected the stored credential"

# Prefixes of errors about the release itself, not about the download of the chart or the connection to the cluster.
_about_release = re.compile(
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
_not_fetched = re.compile(
    r"looks like |failed to fetch|failed to download|failed to do request|\b(?:Get|GET|Head|HEAD) \"|dial tcp"
    r"|authenticating to "
)
_not_reached = re.compile(r"[Kk]ubernetes cluster unreachable: ")
_not_installed = re.compile(r"Error: uninstall: Release not loaded: \S+: release: not found")
_pending = re.compile(r"Error: UPGRADE FAILED: another operation \(install/upgrade/rollback\) is in progress")
_forbidden = re.compile(r"Error: uninstall: Release not loaded: .* is forbidden: ")
_address = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9A-Fa-f:]{3,}\](?::\d+)?"
)


def told(complaint: bytes, secrets: Sequence[str]) -> str:
    """An error about the release, truncated, without secrets and addresses; for a failed download or connection a fixed
    text; otherwise empty."""
    text = _complaint_of(complaint)
    for secret in secrets:
        text = text.replace(secret, "[...]")
    if _not_reached.search(text):
        return CLUSTER_NOT_REACHED
    is_about_release = _about_release.match(text)
    if _not_fetched.search(text):
        return "" if is_about_release else CHART_NOT_FETCHED
    if not is_about_release:
        return ""
    return "".join(each for each in _address.sub("[...]", text) if each.isprintable())[:LENGTH]


def is_not_installed(complaint: bytes) -> bool:
    """Whether uninstall failed because the release does not exist."""
    return bool(_not_installed.match(_complaint_of(complaint)))


def is_forbidden(complaint: bytes) -> bool:
    """Whether uninstall failed because helm was not permitted to read the release."""
    return bool(_forbidden.match(_complaint_of(complaint)))


def is_pending(complaint: bytes) -> bool:
    """Whether helm failed because another run is in progress, or was interrupted."""
    return bool(_pending.match(_complaint_of(complaint)))


def _complaint_of(text: bytes) -> str:
    """The last error in the output of helm, joined into one line. It may span lines and follow warnings."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
    return " ".join(lines[starts[-1] :]) if starts else ""


SECONDS = 300.0
"""The `--timeout` of a helm operation."""
PATIENCE, GRACE = 60.0, 10.0
"""Seconds beyond that timeout until helm is sent SIGTERM, and from there until SIGKILL."""
RELEASE_PENDING = "ReleasePending"
AT_ONCE, OF_ONE_PROJECT = 4, 2
WAITING = "WaitingForTurn"
"""The reason while no slot for a helm run is free."""
LIMITS = {
    resource.RLIMIT_AS: 4 * 2**30,
    resource.RLIMIT_CPU: 120,
    resource.RLIMIT_FSIZE: 256 * 2**20,
}
"""Of one run: address space in bytes, CPU seconds, and file size in bytes."""
_COMPLAINT = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Run:
    """The directory of one run, and the values that must not appear in messages."""

    folder: Path
    program: str
    secrets: Sequence[str] = field(repr=False)

    def environment(self) -> dict[str, str]:
        """Only PATH of our environment: charts and plug-ins must not see the rest."""
        homes = {
            name: str(self.folder / name.lower()) for name in ("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME")
        }
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **homes}


class Helm:
    """Implements `ChartDeployer`. The program is looked up at each run: it may be installed later."""

    def __init__(self, program: str = "helm", seconds: float = SECONDS) -> None:
        self._program = program
        self._seconds = seconds

    def find(self) -> str:
        """The path of the program. Raises InstanceError if there is none."""
        found = shutil.which(self._program)
        if found is None:
            message = (
                f"there is no program `{self._program}` on the server's PATH; install Helm 3.8 or newer there, or "
                "import a running virtual cluster with spec.config"
            )
            raise Trouble("HelmNotFound", message, ERROR)
        return found

    async def install(self, release: Release, access: Access) -> None:
        """Installs or upgrades the release."""
        async with self._running(release, access) as run:
            if arguments := login(release):
                await self._do(run, arguments, release.chart.password.encode())
            write_file(run.folder / "values.yaml", release.values.encode())
            options, chart = chart_arguments(release)
            waiting = ("--timeout", f"{self._seconds:.0f}s", "--history-max", "3")
            values = ("--values", str(run.folder / "values.yaml"))
            flags = (*options, *values, *waiting, *_where(run, release))
            await self._do(run, ("upgrade", "--install", *flags, "--", release.name, chart))

    async def uninstall(self, release: Release, access: Access) -> None:
        """Uninstalls the release, if it exists.

        Without --ignore-not-found: that needs Helm 3.13, and treats every failure to read the release, such as a
        missing permission, as "not found".
        """
        async with self._running(release, access) as run:
            arguments = ("uninstall", "--timeout", f"{self._seconds:.0f}s", *_where(run, release), "--", release.name)
            code = await self._ended(run, arguments, None)
            stderr = _end_of(run.folder / "complaint")
            # A confined release is all in its namespace, which is deleted next; its RoleBinding may be gone already.
            if code and not (is_not_installed(stderr) or (release.confined_to and is_forbidden(stderr))):
                raise _failed(run, "uninstall", code)

    @asynccontextmanager
    async def _running(self, release: Release, access: Access) -> AsyncIterator[_Run]:
        """A temporary directory for runs of the release. Raises InstanceError on local errors."""
        program = self.find()
        address = f"{access.host}:{access.port}", access.host
        with ExitStack() as stack:
            try:
                folder = Path(tempfile.mkdtemp(prefix="fairlead-helm-"))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                write_file(folder / "kubeconfig", yaml.encode(kubeconfig(access, release.namespace)))
                secret = (access.token, access.key, release.chart.password, *address, str(folder))
                yield _Run(folder, program, [text for text in secret if text])
            # Disk full, too many processes or files, an argument that is too long or has a NUL, a child that exits
            # before it is watched: all concern this run only, and must not end the server.
            except (OSError, ValueError, RuntimeError) as error:
                message = f"helm could not be run ({type(error).__name__}); check the server's disk, memory and limits"
                raise Trouble("HelmFailed", message, WARNING) from error

    async def _do(self, run: _Run, arguments: Sequence[str], given: bytes | None = None) -> None:
        code = await self._ended(run, arguments, given)
        if code:
            raise _failed(run, arguments[0], code)

    async def _ended(self, run: _Run, arguments: Sequence[str], given: bytes | None) -> int:
        """Runs helm and returns its exit code. Uses files instead of pipes, so that output needs no buffering here."""
        with ExitStack() as files:
            stdin: int = asyncio.subprocess.DEVNULL
            if given is not None:
                write_file(run.folder / "given", given)
                stdin = files.enter_context((run.folder / "given").open("rb")).fileno()
            stderr = files.enter_context((run.folder / "complaint").open("wb"))
            process = await asyncio.create_subprocess_exec(
                *(run.program, *arguments),
                stdin=stdin,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr.fileno(),
                cwd=run.folder,
                env=run.environment(),
                start_new_session=True,  # so that its child processes can be killed with it
            )
            return await self._waited_for(process, arguments[0])

    async def _waited_for(self, process: asyncio.subprocess.Process, what: str) -> int:
        try:
            _limit(process.pid)
            async with asyncio.timeout(self._seconds + PATIENCE):
                return await process.wait()
        except TimeoutError:
            message = (
                f"helm {what} took longer than {self._seconds:.0f} s; check the objects that it created in the cluster"
            )
            raise Trouble("HelmTimedOut", message, WARNING) from None
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminates the process group, with SIGTERM first: then helm marks the release as failed in the cluster, whereas
    a killed one leaves it pending."""
    try:
        if process.returncode is None:
            with suppress(ProcessLookupError, TimeoutError):
                os.killpg(process.pid, signal.SIGTERM)
                async with asyncio.timeout(GRACE):
                    await process.wait()
    finally:  # also when the task is cancelled again during the grace period
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _limit(pid: int) -> None:
    """Sets limits from outside: a `preexec_fn` can deadlock in a process with threads."""
    if sys.platform == "linux":
        for limit, maximum in LIMITS.items():
            with suppress(ProcessLookupError):  # it has exited already
                _, hard = resource.prlimit(pid, limit)
                bound = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
                resource.prlimit(pid, limit, (bound, bound))


def _where(run: _Run, release: Release) -> Sequence[str]:
    confined = ("--kube-as-user", release.confined_to) if release.confined_to else ()
    return "--namespace", release.namespace, "--kubeconfig", str(run.folder / "kubeconfig"), *confined


def _failed(run: _Run, what: str, code: int) -> Trouble:
    stderr = _end_of(run.folder / "complaint")
    if is_pending(stderr):
        message = (
            "an earlier helm run is still in progress, or was interrupted; after 10 minutes its pending release record "
            "is deleted, and the chart is deployed again"
        )
        return Trouble(RELEASE_PENDING, message, WARNING)
    message = told(stderr, run.secrets) or f"exit code {code}, with an error that is not about the release"
    return Trouble("HelmFailed", f"helm {what} failed: {message}; fix the template or the cluster", WARNING)


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _COMPLAINT))
        return file.read(_COMPLAINT)


class Turns:
    """Limits concurrent helm runs, in total and per project."""

    def __init__(self, at_once: int = AT_ONCE, of_one: int = OF_ONE_PROJECT) -> None:
        self._at_once = at_once
        self._of_one = of_one
        self._taken: Counter[str] = Counter()

    @contextmanager
    def one(self, project: str) -> Iterator[None]:
        """Holds a slot for the block. Raises InstanceError if none is free."""
        if self._taken.total() >= self._at_once or self._taken[project] >= self._of_one:
            message = "the limit of concurrent helm runs is reached; this is retried soon"
            raise Trouble(WAITING, message, INFO)
        self._taken[project] += 1
        try:
            yield
        finally:
            self._taken[project] -= 1
            if not self._taken[project]:
                del self._taken[project]
