"""Runs the `helm` program: the one way in which charts are deployed. `deploy.py` calls it.

Each run has a private folder that goes away with it: the cluster's kubeconfig, the values, and helm's own files are in
there, and nothing of this process's environment is handed on but the PATH. Credentials are passed in files and through
standard input, never as arguments, which everybody on the machine can read. A chart is somebody else's program for
helm to run, so a run may take only so much memory, processor time and room for files. What helm prints is not logged;
of a failure, helm's own words about the release are told (`helm.py`), and nothing else. Whatever goes wrong with
starting it is a Trouble of that release.
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

# DOC-MERGED controllers/helm_words
# What of helm's complaints may be told to whoever looks at an instance. Pure; `helm.py` asks.
#
# The one who reads a condition may be the one who has chosen the chart and its repository. What a server inside the
# network answers, or what is in a file of this machine, must not reach him that way. So only helm's own words about a
# release are told, with credentials and addresses taken out; of a chart that cannot be fetched and a cluster that cannot
# be reached only that. How helm begins was seen on Helm 3.17 and 4.2, which differ: 3 counts errors, 4 applies on the
# server's side. A complaint may have several lines, and warnings may come before it.


LENGTH = 500
CHART_NOT_FETCHED = (
    "the chart could not be fetched; see the repository, the name, the version and the credential in helmRelease.chart"
)
CLUSTER_NOT_REACHED = "helm did not reach the cluster, or the cluster refused the stored credential"

# How helm begins when it is about the release, and not about where the chart or the cluster is.
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
    """A complaint about the release, short, without secrets and addresses; of another one what it is about, if that
    is known."""
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
    """Whether that is why a release could not be uninstalled."""
    return bool(_not_installed.match(_complaint_of(complaint)))


def is_forbidden(complaint: bytes) -> bool:
    """Whether a release could not be uninstalled for want of the right to look for it."""
    return bool(_forbidden.match(_complaint_of(complaint)))


def is_pending(complaint: bytes) -> bool:
    """Whether helm finds that another run is at work on the release, or was."""
    return bool(_pending.match(_complaint_of(complaint)))


def _complaint_of(text: bytes) -> str:
    """The last error in what helm has printed, on one line."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.startswith("Error: ")]
    return " ".join(lines[begins[-1] :]) if begins else ""


SECONDS = 300.0
"""What helm is told that it may take for an operation."""
PATIENCE, GRACE = 60.0, 10.0
"""Seconds that helm gets beyond that time, and then to come to an end by itself."""
RELEASE_PENDING = "ReleasePending"
LIMITS = {
    resource.RLIMIT_AS: 4 * 2**30,
    resource.RLIMIT_CPU: 120,
    resource.RLIMIT_FSIZE: 256 * 2**20,
}
"""Of one run: bytes of addresses, seconds of a processor, and bytes of a file."""
_COMPLAINT = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Run:
    """One run's folder, and the texts that must not be told."""

    folder: Path
    program: str
    secrets: Sequence[str] = field(repr=False)

    def environment(self) -> dict[str, str]:
        """Nothing of ours but the PATH: charts and plug-ins have no business with the rest."""
        at = {
            name: str(self.folder / name.lower()) for name in ("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME")
        }
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **at}


