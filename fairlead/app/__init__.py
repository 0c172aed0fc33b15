"""The composition root: settings in, a running server out. Reads like a table of contents.

The only module that sees every room of the house; only `cli/up.py` and `cli/serve.py` import it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from fairlead import __version__
from fairlead.admission.block_owner_deletion import block_owner_deletion
from fairlead.admission.chain import Chain
from fairlead.admission.lasting_namespaces import lasting_namespaces
from fairlead.admission.living_namespace import living_namespace
from fairlead.admission.project_namespace import project_namespace
from fairlead.authn.accesskeys import ACCESS_KEYS, USERS, AccessKeys
from fairlead.authn.first_admin import ensure_admin, load_pepper
from fairlead.authz.chain import Decision, administrators, authorize
from fairlead.controllers.expiry import Expiry
from fairlead.controllers.garbage import Garbage
from fairlead.controllers.loop import Controller, run_all
from fairlead.controllers.namespaces import Namespaces
from fairlead.controllers.projects import Projects
from fairlead.core.call import Target
from fairlead.core.certificates import Certificates, ensure_certificates, given_certificates
from fairlead.core.clock import Clock, SystemClock
from fairlead.core.errors import AlreadyExists
from fairlead.core.files import private_folder
from fairlead.core.user import CONTROLLER, User
from fairlead.kinds import KINDS
from fairlead.kinds.project import PROJECT, project
from fairlead.registry.catalog import Catalog
from fairlead.registry.following import Following
from fairlead.registry.record import finisher
from fairlead.registry.registry import Registry
from fairlead.registry.translate import storage_errors
from fairlead.registry.writing import Writing
from fairlead.server.compress import compressed
from fairlead.server.documents import documents
from fairlead.server.failures import failures
from fairlead.server.health import Health
from fairlead.server.identify import authenticated, authorized
from fairlead.server.pipeline import Proceed, pipeline
from fairlead.server.platform import platform_documents
from fairlead.server.route import MANAGEMENT
from fairlead.server.rsgi import Front, Listening, free_port, listening
from fairlead.server.serve import Serve, deadline, routed
from fairlead.server.verbs import Verbs
from fairlead.server.watch import WatchLimits
from fairlead.settings import Settings, StartError
from fairlead.storage.contract import Store, Unavailable
from fairlead.storage.open import open_store
from fairlead.storage.retention import keep_history
from fairlead.storage.view import View

MOUNT = "/kubernetes/management"
NAMESPACES = ("default", "service-system")
"""Namespaces that are always there: for objects that need one, and for the server's own."""

AUTHORIZERS = (administrators,)
COMPACT_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A server that answers. `new_key` is the admin's key if this start has made it: it is told once."""

    url: str
    ca_file: Path | None
    new_key: str | None


async def run(settings: Settings, stop: asyncio.Event, ready: Callable[[Started], None]) -> None:
    """Serves until `stop` is set, then ends watches, finishes what is under way and closes the store."""
    clock = SystemClock()
    private_folder(settings.data)
    async with _store(settings) as store:
        certificates = _certificates(settings)
        catalog = _catalog(settings)
        view = View(store, finisher(catalog))
        await view.start()
        registry = _registry(settings, catalog, store, view, clock)
        keys_exist = bool(view.count(settings.api_group, ACCESS_KEYS))
        pepper = load_pepper(settings.data / "pepper.key", keys_exist=keys_exist)
        await _ensure_namespaces(registry)
        keys = AccessKeys(
            Following(view, settings.api_group, ACCESS_KEYS), Following(view, settings.api_group, USERS), pepper
        )
        front = Front(_pipeline(settings, registry, store, keys), settings.body_limit)
        async with (
            _background(settings, store, registry) as background,
            _listening(front, settings, certificates) as port,
        ):
            # Only a server that answers makes the first key: it is told once, so nothing may fail in between.
            new_key = await ensure_admin(store, view, pepper, settings.api_group, clock)
            ready(Started(settings.base_url(port), certificates.ca_file, new_key))
            await _until(stop, background)
            view.end_watches()
        await view.stop()


