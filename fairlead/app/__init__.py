"""The composition root: builds a running server from settings. `run` is the entry point.

auth.py              authenticators and authorizers
admission.py         the admission chain
http.py              the request pipeline and the metrics
https.py             the HTTPS port and its certificate
audit.py             the audit log
tls_ports.py         ports for client certificates and front proxies
host_cluster.py      the kube-apiserver that forwards requests to this server
flow_control.py      flow control
runner_hub.py        the connections of runners
controllers.py       controllers, leader election, store maintenance, connections to clusters
default_templates.py templates of a new installation
dynamic_config.py    settings that can change at run time
workers/             several processes that serve one port
worker_limits.py     the limits of one process among several
upgrade.py           migrations of the data at startup; data_migrations.py lists them
maintenance.py       backup, restore and copy of a store
doctor.py            checks of an installation on its machine
support_bundle.py    what a support bundle contains, without secrets
agent.py             a second composition root: the agent, which serves the direct endpoint of a cluster

Only this package may import all others. The CLI imports it only in commands that run a server or access a store.
"""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from fairlead.admission.allow_lists import UNLISTED_CLUSTERS_ANNOTATION, USE_VERB_REQUIRED
from fairlead.app.admin_access import AdminAccess
from fairlead.app.admission import BUILTIN_NAMESPACES, SYSTEM_NAMESPACE, build_admission
from fairlead.app.audit import open_audit_log
from fairlead.app.auth import PEPPER_FILE, Auth, build_auth
from fairlead.app.controllers import ClusterServices, LeaderElection, StoreStack, build_cluster_services, run_background
from fairlead.app.default_templates import DEFAULT_TEMPLATES_ANNOTATION, PENDING, ensure_default_templates
from fairlead.app.drain import drain_before_stop
from fairlead.app.dynamic_config import ensure_config
from fairlead.app.host_cluster import open_host_cluster
from fairlead.app.http import HandlerDependencies, build_handler
from fairlead.app.https import load_server_certificates, serve_https
from fairlead.app.runner_hub import connect_replicas, open_runner_hub
from fairlead.app.storage_quota import build_storage_quota
from fairlead.app.tls_ports import open_tls_ports
from fairlead.app.upgrade import stop_when_outdated, upgrade_data
from fairlead.app.worker_limits import build_memory_limiter, history_bytes
from fairlead.app.workers.context import WorkerContext
from fairlead.app.workers.coordinator import connect_coordinator
from fairlead.authn.bootstrap import PEPPER_VARIABLE, verify_pepper
from fairlead.authz.default_roles import ensure_default_roles
from fairlead.controllers.runtime.leader import LeaderElector, new_identity
from fairlead.core.clock import SystemClock
from fairlead.core.concurrency import set_switch_interval
from fairlead.core.crypto.key_file import EncryptionKeyFile
from fairlead.core.errors import AlreadyExists
from fairlead.core.files import ensure_private_folder
from fairlead.core.folder_security import is_readable_by_others, require_private, require_tamper_proof
from fairlead.core.waiting import wait_until_stopped
from fairlead.kinds import KINDS
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.projects.project import PROJECT, project_kind
from fairlead.registry.codec import entry_builder
from fairlead.registry.kind import Catalog
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Admission
from fairlead.registry.secret_fields import SensitiveFieldIndex
from fairlead.registry.storage_usage import StorageUsage
from fairlead.registry.write_options import server_write_options
from fairlead.server.audit.log import AuditLog
from fairlead.server.http.asgi import AsgiApp
from fairlead.server.http.event_loop_watchdog import Watchdog, run_watchdog
from fairlead.server.http.listeners import free_port
from fairlead.server.metrics.families import new_commit_histogram
from fairlead.server.metrics.installation import ServedCertificate
from fairlead.settings import Settings, StartError, read_variable
from fairlead.storage.contract import Store, StoreUnavailable
from fairlead.storage.encrypted import EncryptedStore, load_keyring, publish_active_key
from fairlead.storage.fenced import FencedStore
from fairlead.storage.open import is_shared, open_store
from fairlead.storage.reencrypt import reload_keys
from fairlead.storage.socket import SocketStore
from fairlead.storage.view.view import View
from fairlead.subresources.workspaces.hub import RunnerHub

# Garbage collector tuning. A full collection takes up to a microsecond per object and stops everything else. The
# objects that are loaded at startup are long-lived and free of cycles, so they are frozen: excluded from collection.
# Full collections run often, so that each has little to scan. Objects that survive a long one are frozen as well;
# otherwise pauses would grow with the number of stored objects. Frozen objects are still freed by reference counting.
# Only a reference cycle that is frozen, and unreachable later, leaks.

FULL_COLLECTION_THRESHOLD = 4
"""The third threshold of `gc`. With Python's default of 10, a full collection would scan seventy thousand objects."""
LONG_COLLECTION_SECONDS = 0.01
"""CPU time of a full collection after which the surviving objects are frozen."""


@contextmanager
def frozen_gc() -> Iterator[None]:
    """Disables the collector while the context is open, then freezes all objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def freeze_heap() -> None:
    """Freezes all objects now, and from now on those that survive a long full collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION_THRESHOLD)
    if _full_collection_hook not in gc.callbacks:
        gc.callbacks.append(_full_collection_hook)


