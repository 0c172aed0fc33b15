"""The composition root: builds a running server from settings. `run` is the entry point.

features.py          the features of the server, in order; `fairlead/features` has one module for each
services.py          what features share
http.py              the request pipeline, with what the features add
background.py        the leader election, controllers and tasks of the features, store maintenance
auth.py              authenticators and authorizers
stores.py            the store with encryption at rest, the view, and the quota on objects
audit.py             the audit log
tls_ports.py         the HTTPS port and its certificate; ports for client certificates and front proxies
host_cluster.py      the kube-apiserver that forwards requests to this server
flow_control.py      flow control
link_hubs.py         the connections of runners and agents
admin_access.py      the key of the first administrator
start_checks.py      what is checked before the start
drain.py             the time between the request to stop and the stop
default_objects.py   the objects that every installation has
garbage_collection.py  tuning of Python's garbage collector
workers/             several processes that serve one port
worker_limits.py     the limits of one process among several
upgrade.py           migrations of the data at startup; data_migrations.py lists them
maintenance.py       backup, restore and copy of a store
doctor.py            checks of an installation on its machine
support_bundle.py    what a support bundle contains, without secrets
agent.py             a second composition root: the agent, in or beside a cluster; agent_sessions.py is what dials out

Only this package may import all others. The CLI imports it only in commands that run a server or access a store.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.admission import AdmissionChain
from fairlead.app.admin_access import AdminAccess
from fairlead.app.audit import open_audit_log
from fairlead.app.auth import build_auth
from fairlead.app.background import build_leader_election, run_background
from fairlead.app.default_objects import ensure_default_objects
from fairlead.app.drain import drain_before_stop
from fairlead.app.features import build_features
from fairlead.app.garbage_collection import freeze_heap
from fairlead.app.host_cluster import open_host_cluster
from fairlead.app.http import build_app
from fairlead.app.link_hubs import connect_replicas, open_link_hubs
from fairlead.app.services import OpenedServices, build_services
from fairlead.app.start_checks import check_before_start, check_pepper
from fairlead.app.stores import build_storage_quota, load_view, open_stores
from fairlead.app.tls_ports import load_server_certificates, open_tls_ports, serve_https
from fairlead.app.upgrade import stop_when_outdated, upgrade_data
from fairlead.app.worker_limits import build_memory_limiter
from fairlead.app.workers.context import WorkerContext, connect_coordinator
from fairlead.core.clock import SystemClock
from fairlead.core.waiting import wait_until_stopped
from fairlead.features.contract import Services
from fairlead.kinds import KINDS
from fairlead.kinds.projects.project import PROJECT, project_kind
from fairlead.registry.kind import Catalog
from fairlead.registry.quota.usage import StorageUsage
from fairlead.registry.registry import Registry
from fairlead.server.http.event_loop_watchdog import run_watchdog
from fairlead.server.http.listeners import free_port
from fairlead.settings import Settings

STREAM_CLOSE_TIMEOUT = 2.0
"""How long the shutdown waits for watch streams to end. Slower clients see the connection close."""


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server that accepts requests. `new_key` is the admin's access key if this start created it; shown once.

    `is_key_replaced`: the new key replaces an earlier one, which was requested or had expired. `is_key_rejected`: the
    key in the administrator's kubeconfig does not authenticate any more.
    """

    url: str
    ca_file: Path | None
    new_key: str | None
    is_key_replaced: bool = False
    is_key_rejected: bool = False


async def run(
    settings: Settings,
    stop: asyncio.Event,
    ready: Callable[[StartedServer], None],
    worker: WorkerContext | None = None,
) -> None:
    """Serves until `stop` is set and the drain is over. `worker` is None if this process is the whole server."""
    if worker is None:  # otherwise, the supervisor has done it
        check_before_start(settings)
    clock = SystemClock()
    catalog = _build_catalog(settings)
    worker_count = worker.count if worker is not None else 1
    async with (
        drain_before_stop(stop, settings.shutdown_drain) as drain,
        connect_coordinator(worker, drain.stopped) as coordinator,
        open_stores(settings, catalog, worker) as stores,
        open_audit_log(settings, catalog, clock, worker_count) as audit,
        open_link_hubs(settings, clock, worker) as hubs,
        open_host_cluster(settings, clock) as host,
        open_tls_ports(settings, worker, host.authentication) as tls_ports,
    ):
        certificates = load_server_certificates(settings)
        store = stores.encrypted
        is_newest = await upgrade_data(settings, stores)
        usage = StorageUsage()
        view = await load_view(stores, catalog, worker_count, usage)
        auth = build_auth(settings, catalog, view, clock, host.authentication)
        await check_pepper(settings, store, auth.pepper)
        admission = AdmissionChain()
        quota = build_storage_quota(settings, auth, view, usage)
        registry = Registry(catalog=catalog, store=store, view=view, admit=admission, clock=clock, quota=quota)
        election = build_leader_election(settings, worker, store, registry, admission)
        port = worker.port if worker is not None else free_port(settings.listen, settings.port)
        opened = OpenedServices(stores=stores, coordinator=coordinator, audit=audit, hubs=hubs)
        services = build_services(settings, opened, registry, auth, election, port)
        features = build_features(services)
        admission.bind(registry, features.admission_rules())
        await ensure_default_objects(registry, settings.api_group, update_roles=is_newest)
        limiter = build_memory_limiter(settings, worker_count)
        app = build_app(services, features, limiter, host.reviews, drain, tls_ports.origins())
        freeze_heap()  # before requests are accepted: it holds the event loop for 100 ms and more
        async with (
            stop_when_outdated(settings, stores.raw, drain.stopped),
            connect_replicas(settings, registry, hubs, worker),
            run_background(services, features, stores, election) as start_background,
            serve_https(app, settings, port, certificates, worker, services.certificate),
            tls_ports.serve(app, certificates, services.certificate),
            run_watchdog(services.watchdog),
        ):
            # Create the admin's key only once the server accepts requests: it is shown once, so nothing may fail after.
            access = AdminAccess.build(services, certificates.ca_file)
            await _announce_ready(access, ready, worker)
            drain.is_ready = True
            if not drain.stopped.is_set():  # otherwise the background work would be cancelled while it takes the lease
                async with access.serving_requests():
                    await wait_until_stopped(drain.stopped, start_background())
            await _end_streams(services)
            # Watch streams end regularly before their connections are closed.
            await app.wait_for_streams(min(STREAM_CLOSE_TIMEOUT, settings.shutdown_grace))
        await view.stop()


def _build_catalog(settings: Settings) -> Catalog:
    kinds = [project_kind(settings.namespace_prefix) if kind is PROJECT else kind for kind in KINDS]
    return Catalog(kinds, settings.api_group)


async def _announce_ready(
    access: AdminAccess, ready: Callable[[StartedServer], None], worker: WorkerContext | None
) -> None:
    new_key, is_replaced = await access.start(worker is None or worker.is_first)
    started = StartedServer(
        url=access.url,
        ca_file=access.ca_file,
        new_key=new_key,
        is_key_replaced=is_replaced,
        is_key_rejected=new_key is None and access.is_stored_key_rejected(),
    )
    ready(started)


async def _end_streams(services: Services) -> None:
    services.registry.view.end_watches()
    if services.audit is not None:
        services.audit.reader.end_watches()
    await services.upstreams.close_all()
    await services.agents.close()
    await services.hub.close()
