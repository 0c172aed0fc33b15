"""Downloads the chart of a release, so that helm itself needs no network but that of the cluster.

An https:// repository has an index, which names the archive of each version of a chart by a relative or an absolute
URL, possibly in an OCI registry (`oci_registry.py`). All requests are those of `http_client.py`, under the address
policy. The username and password of the chart are sent to the origin of the repository, and to no other server.

Index and archive are parsed by programs of their own with limits (`index_versions.py`, `chart_archive.py`). HTTP and
the documents of registries are read in a thread with an event loop of its own: a repository that sends its response in
chunks of one byte, or thousands of headers or tags, would occupy the event loop of the server for seconds.
"""

import asyncio
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from fairlead.controllers.helm import chart_archive, index_versions
from fairlead.controllers.helm.chart import OCI, Chart
from fairlead.controllers.helm.http_client import (
    CHART_NOT_FOUND,
    INVALID_CHART,
    INVALID_REPOSITORY,
    OK,
    REPOSITORY_NOT_FOUND,
    REPOSITORY_UNREACHABLE,
    Credential,
    Download,
    HttpClient,
    Resolve,
    reject_status,
)
from fairlead.controllers.helm.limited_process import run_limited
from fairlead.controllers.helm.loop_thread import run_in_loop_thread
from fairlead.controllers.helm.oci_registry import OciRegistry, parse_reference
from fairlead.controllers.helm.versions import find_best
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError
from fairlead.core import json
from fairlead.core.pinned_https import build_ssl_context, parse_https_url

FETCH_SECONDS = 120.0
"""Of a whole download: index, login and archive."""
PARSE_SECONDS = 60.0
MAX_INDEX_BYTES = 32 * 1024 * 1024
MAX_ARCHIVE_BYTES = 32 * 1024 * 1024