class FullCollectionHook:
    """A `gc` callback that freezes objects after long full collections. Called in the thread that triggers it."""

    def __init__(
        self, cpu_clock: Callable[[], float] = time.thread_time, freeze: Callable[[], None] = gc.freeze
    ) -> None:
        self._cpu_clock = cpu_clock
        self._freeze = freeze
        self._cpu_at_start = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < len(gc.get_threshold()) - 1:
            return
        if phase == "start":
            self._cpu_at_start = self._cpu_clock()
        elif self._cpu_clock() - self._cpu_at_start > LONG_COLLECTION_SECONDS:
            self._freeze()


_full_collection_hook = FullCollectionHook()


STREAM_CLOSE_TIMEOUT = 2.0
"""How long the shutdown waits for watch streams to end. Slower clients see the connection close."""

log = structlog.get_logger(__name__)


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
    set_switch_interval()
    if worker is None:  # otherwise, the supervisor has done it
        check_before_start(settings)
    clock = SystemClock()
    catalog = _build_catalog(settings)
    worker_count = worker.count if worker is not None else 1
    async with (
        drain_before_stop(stop, settings.shutdown_drain) as drain,
        connect_coordinator(worker, drain.stopped) as coordinator,
        _open_stores(settings, catalog, worker) as stores,
        open_audit_log(settings, catalog, clock, worker_count) as audit,
        open_runner_hub(settings, clock, worker) as hub,
        open_host_cluster(settings, clock) as host,
        open_tls_ports(settings, worker, host.authentication) as tls_ports,
    ):
        certificates = load_server_certificates(settings)
        store, commits = stores.encrypted, new_commit_histogram()
        store.on_commit = commits.observe
        is_newest = await upgrade_data(settings, stores)
        view = await _load_view(stores, catalog, worker_count, usage := StorageUsage())
        auth = build_auth(settings, catalog, view, clock, host.authentication)
        await _check_pepper(settings, store, auth)
        chain = build_admission(settings, auth)
        registry = Registry(catalog, store, view, chain, clock, build_storage_quota(settings, auth, view, usage))
        chain.bind_registry(registry)
        election = _build_leader_election(settings, worker, store, registry, chain)
        await _ensure_default_objects(registry, settings.api_group, update_roles=is_newest)
        port, base_url = _choose_port(settings, worker)
        cluster_services = build_cluster_services(settings, registry, port)
        limiter = build_memory_limiter(settings, worker_count)
        deps = HandlerDependencies(
            audit=audit,
            store=store,
            clusters=cluster_services,
            hub=hub,
            base_url=base_url,
            commit_seconds=commits,
            watchdog=Watchdog(),
            memory_limiter=limiter,
            coordinator=coordinator,
            certificate=ServedCertificate(),
            is_leader=lambda: election.is_leader,
            host_reviews=host.reviews,
            drain=drain,
        )
        app = AsgiApp(build_handler(settings, registry, auth, deps), settings.body_limit, limiter, tls_ports.origins())
        async with (
            stop_when_outdated(settings, stores.raw, drain.stopped),
            connect_replicas(settings, registry, hub, worker),
            run_background(settings, stores, registry, election, auth, cluster_services) as start_background,
            serve_https(app, settings, port, certificates, worker, deps.certificate),
            tls_ports.serve(app, certificates, deps.certificate),
            run_watchdog(deps.watchdog),
        ):
            # Create the admin's key only once the server accepts requests: it is shown once, so nothing may fail after.
            access = AdminAccess.build(settings, store, registry, auth, (base_url, certificates.ca_file))
            await _announce_ready(access, ready, worker)
            drain.is_ready = True
            if not drain.stopped.is_set():  # otherwise the background work would be cancelled while it takes the lease
                async with access.serving_requests():
                    await wait_until_stopped(drain.stopped, start_background())
            await _end_streams(view, audit, cluster_services, hub)
            # Watch streams end regularly before their connections are closed.
            await app.wait_for_streams(min(STREAM_CLOSE_TIMEOUT, settings.shutdown_grace))
        await view.stop()


def _choose_port(settings: Settings, worker: WorkerContext | None) -> tuple[int, str]:
    """The port, and the URL for clients."""
    port = free_port(settings.listen, settings.port) if worker is None else worker.port
    return port, settings.base_url(port)


async def _end_streams(view: View, audit: AuditLog | None, clusters: ClusterServices, hub: RunnerHub) -> None:
    view.end_watches()
    if audit is not None:
        audit.reader.end_watches()
    await clusters.upstreams.close_all()
    await hub.close()


async def _announce_ready(
    access: AdminAccess, ready: Callable[[StartedServer], None], worker: WorkerContext | None
) -> None:
    new_key, is_replaced = await access.start(worker is None or worker.is_first)
    freeze_heap()
    is_rejected = new_key is None and access.is_stored_key_rejected()
    ready(StartedServer(access.url, access.ca_file, new_key, is_replaced, is_rejected))


