"""The composition root: builds a running server from settings. `run` is the entry point.

auth.py            authenticators and authorizers
admission.py       the admission chain
http.py            the request pipeline, the metrics and the audit log
flow_control.py    flow control
controllers.py     controllers, leader election, store maintenance, connections to clusters
dynamic_config.py  settings that can change at run time
maintenance.py     backup, restore and copy of a store
agent.py           a second composition root: the agent, which serves the direct endpoint of a cluster

Only this package may import all others. The CLI imports it only in commands that run a server or access a store.
"""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from fairlead.admission.allow_lists import UNLISTED, USE
from fairlead.app.admission import NAMESPACES, SYSTEM_NAMESPACE, admission
from fairlead.app.auth import PEPPER_FILE, Identity, identity
from fairlead.app.controllers import Leading, Stores, background, clusters
from fairlead.app.dynamic_config import ensure_config
from fairlead.app.http import Surroundings, auditing, handler
from fairlead.authn.bootstrap import agree_on_pepper, ensure_admin
from fairlead.authz.default_roles import ensure_default_roles
from fairlead.controllers.runtime.leader import Leader, new_identity
from fairlead.core.clock import SystemClock
from fairlead.core.concurrency import let_the_loop_in
from fairlead.core.crypto.certificates import Certificates, ensure_certificates, given_certificates
from fairlead.core.crypto.key_file import VARIABLE, SealKeys
from fairlead.core.errors import AlreadyExists
from fairlead.core.files import private_folder
from fairlead.core.folder_security import is_readable_by_others, require_private, require_unchangeable
from fairlead.kinds import KINDS
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.projects.project import PROJECT, project
from fairlead.registry.catalog import Catalog
from fairlead.registry.codec import finisher
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Admission
from fairlead.registry.secret_fields import SecretFields
from fairlead.registry.write_options import by_the_server
from fairlead.server.http.asgi import Front, Listening, free_port, listening
from fairlead.server.http.event_loop_watchdog import Watchdog, running
from fairlead.server.http.unsent import Unsent
from fairlead.server.metrics.families import new_commits
from fairlead.settings import Settings, StartError
from fairlead.storage.contract import Unavailable
from fairlead.storage.encrypted import Sealed, agree_on_active, keyring_for
from fairlead.storage.fenced import Fenced
from fairlead.storage.open import is_shared, open_store
from fairlead.storage.view.view import View

# Garbage collector tuning. A full collection takes up to a microsecond per object and stops everything else. The
# objects that are loaded at startup are long-lived and free of cycles, so they are frozen: excluded from collection.
# Full collections run often, so that each has little to scan. Objects that survive a long one are frozen as well;
# otherwise pauses would grow with the number of stored objects. Frozen objects are still freed by reference counting.
# Only a reference cycle that is frozen, and unreachable later, leaks.

FULL_ROUND_AFTER = 4
"""The third threshold of `gc`. With Python's default of 10, a full collection would scan seventy thousand objects."""
LONG_ROUND_SECONDS = 0.01
"""CPU time of a full collection after which the surviving objects are frozen."""


@contextmanager
def lasting() -> Iterator[None]:
    """Disables the collector while the context is open, then freezes all objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def keep_everything() -> None:
    """Freezes all objects now, and from now on those that survive a long full collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_ROUND_AFTER)
    if _full_rounds not in gc.callbacks:
        gc.callbacks.append(_full_rounds)


class FullRounds:
    """A `gc` callback that freezes objects after long full collections. Called in the thread that triggers it."""

    def __init__(self, used: Callable[[], float] = time.thread_time, set_aside: Callable[[], None] = gc.freeze) -> None:
        self._used = used
        self._set_aside = set_aside
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < len(gc.get_threshold()) - 1:
            return
        if phase == "start":
            self._began = self._used()
        elif self._used() - self._began > LONG_ROUND_SECONDS:
            self._set_aside()


_full_rounds = FullRounds()


STREAMS_SECONDS = 2.0
"""How long the shutdown waits for watch streams to end. Slower clients see the connection close."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A server that accepts requests. `new_key` is the admin's access key if this start created it; shown once."""

    url: str
    ca_file: Path | None
    new_key: str | None


