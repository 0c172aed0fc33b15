"""The composition root of the agent: the direct endpoint that runs next to a connected cluster.

The pipeline is short: the audit log and error rendering as on the server, then `agent/endpoint.py`, which
authenticates, authorizes and forwards requests to the cluster. In the background, the agent refreshes its configuration
from the control plane, reports audit events, and reloads its cluster credentials.

Only `cli/server/agent.py` imports it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from fairlead.agent.config_cache import Keeping, Knowledge
from fairlead.agent.control_plane import SECONDS, HomeServer
from fairlead.agent.endpoint import Direct, Surroundings
from fairlead.agent.local_cluster import Nearby, Reading, from_kubeconfig, from_pod
from fairlead.agent.reports import Copied, Reports
from fairlead.agent.tokens import Holders
from fairlead.app.http import MOUNT
from fairlead.client.tls import trusting
from fairlead.core.clock import SystemClock
from fairlead.core.crypto.certificates import Certificates, ensure_certificates, given_certificates
from fairlead.core.files import FileProblem, private_folder, read_file
from fairlead.core.folder_security import require_private
from fairlead.core.validators import bracketed
from fairlead.kinds import KINDS
from fairlead.registry.catalog import Catalog
from fairlead.server.api.errors import failures
from fairlead.server.api.routing import api_target
from fairlead.server.audit.intake import Logs
from fairlead.server.audit.log_file import Backups, open_sink
from fairlead.server.audit.log_writer import Trail
from fairlead.server.audit.policy import DEFAULT
from fairlead.server.audit.stage import Audit
from fairlead.server.http.asgi import Front, Listening, free_port, listening
from fairlead.server.http.pipeline import Proceed, pipeline
from fairlead.settings import StartError

BODY_LIMIT = 3 * 1024 * 1024
GRACE = 10.0
AUDIT_BYTES, AUDIT_BACKUPS, AUDIT_DAYS = 100 * 1024 * 1024, 10, 30


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`kubeconfig` is None in a pod of the cluster. Without `certificate`, one is generated for `certificate_names`."""

    cluster: str
    server: str
    api_group: str
    key_file: Path
    ca_file: Path | None
    kubeconfig: Path | None
    listen: str
    port: int
    state: Path
    certificate: tuple[Path, Path] | None
    names: tuple[str, ...]
    audit: str
    """A path, or `-` for the standard output. Empty for the default, in the state folder."""
    offline_hours: int


@dataclass(frozen=True, slots=True)
class Started:
    """An agent that accepts requests. `ca_file` is its CA certificate, if the agent generated it."""

    url: str
    ca_file: Path | None


async def run(settings: AgentSettings, stop: asyncio.Event, ready: Callable[[Started], None]) -> None:
    """Serves until `stop` is set."""
    clock = SystemClock()
    require_private(private_folder(settings.state))
    certificates = _certificates(settings)
    nearby, reports = Nearby(_reading(settings)), Reports(clock)
    async with _home(settings) as home, _audit(settings, reports, clock) as audit:
        keeping = Keeping(settings.cluster, settings.state / "knowledge.json", settings.offline_hours * 3600)
        knowledge = Knowledge(home, keeping, clock)
        knowledge.load()
        await knowledge.refresh()
        endpoint = Direct(Surroundings(knowledge, Holders(clock), reports, nearby, api_target, audit.accountable))
        async with (
            _working(knowledge.run, partial(reports.run, home), nearby.run) as work,
            _listening(settings, pipeline((audit.recorded, failures), endpoint), certificates) as port,
        ):
            ready(Started(f"https://{bracketed(_reachable(settings.listen))}:{port}", certificates.ca_file))
            await _until(stop, work)
        await nearby.close()
        await reports.tell(home)


def _reading(settings: AgentSettings) -> Reading:
    return from_kubeconfig(settings.kubeconfig) if settings.kubeconfig else from_pod()


def _certificates(settings: AgentSettings) -> Certificates:
    if settings.certificate is not None:
        return given_certificates(*settings.certificate, None)
    own = () if settings.listen in ("0.0.0.0", "::") else (settings.listen,)
    return ensure_certificates(settings.state / "tls", tuple(dict.fromkeys((*settings.names, *own))))


@asynccontextmanager
async def _home(settings: AgentSettings) -> AsyncIterator[HomeServer]:
    ca_certificate = read_file(settings.ca_file) if settings.ca_file else b""
    if ca_certificate is None:
        raise StartError(f"{settings.ca_file}: no such file; pass the CA certificate of the server with --ca-file")
    try:
        tls = trusting(ca_certificate.decode(errors="replace"))
    except ValueError as error:
        raise StartError(
            f"{settings.ca_file}: {error}; pass a PEM file with the CA certificate of the server"
        ) from None
    _key(settings.key_file)  # fail at startup if the file is invalid
    async with httpx.AsyncClient(base_url=settings.server, verify=tls, timeout=SECONDS, trust_env=False) as http:
        yield HomeServer(http, settings.api_group, settings.cluster, partial(_key, settings.key_file))


def _key(path: Path) -> str:
    key = (read_file(path) or b"").decode(errors="replace").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise FileProblem(f"{path}: does not contain an access key; write the key of this cluster's agent into it")
    return key


@asynccontextmanager
async def _audit(settings: AgentSettings, reports: Reports, clock: SystemClock) -> AsyncIterator[Audit]:
    backups = partial(Backups, count=AUDIT_BACKUPS, days=AUDIT_DAYS, compress=True)
    path = settings.audit or str(settings.state / "audit.log")
    writer = Trail(Copied(open_sink(path, backups, AUDIT_BYTES, clock), reports))
    audit = Audit(DEFAULT, Logs.single(writer), Catalog(KINDS, settings.api_group), clock, MOUNT)
    try:
        yield audit
    finally:
        audit.finish()
        await writer.close()


@asynccontextmanager
async def _working(*work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator["asyncio.Task[None]"]:
    """Runs background work while the context is open. It only ends by an internal error, which stops the agent."""

    async def run_all() -> None:
        async with asyncio.TaskGroup() as group:
            for run_forever in work:
                group.create_task(run_forever())

    task = asyncio.create_task(run_all(), name="background")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _listening(settings: AgentSettings, handle: Proceed, certificates: Certificates) -> AsyncIterator[int]:
    try:
        port = free_port(settings.listen, settings.port)
    except OSError as error:
        address = f"{settings.listen} port {settings.port}"
        raise StartError(f"cannot listen on {address}: {error.strerror}; choose another with --port") from None
    options = Listening(settings.listen, port, certificates.cert_file, certificates.key_file, GRACE)
    async with listening(Front(handle, BODY_LIMIT), options) as bound_port:
        yield bound_port


def _reachable(listen: str) -> str:
    """An address to connect to: loopback, if the agent listens on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)


async def _until(stop: asyncio.Event, work: "asyncio.Task[None]") -> None:
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, work), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if work.done():
        work.result()