PLACE, ARCHIVE_PLACE = "the repository", "the archive in the index of the repository"
NO_INDEX = "the repository has no index.yaml; correct the URL of the repository"
_digest_pattern = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})", re.ASCII)
_INDEX_PROBLEMS = {
    index_versions.NO_SUCH_CHART: (CHART_NOT_FOUND, 'has no chart "{}"; correct its name or the URL of the repository'),
    index_versions.TOO_MANY: (INVALID_REPOSITORY, 'has too many versions of the chart "{}"; have old ones removed'),
}
_INVALID_INDEX = "has an index.yaml that is not valid; check that the URL is that of a chart repository"
_INVALID_ARCHIVE = (
    "the chart is not a gzipped archive with relative paths, or unpacks to more than "
    f"{chart_archive.MAX_UNPACKED_BYTES >> 20} MiB or {chart_archive.MAX_FILES} files; correct the chart"
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An archive that an index names. `url` may be any text."""

    version: str
    url: str
    digest: str


class ChartFetcher:
    """`resolve` is that of the address policy. `environment` names proxies; by default, it is that of the process."""

    def __init__(
        self, resolve: Resolve, environment: Mapping[str, str] | None = None, seconds: float = FETCH_SECONDS
    ) -> None:
        self._resolve = resolve
        self._environment = environment
        self._seconds = seconds

    async def fetch(self, chart: Chart, folder: Path) -> Path:
        """Downloads the chart into a folder, and returns the path of a checked copy of its archive, which refers to
        nothing else. Raises InstanceError, and OSError for local errors."""
        archive = folder / "fetched.tgz"
        try:
            async with asyncio.timeout(self._seconds):
                await run_in_loop_thread("chart-download", lambda: self._download(chart, archive))
        except TimeoutError:
            message = f"the download of the chart took longer than {self._seconds:.0f} s; check its repository"
            raise InstanceError(REPOSITORY_UNREACHABLE, message, WARNING) from None
        copy = folder / "chart.tgz"
        if await _run_program(folder, chart_archive.__file__, str(archive), str(copy)):
            raise InstanceError(INVALID_CHART, _INVALID_ARCHIVE, ERROR)
        archive.unlink()
        return copy

    async def _download(self, chart: Chart, archive: Path) -> None:
        client = HttpClient(self._resolve, build_ssl_context(), self._environment)
        await _download(client, chart, archive)


async def _download(client: HttpClient, chart: Chart, archive: Path) -> None:
    credential = Credential(chart.username, chart.password) if chart.password else None
    if chart.is_oci:
        reference = parse_reference(f"{chart.repo.rstrip('/')}/{chart.name}")
        await OciRegistry(client, reference, credential).save(chart.version, archive, MAX_ARCHIVE_BYTES)
        return
    base = f"{chart.repo.rstrip('/')}/"
    authorization = credential.basic if credential is not None else ""
    entry = await _find_entry(client, chart, base, authorization, archive.parent)
    digest = await _save_archive(client, entry, base, authorization, archive)
    if entry.digest and digest and digest != entry.digest:
        message = "the archive of the chart has another digest than the index of its repository; have the index updated"
        raise InstanceError(INVALID_CHART, message, ERROR)


async def _save_archive(client: HttpClient, entry: _Entry, base: str, authorization: str, archive: Path) -> str:
    """`authorization` is for the origin of `base`. Returns the sha256 digest of the archive; empty if a registry has
    verified another one."""
    try:
        url = urljoin(base, entry.url)
    except ValueError:
        url = ""
    if url.startswith(f"{OCI}://"):
        # Not the repository's own origin, so without its credential.
        registry = OciRegistry(client, parse_reference(url), None)
        return await registry.save(entry.version, archive, MAX_ARCHIVE_BYTES)
    own = authorization if _is_same_origin(url, base) else ""
    async with client.open(Download(url, ARCHIVE_PLACE, MAX_ARCHIVE_BYTES, authorization=own)) as answer:
        if answer.status != OK:
            message = f"{ARCHIVE_PLACE} does not exist; have the index updated"
            reject_status(answer.status, ARCHIVE_PLACE, InstanceError(CHART_NOT_FOUND, message, ERROR))
        return await answer.save(archive)


async def _find_entry(client: HttpClient, chart: Chart, base: str, authorization: str, folder: Path) -> _Entry:
    index = folder / "index.yaml"
    listed = folder / "versions.json"
    download = Download(f"{base}index.yaml", PLACE, MAX_INDEX_BYTES, authorization=authorization)
    async with client.open(download) as answer:
        if answer.status != OK:
            reject_status(answer.status, PLACE, InstanceError(REPOSITORY_NOT_FOUND, NO_INDEX, ERROR))
        await answer.save(index)
    code = await _run_program(folder, index_versions.__file__, str(index), chart.name, str(listed))
    if code:
        reason, problem = _INDEX_PROBLEMS.get(code, (INVALID_REPOSITORY, _INVALID_INDEX))
        raise InstanceError(reason, f"{PLACE} {problem.format(chart.name)}", ERROR)
    entries = {version: (url, digest) for version, url, digest in reversed(json.decode_body(listed.read_bytes()))}
    version = find_best(entries, chart.version)
    if version is None:
        requested = f'version "{chart.version}"' if chart.version else "release"
        message = f'{PLACE} has no {requested} of the chart "{chart.name}"; correct the version of the chart'
        raise InstanceError(CHART_NOT_FOUND, message, ERROR)
    url, digest = entries[version]
    found = _digest_pattern.fullmatch(digest)
    if digest and found is None:
        message = "the digest of the chart in the index of its repository is not sha256; have the index updated"
        raise InstanceError(INVALID_REPOSITORY, message, ERROR)
    return _Entry(version, url, found[1].lower() if found is not None else "")


def _is_same_origin(url: str, base: str) -> bool:
    target = parse_https_url(url)
    own = parse_https_url(base)
    return target is not None and own is not None and (target.host, target.port) == (own.host, own.port)


async def _run_program(folder: Path, program: str, *arguments: str) -> int:
    """Runs a program of this package, and returns its exit code."""
    command = (sys.executable, "-I", program, *arguments)
    try:
        return await run_limited(command, folder, folder / "complaint", {}, PARSE_SECONDS)
    except TimeoutError:
        message = "reading the index or the archive of the chart took too long; use a smaller chart or index"
        raise InstanceError(INVALID_CHART, message, ERROR) from None
