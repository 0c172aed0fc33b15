"""The composition root of the agent, which runs in or beside a cluster.

It carries requests of the server to the cluster over sessions that it has dialled (`agent_sessions.py`), serves direct
tokens, or does both.

The pipeline of the direct endpoint is short: the audit log and error rendering as on the server, then
`agent/endpoint.py`, which authenticates, authorizes and forwards requests to the cluster. In the background, the agent
refreshes its configuration from the control plane, reports audit events, and reloads its cluster credentials.

Only `cli/server/agent.py` imports it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from fairlead.agent.config_cache import CacheOptions, ConfigCache
from fairlead.agent.control_plane import TIMEOUT_SECONDS, ControlPlaneClient
from fairlead.agent.endpoint import DirectEndpoint, EndpointDependencies
from fairlead.agent.reports import ReportQueue, TeeSink
from fairlead.agent.tokens import DirectTokenAuthenticator
from fairlead.app.agent_sessions import SessionSettings, open_sessions
from fairlead.client.admin_kubeconfig import MANAGEMENT_PATH
from fairlead.client.tls import build_ssl_context
from fairlead.core.call import Handler
from fairlead.core.clock import SystemClock
from fairlead.core.crypto.certificates import Certificates, ensure_certificates, load_certificates
from fairlead.core.files import FileProblem, ensure_private_folder, read_file
from fairlead.core.machine.folder_security import require_private
from fairlead.core.validators import format_host
from fairlead.core.waiting import background_task, wait_until_stopped
from fairlead.kinds import KINDS
from fairlead.registry.kind import Catalog
from fairlead.server.api.routing import parse_api_path
from fairlead.server.audit.intake import AuditLogs
from fairlead.server.audit.log_file import LogRetention, open_sink
from fairlead.server.audit.log_writer import AuditLogWriter
from fairlead.server.audit.policy import DEFAULT_POLICY
from fairlead.server.audit.stage import AuditStage
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.http_server import BindOptions, run_http_server
from fairlead.server.http.listeners import free_port
from fairlead.server.pipeline import Pipeline, reject_malformed
from fairlead.settings import StartError
from fairlead.upstream.local_cluster import ClusterEndpointSource, LocalCluster, in_cluster_source, kubeconfig_source

BODY_LIMIT = 3 * 1024 * 1024
SHUTDOWN_GRACE_SECONDS = 10.0
CONFIG_CACHE_FILE = "agent-config.json"
AUDIT_FILE_BYTES = 100 * 1024 * 1024
AUDIT_BACKUPS = 10
AUDIT_MAX_DAYS = 30


Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`kubeconfig` is None in a pod of the cluster. Without `certificate`, one is generated for `certificate_names`."""

    cluster: str
    server: str
    api_group: str
    key_file: Path | None
    """Without an access key, there is no direct endpoint."""
    ca_file: Path | None
    kubeconfig: Path | None
    listen: str
    port: int
    state_folder: Path
    certificate: tuple[Path, Path] | None
    certificate_names: tuple[str, ...]
    audit_path: str
    """A path, or `-` for the standard output. Empty for the default, in the state folder."""
    offline_hours: int
    sessions: SessionSettings | None = None
    """None for an agent that does not dial out."""


@dataclass(frozen=True, slots=True)
class StartedAgent:
    """An agent that accepts requests, or has a session (then without a URL, unless it does both). `ca_file` is the CA
    certificate of its endpoint, if the agent generated it."""

    url: str
    ca_file: Path | None


async def run(settings: AgentSettings, stop: asyncio.Event, ready: Callable[[StartedAgent], None]) -> None:
    """Serves until `stop` is set."""
    require_private(ensure_private_folder(settings.state_folder))
    local_cluster = LocalCluster(_access_source(settings))
    try:
        async with AsyncExitStack() as stack:
            work: list[Work] = [local_cluster.run]
            started: StartedAgent | None = None
            if settings.sessions is not None:
                sessions = await stack.enter_async_context(open_sessions(settings.sessions, local_cluster))
                work.append(sessions.run)
                if settings.key_file is None:
                    sessions.on_first_session = lambda: ready(StartedAgent("", None))
            if settings.key_file is not None:
                endpoint_work, started = await stack.enter_async_context(_open_endpoint(settings, local_cluster))
                work += endpoint_work
            running = await stack.enter_async_context(_run_background(*work))
            if started is not None:
                ready(started)
            await wait_until_stopped(stop, running)
    finally:
        await local_cluster.close()