def check_before_start(settings: Settings) -> None:
    """Checks the port, and that other users of the machine cannot modify the data folder, the database or the TLS key.

    A first start on a port that is in use must not leave a data folder behind. Later ones check the port after the
    folder: that another server uses it is the better message.
    """
    if not settings.data.exists():
        free_port(settings.listen, settings.port)
    require_private(ensure_private_folder(settings.data))
    database = settings.store_url.removeprefix("sqlite:")
    if database != settings.store_url and Path(database).parent != settings.data:
        require_tamper_proof(Path(database).absolute())
    if settings.tls_key is not None:
        require_tamper_proof(settings.tls_key)
        if settings.tls_key.exists() and is_readable_by_others(settings.tls_key):
            log.warning(
                "the server's TLS key is readable by other users; restrict its permissions",
                tls_key=str(settings.tls_key),
            )


def _build_catalog(settings: Settings) -> Catalog:
    kinds = [project_kind(settings.namespace_prefix) if kind is PROJECT else kind for kind in KINDS]
    return Catalog(kinds, settings.api_group)


async def _load_view(stores: StoreStack, catalog: Catalog, worker_count: int, usage: StorageUsage) -> View:
    view = View(stores.encrypted, entry_builder(catalog), history_bytes(worker_count))
    view.observe(usage)
    try:
        with frozen_gc():
            await view.start()
        # Only after all stored values were decrypted with these keys: other replicas rely on the published key.
        await publish_active_key(stores.raw, stores.encrypted.keyring)
    except StoreUnavailable as error:
        raise StartError(str(error)) from None
    return view


async def _check_pepper(settings: Settings, store: EncryptedStore, auth: Auth) -> None:
    try:
        await verify_pepper(
            store, auth.pepper, settings.data / PEPPER_FILE, variable=os.environ.get(PEPPER_VARIABLE, "")
        )
    except StoreUnavailable as error:
        raise StartError(str(error)) from None


def _build_leader_election(
    settings: Settings, worker: WorkerContext | None, store: EncryptedStore, registry: Registry, admit: Admission
) -> LeaderElection:
    """The leader election, if this process takes part in one. The leader then writes through a fenced registry."""
    identity = _leader_identity(settings, worker)
    if identity is None:
        return LeaderElection(registry, None)
    leader = LeaderElector(registry.resource_for(LEASE), SYSTEM_NAMESPACE, registry.clock, identity)
    _discard_former_leader(leader, worker)
    fenced = Registry(registry.catalog, FencedStore(store, leader.fence), registry.view, admit, registry.clock)
    return LeaderElection(fenced, leader)


def _leader_identity(settings: Settings, worker: WorkerContext | None) -> str | None:
    """Identifies this process in the leader election; None if no other process uses the store."""
    if worker is not None:
        return worker.identity
    return new_identity() if is_shared(settings.store_url) else None


def _discard_former_leader(leader: LeaderElector, worker: WorkerContext | None) -> None:
    """The first worker on a store that only this server uses need not wait until the lease of a former one expires."""
    if worker is not None and worker.is_first and worker.sockets.store is not None:
        leader.ignore_holder()


async def _ensure_default_objects(registry: Registry, api_group: str, *, update_roles: bool) -> None:
    await _ensure_namespaces(registry)
    await ensure_default_roles(registry, api_group, update=update_roles)
    await ensure_config(registry, api_group)
    await ensure_default_templates(registry, api_group)


async def _ensure_namespaces(registry: Registry) -> None:
    namespaces = registry.resource("", "namespaces")
    for name in BUILTIN_NAMESPACES:
        recorded = {UNLISTED_CLUSTERS_ANNOTATION: USE_VERB_REQUIRED, DEFAULT_TEMPLATES_ANNOTATION: PENDING}
        annotations = {"annotations": recorded} if name == SYSTEM_NAMESPACE else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **annotations}}
        try:
            await namespaces.create(body, "", server_write_options())
        except AlreadyExists:
            continue


@asynccontextmanager
async def _open_stores(settings: Settings, catalog: Catalog, worker: WorkerContext | None) -> AsyncIterator[StoreStack]:
    """Opens the store, and wraps it with encryption at rest. Everything else uses the encrypted one."""
    try:
        store = await _open_store(settings, worker)
    except (StoreUnavailable, ValueError) as error:
        raise StartError(str(error)) from None
    try:
        variable, text = read_variable("encryption_keys", os.environ)
        keys = EncryptionKeyFile(settings.data, text, variable)
        try:
            keyring = await load_keyring(store, keys)
        except StoreUnavailable as error:
            raise StartError(str(error)) from None
        encrypted = EncryptedStore(store, keyring, SensitiveFieldIndex(catalog).may_contain)
        encrypted.reload_keys = partial(reload_keys, encrypted, keys)
        yield StoreStack(store, encrypted, keys)
    finally:
        await store.close()


async def _open_store(settings: Settings, worker: WorkerContext | None) -> Store:
    """The store itself, or a connection to the process that has opened it."""
    if worker is None or worker.sockets.store is None:
        return await open_store(settings.store_url)
    return await SocketStore.connect(worker.sockets.store, worker.revision)