async def run(settings: Settings, stop: asyncio.Event, ready: Callable[[Started], None]) -> None:
    """Serves until `stop` is set, then ends watches, finishes in-flight requests and closes the store."""
    let_the_loop_in()
    clock = SystemClock()
    _own_places(settings)
    catalog = _catalog(settings)
    async with _stores(settings, catalog) as stores, auditing(settings, catalog, clock) as audit:
        certificates = _certificates(settings)
        store, commits = stores.sealed, new_commits()
        store.note_commit = commits.observe
        view = View(store, finisher(catalog))
        try:
            with lasting():
                await view.start()
            # Only after all stored values were decrypted with these keys: other replicas rely on the published key.
            await agree_on_active(stores.plain, store.keyring)
        except Unavailable as error:
            raise StartError(str(error)) from None
        auth = identity(settings, catalog, view, clock)
        await _same_pepper(settings, store, auth)
        chain = admission(settings, auth)
        registry = Registry(catalog, store, view, chain, clock)
        chain.look_around_in(registry)
        election = _leading(settings, store, registry, chain)
        await _ensure_namespaces(registry)
        await ensure_default_roles(registry, settings.api_group)
        await ensure_config(registry, settings.api_group)
        port = _port(settings)
        base_url = settings.base_url(port)
        cluster_services = clusters(settings, registry, port)
        limiter = Unsent(settings.body_limit)
        deps = Surroundings(audit, store, cluster_services.gateways, base_url, commits, Watchdog(), limiter)
        app = Front(handler(settings, registry, auth, deps), settings.body_limit, limiter)
        async with (
            background(settings, stores, registry, election, auth, cluster_services) as start_background,
            _listening(app, settings, port, certificates),
            running(deps.watchdog),
        ):
            # Create the admin's key only once the server accepts requests: it is shown once, so nothing may fail after.
            new_key = await ensure_admin(store, view, auth.pepper, settings.api_group, clock)
            keep_everything()
            ready(Started(base_url, certificates.ca_file, new_key))
            await _until(stop, start_background())
            view.end_watches()
            await cluster_services.connected.close_all()
            # Watch streams end regularly before their connections are closed.
            await app.finish_streams(min(STREAMS_SECONDS, settings.shutdown_grace))
        await view.stop()


def _own_places(settings: Settings) -> None:
    """Checks that other users of the machine cannot modify the data folder, the database or the TLS key."""
    require_private(private_folder(settings.data))
    database = settings.store_url.removeprefix("sqlite:")
    if database != settings.store_url and Path(database).parent != settings.data:
        require_unchangeable(Path(database).absolute())
    if settings.tls_key is not None:
        require_unchangeable(settings.tls_key)
        if settings.tls_key.exists() and is_readable_by_others(settings.tls_key):
            log.warning(
                "the server's TLS key is readable by other users; restrict its permissions",
                tls_key=str(settings.tls_key),
            )


def _catalog(settings: Settings) -> Catalog:
    kinds = [project(settings.namespace_prefix) if kind is PROJECT else kind for kind in KINDS]
    return Catalog(kinds, settings.api_group)


async def _same_pepper(settings: Settings, store: Sealed, people: Identity) -> None:
    try:
        await agree_on_pepper(store, people.pepper, settings.data / PEPPER_FILE)
    except Unavailable as error:
        raise StartError(str(error)) from None


def _leading(settings: Settings, store: Sealed, registry: Registry, admit: Admission) -> Leading:
    """The leader election if the store is shared between replicas. The leader then writes through a fenced registry."""
    if not is_shared(settings.store_url):
        return Leading(registry, None)
    leader = Leader(registry.of(LEASE), SYSTEM_NAMESPACE, registry.clock, new_identity())
    fenced = Registry(registry.catalog, Fenced(store, leader.fence), registry.view, admit, registry.clock)
    return Leading(fenced, leader)


async def _ensure_namespaces(registry: Registry) -> None:
    namespaces = registry.resource("", "namespaces")
    for name in NAMESPACES:
        annotations = {"annotations": {UNLISTED: USE}} if name == SYSTEM_NAMESPACE else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **annotations}}
        try:
            await namespaces.create(body, "", by_the_server())
        except AlreadyExists:
            continue


def _certificates(settings: Settings) -> Certificates:
    if settings.tls_cert and settings.tls_key:
        return given_certificates(settings.tls_cert, settings.tls_key, settings.tls_ca)
    return ensure_certificates(settings.data / "tls", settings.certificate_names)


@asynccontextmanager
async def _stores(settings: Settings, catalog: Catalog) -> AsyncIterator[Stores]:
    """Opens the store, and wraps it with encryption at rest. Everything else uses the encrypted one."""
    try:
        store = await open_store(settings.store_url)
    except (Unavailable, ValueError) as error:
        raise StartError(str(error)) from None
    try:
        keys = SealKeys(settings.data, os.environ.get(VARIABLE, ""))
        try:
            keyring = await keyring_for(store, keys)
        except Unavailable as error:
            raise StartError(str(error)) from None
        yield Stores(store, Sealed(store, keyring, SecretFields(catalog).holds), keys)
    finally:
        await store.close()


def _port(settings: Settings) -> int:
    try:
        return free_port(settings.listen, settings.port)
    except OSError as error:
        raise StartError(
            f"cannot listen on {settings.listen} port {settings.port}: {error.strerror}; choose another with --port"
        ) from None


def _listening(
    front: Front, settings: Settings, port: int, certificates: Certificates
) -> AbstractAsyncContextManager[int]:
    options = Listening(settings.listen, port, certificates.cert_file, certificates.key_file, settings.shutdown_grace)
    return listening(front, options)


async def _until(stop: asyncio.Event, work: "asyncio.Task[None]") -> None:
    """Waits for `stop`. Background work only ends by an internal error, and then the server stops as well."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, work), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if work.done():
        log.error("background work has failed; stopping the server", exc_info=work.exception())
        work.result()