class Helm:
    """The program, looked for at each run: it may be installed while the server runs."""

    def __init__(self, program: str = "helm", seconds: float = SECONDS) -> None:
        self._program = program
        self._seconds = seconds

    def find(self) -> str:
        """Its path. Raises Trouble where there is none."""
        found = shutil.which(self._program)
        if found is None:
            why = (
                f"there is no program `{self._program}` on the server's PATH; install Helm 3.8 or newer there, or "
                "import a virtual cluster that runs already with spec.config"
            )
            raise Trouble("HelmNotFound", why, ERROR)
        return found

    async def install(self, release: Release, access: Access) -> None:
        """Deploys the release, or brings it up to date."""
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
        """Removes the release. One that is not there is no matter.

        Not with --ignore-not-found: it came with Helm 3.13, and takes every failure to look for the release, a missing
        right included, for a release that is not there.
        """
        async with self._running(release, access) as run:
            arguments = ("uninstall", "--timeout", f"{self._seconds:.0f}s", *_where(run, release), "--", release.name)
            code = await self._ended(run, arguments, None)
            complaint = _end_of(run.folder / "complaint")
            # All of a confined release is in its namespace, which goes next, and its rights may be gone already.
            if code and not (is_not_installed(complaint) or (release.confined_to and is_forbidden(complaint))):
                raise _failed(run, "uninstall", code)

    @asynccontextmanager
    async def _running(self, release: Release, access: Access) -> AsyncIterator[_Run]:
        """A folder for runs about the release. Raises Trouble for whatever the machine does not let us do."""
        program = self.find()
        address = f"{access.host}:{access.port}", access.host
        with ExitStack() as stack:
            try:
                folder = Path(tempfile.mkdtemp(prefix="fairlead-helm-"))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                write_file(folder / "kubeconfig", yaml.encode(kubeconfig(access, release.namespace)))
                secret = (access.token, access.key, release.chart.password, *address, str(folder))
                yield _Run(folder, program, [text for text in secret if text])
            # No room, too many processes or files, an argument that is too long or has a NUL, a child that is gone
            # before it is watched: each is about this run, and none is a reason for the server to end.
            except (OSError, ValueError, RuntimeError) as error:
                why = f"helm could not be run ({type(error).__name__}); see the server's files, memory and processes"
                raise Trouble("HelmFailed", why, WARNING) from error

    async def _do(self, run: _Run, arguments: Sequence[str], given: bytes | None = None) -> None:
        code = await self._ended(run, arguments, given)
        if code:
            raise _failed(run, arguments[0], code)

    async def _ended(self, run: _Run, arguments: Sequence[str], given: bytes | None) -> int:
        """Runs it to its end, with files instead of pipes: nobody has to feed it, or to keep all that it prints."""
        with ExitStack() as files:
            source: int = asyncio.subprocess.DEVNULL
            if given is not None:
                write_file(run.folder / "given", given)
                source = files.enter_context((run.folder / "given").open("rb")).fileno()
            complaint = files.enter_context((run.folder / "complaint").open("wb"))
            process = await asyncio.create_subprocess_exec(
                *(run.program, *arguments),
                stdin=source,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=complaint.fileno(),
                cwd=run.folder,
                env=run.environment(),
                start_new_session=True,  # so that whatever it starts can be ended along with it
            )
            return await self._waited_for(process, arguments[0])

    async def _waited_for(self, process: asyncio.subprocess.Process, what: str) -> int:
        try:
            _limit(process.pid)
            async with asyncio.timeout(self._seconds + PATIENCE):
                return await process.wait()
        except TimeoutError:
            why = f"helm {what} took longer than {self._seconds:.0f} s; look at what it made in the cluster"
            raise Trouble("HelmTimedOut", why, WARNING) from None
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends it with all that it has started. It is asked first: then helm notes in the cluster that the release has
    failed, where a killed one leaves it pending."""
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
    """From outside: what runs between fork and exec of a process with threads may wait for ever."""
    if sys.platform == "linux":
        for what, most in LIMITS.items():
            with suppress(ProcessLookupError):  # it has ended already
                _, allowed = resource.prlimit(pid, what)
                bound = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
                resource.prlimit(pid, what, (bound, bound))


def _where(run: _Run, release: Release) -> Sequence[str]:
    confined = ("--kube-as-user", release.confined_to) if release.confined_to else ()
    return "--namespace", release.namespace, "--kubeconfig", str(run.folder / "kubeconfig"), *confined


def _failed(run: _Run, what: str, code: int) -> Trouble:
    said = _end_of(run.folder / "complaint")
    if is_pending(said):
        why = (
            "an earlier run of helm goes on, or was interrupted; when it is 10 minutes old, what it noted in the "
            "cluster is removed, and the chart is deployed again"
        )
        return Trouble(RELEASE_PENDING, why, WARNING)
    why = told(said, run.secrets) or f"it ended with {code}, and what it says is not about the release"
    return Trouble("HelmFailed", f"helm {what} failed: {why}; mend the template or the cluster", WARNING)


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _COMPLAINT))
        return file.read(_COMPLAINT)


# DOC-MERGED controllers/helm_turns
# Who may run helm now: a few at once, and of one project fewer still. `deploy.py` asks.
#
# Nobody waits in line here: whoever gets no turn says so in a condition and comes again. So a project with many slow
# charts holds up neither the others' charts nor those who look at virtual clusters that run already.


AT_ONCE, OF_ONE_PROJECT = 4, 2
WAITING = "WaitingForTurn"


class Turns:
    def __init__(self, at_once: int = AT_ONCE, of_one: int = OF_ONE_PROJECT) -> None:
        self._at_once = at_once
        self._of_one = of_one
        self._taken: Counter[str] = Counter()

    @contextmanager
    def one(self, project: str) -> Iterator[None]:
        """A turn until the block ends. Raises Trouble where there is none."""
        if self._taken.total() >= self._at_once or self._taken[project] >= self._of_one:
            why = "as many charts as may be at once are being deployed or removed already; it is tried again soon"
            raise Trouble(WAITING, why, INFO)
        self._taken[project] += 1
        try:
            yield
        finally:
            self._taken[project] -= 1
            if not self._taken[project]:
                del self._taken[project]