@asynccontextmanager
async def _open_endpoint(
    settings: AgentSettings, local_cluster: LocalCluster
) -> AsyncIterator[tuple[list[Work], StartedAgent]]:
    """The direct endpoint, while the context is open, and its work in the background."""
    clock = SystemClock()
    certificates = _load_certificates(settings)
    reports = ReportQueue(clock)
    async with _connect_control_plane(settings) as control_plane, _open_audit(settings, reports, clock) as audit:
        cache_file = settings.state_folder / CONFIG_CACHE_FILE
        cache_options = CacheOptions(settings.cluster, cache_file, settings.offline_hours * 3600)
        config_cache = ConfigCache(control_plane, cache_options, clock)
        config_cache.load()
        await config_cache.refresh()
        endpoint = DirectEndpoint(
            EndpointDependencies(
                config_cache=config_cache,
                authenticator=DirectTokenAuthenticator(clock),
                reports=reports,
                cluster=local_cluster,
                route=parse_api_path,
                require_auditable=audit.require_auditable,
            )
        )
        async with _serve(settings, _build_pipeline(audit, endpoint), certificates) as port:
            url = f"https://{format_host(_reachable_address(settings.listen))}:{port}"
            yield [config_cache.run, partial(reports.run, control_plane)], StartedAgent(url, certificates.ca_file)
        await reports.flush(control_plane)


def _build_pipeline(audit: AuditStage, endpoint: Handler) -> Handler:
    return Pipeline((audit.begin, reject_malformed), endpoint, (audit.record,), (audit.record_aborted,))


def _access_source(settings: AgentSettings) -> ClusterEndpointSource:
    if settings.kubeconfig:
        return kubeconfig_source(settings.kubeconfig, "specify the cluster's kubeconfig with --kubeconfig")
    return in_cluster_source("run the agent in a pod with a service account, or specify a kubeconfig with --kubeconfig")


def _load_certificates(settings: AgentSettings) -> Certificates:
    if settings.certificate is not None:
        return load_certificates(*settings.certificate, None)
    own = () if settings.listen in ("0.0.0.0", "::") else (settings.listen,)
    return ensure_certificates(settings.state_folder / "tls", tuple(dict.fromkeys((*settings.certificate_names, *own))))


@asynccontextmanager
async def _connect_control_plane(settings: AgentSettings) -> AsyncIterator[ControlPlaneClient]:
    ca_certificate = read_file(settings.ca_file) if settings.ca_file else b""
    if ca_certificate is None:
        raise StartError(f"{settings.ca_file}: no such file; pass the CA certificate of the server with --ca-file")
    try:
        tls = build_ssl_context(ca_certificate.decode(errors="replace"))
    except ValueError as error:
        raise StartError(
            f"{settings.ca_file}: {error}; pass a PEM file with the CA certificate of the server"
        ) from None
    assert settings.key_file is not None
    read_key = partial(_read_key, settings.key_file)
    read_key()  # fail at startup if the file is invalid
    async with httpx.AsyncClient(
        base_url=settings.server, verify=tls, timeout=TIMEOUT_SECONDS, trust_env=False
    ) as http:
        yield ControlPlaneClient(http, settings.api_group, settings.cluster, read_key)


def _read_key(path: Path) -> str:
    key = (read_file(path) or b"").decode(errors="replace").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise FileProblem(f"{path}: does not contain an access key; write the key of this cluster's agent into it")
    return key


@asynccontextmanager
async def _open_audit(settings: AgentSettings, reports: ReportQueue, clock: SystemClock) -> AsyncIterator[AuditStage]:
    backups = partial(LogRetention, max_files=AUDIT_BACKUPS, max_days=AUDIT_MAX_DAYS, compress=True)
    path = settings.audit_path or str(settings.state_folder / "audit.log")
    writer = AuditLogWriter(TeeSink(open_sink(path, backups, AUDIT_FILE_BYTES, clock), reports))
    audit = AuditStage(
        DEFAULT_POLICY, AuditLogs.single(writer), Catalog(KINDS, settings.api_group), clock, MANAGEMENT_PATH
    )
    try:
        yield audit
    finally:
        audit.finish()
        await writer.close()


@asynccontextmanager
async def _run_background(*work: Work) -> AsyncIterator["asyncio.Task[None]"]:
    """Runs background work while the context is open. It only ends by an internal error, which stops the agent."""

    async def run_all() -> None:
        async with asyncio.TaskGroup() as group:
            for run_forever in work:
                group.create_task(run_forever())

    async with background_task(run_all(), "background") as task:
        yield task


@asynccontextmanager
async def _serve(settings: AgentSettings, handle: Handler, certificates: Certificates) -> AsyncIterator[int]:
    port = free_port(settings.listen, settings.port)
    options = BindOptions(
        address=settings.listen,
        port=port,
        cert_file=certificates.cert_file,
        key_file=certificates.key_file,
        grace_seconds=SHUTDOWN_GRACE_SECONDS,
        folder=settings.state_folder,
    )
    async with run_http_server(AsgiApp(handle, BODY_LIMIT), options) as bound_port:
        yield bound_port


def _reachable_address(listen: str) -> str:
    """An address to connect to: loopback, if the agent listens on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)