def _catalog(settings: Settings) -> Catalog:
    kinds = [project(settings.namespace_prefix) if kind is PROJECT else kind for kind in KINDS]
    return Catalog(kinds, settings.api_group)


def _registry(settings: Settings, catalog: Catalog, store: Store, view: View, clock: Clock) -> Registry:
    admission = Chain(
        (
            living_namespace,
            lasting_namespaces(NAMESPACES),
            project_namespace(settings.namespace_prefix, settings.api_group),
            block_owner_deletion(_may),
        )
    )
    registry = Registry(catalog, store, view, admission, clock)
    admission.look_around_in(registry)
    return registry


def _may(user: User, target: Target) -> Decision:
    """What the rules ask: the same as if the user had sent such a request."""
    return authorize(AUTHORIZERS, user, replace(target, root=MANAGEMENT))


def _pipeline(settings: Settings, registry: Registry, store: Store, keys: AccessKeys) -> Proceed:
    async def store_ready() -> None:
        with storage_errors():
            await store.check()

    stages = (
        compressed,
        failures,
        deadline(settings.request_timeout),
        routed(MOUNT),
        authenticated((keys,)),
        authorized(AUTHORIZERS),
    )
    verbs = Verbs(registry, WatchLimits(settings.watch_timeout_min, settings.watch_queue))
    roots = {
        MANAGEMENT: documents(registry.catalog, MOUNT, version=__version__),
        "": platform_documents(__version__, MOUNT),
    }
    return pipeline(stages, Serve(verbs, Health({"store": store_ready}), roots))


def _controllers(settings: Settings, registry: Registry) -> tuple[Controller, ...]:
    return (
        Namespaces(registry),
        Projects(registry, settings.api_group, settings.namespace_prefix),
        Expiry(registry, settings.event_ttl),
        Garbage(registry),
    )


async def _ensure_namespaces(registry: Registry) -> None:
    namespaces = registry.resource("", "namespaces")
    for name in NAMESPACES:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await namespaces.create(body, "", Writing(CONTROLLER, "fairlead"))
        except AlreadyExists:
            continue


def _certificates(settings: Settings) -> Certificates:
    if settings.tls_cert and settings.tls_key:
        return given_certificates(settings.tls_cert, settings.tls_key, settings.tls_ca)
    return ensure_certificates(settings.data / "tls", settings.certificate_names)


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Store]:
    try:
        store = await open_store(settings.store_url)
    except (Unavailable, ValueError) as error:
        raise StartError(str(error)) from None
    try:
        yield store
    finally:
        await store.close()


def _listening(front: Front, settings: Settings, certificates: Certificates) -> AbstractAsyncContextManager[int]:
    try:
        port = free_port(settings.listen, settings.port)
    except OSError as error:
        raise StartError(
            f"cannot listen on {settings.listen} port {settings.port}: {error.strerror}; choose another with --port"
        ) from None
    where = Listening(settings.listen, port, certificates.cert_file, certificates.key_file, settings.shutdown_grace)
    return listening(front, where)


@asynccontextmanager
async def _background(settings: Settings, store: Store, registry: Registry) -> AsyncIterator["asyncio.Task[None]"]:
    """What keeps things true meanwhile: the controllers, and compaction of the history."""

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_all(_controllers(settings, registry), registry.view, registry.clock))
            group.create_task(
                keep_history(
                    store,
                    seconds=settings.history_seconds,
                    revisions=settings.history_revisions,
                    every=COMPACT_SECONDS,
                    on_compacted=registry.view.forget,
                )
            )

    task = asyncio.create_task(work(), name="background")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until(stop: asyncio.Event, background: "asyncio.Task[None]") -> None:
    """Waits for the order to stop. Background work ends only through a fault of ours, and then so does the server."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, background), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if background.done():
        log.error("background work has failed; the server stops", exc_info=background.exception())
        background.result()
