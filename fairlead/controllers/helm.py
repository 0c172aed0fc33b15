"""Runs the `helm` program: the one way in which charts are deployed. `virtual_clusters.py` calls it.

Each run has a private folder that goes away with it: the cluster's kubeconfig, the values, and helm's own files are in
there, and nothing of this process's environment is handed on but the PATH. Credentials are passed in files and through
standard input, never as arguments, which everybody on the machine can read. What helm prints is not logged; of a
failure, one line is told, without the credentials and addresses that were in use.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.controllers.far_trouble import ERROR, WARNING, Trouble
from fairlead.controllers.release import Release, kubeconfig, login, reference
from fairlead.core import yaml
from fairlead.core.files import write_file
from fairlead.upstream.access import Access

PATIENCE = 60.0
"""Seconds that helm gets beyond the time that it was told to take."""
_QUOTED = 300


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

    def __init__(self, program: str = "helm", seconds: float = 300.0) -> None:
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
        run = self._run(release, access)
        try:
            await self._log_in(run, release)
            write_file(run.folder / "values.yaml", release.values.encode())
            version = ("--version", release.chart.version) if release.chart.version else ()
            waiting = ("--timeout", f"{self._seconds:.0f}s", "--history-max", "3")
            arguments = (*reference(release), *version, "--values", str(run.folder / "values.yaml"), *waiting)
            await self._do(run, ("upgrade", "--install", release.name, *arguments, *_where(run, release)))
        finally:
            shutil.rmtree(run.folder, ignore_errors=True)

    async def uninstall(self, release: Release, access: Access) -> None:
        """Removes the release. One that is not there is no matter."""
        run = self._run(release, access)
        try:
            waiting = ("--ignore-not-found", "--timeout", f"{self._seconds:.0f}s")
            await self._do(run, ("uninstall", release.name, *waiting, *_where(run, release)))
        finally:
            shutil.rmtree(run.folder, ignore_errors=True)

    def _run(self, release: Release, access: Access) -> _Run:
        program = self.find()
        folder = Path(tempfile.mkdtemp(prefix="fairlead-helm-"))
        write_file(folder / "kubeconfig", yaml.encode(kubeconfig(access, release.namespace)))
        told = (access.token, access.key, release.chart.password, f"{access.host}:{access.port}", access.host)
        return _Run(folder, program, [text for text in told if text])

    async def _log_in(self, run: _Run, release: Release) -> None:
        if arguments := login(release):
            await self._do(run, arguments, release.chart.password.encode())

    async def _do(self, run: _Run, arguments: Sequence[str], given: bytes = b"") -> None:
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *(run.program, *arguments),
            stdin=pipe,
            stdout=nothing,
            stderr=pipe,
            cwd=run.folder,
            env=run.environment(),
            start_new_session=True,  # so that whatever it starts can be ended along with it
        )
        try:
            async with asyncio.timeout(self._seconds + PATIENCE):
                _, complaint = await process.communicate(given)
        except TimeoutError:
            why = f"helm {arguments[0]} took longer than {self._seconds:.0f} s; look at what it made in the cluster"
            raise Trouble("HelmTimedOut", why, WARNING) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode:
            why = _last_line(complaint, run.secrets) or f"it ended with {process.returncode}"
            raise Trouble("HelmFailed", f"helm {arguments[0]} failed: {why}; mend the template or the cluster", WARNING)


def _where(run: _Run, release: Release) -> Sequence[str]:
    confined = ("--kube-as-user", release.confined_to) if release.confined_to else ()
    return "--namespace", release.namespace, "--kubeconfig", str(run.folder / "kubeconfig"), *confined


def _last_line(output: bytes, secrets: Sequence[str]) -> str:
    """What helm says last is what went wrong."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    for secret in secrets:
        text = text.replace(secret, "[...]")
    return "".join(each for each in text if each.isprintable())[:_QUOTED]
