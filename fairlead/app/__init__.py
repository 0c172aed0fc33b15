"""The composition root: settings in, a running server out. Reads like a table of contents.

    identity.py    who people are and what they may do: authenticators and authorizers, in order
    rules.py       the admission rules, in order
    clusters.py    the ways to connected clusters
    for_agents.py  what is done for the agents of clusters
    measuring.py   what is counted
    serving.py     the stages that every request passes, in order, and what stands at their end
    moving.py      what a store holds, as a file and into another store
    background.py  what keeps things true meanwhile: controllers and the like

`agent.py` is another composition: the direct endpoint beside a cluster. The only package that sees every room of the
house; only those commands import it that start a server, or work on a store or on what is built in.
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

# DOC-MERGED core/lasting
# Loading what stays for as long as the process does. Used by `app` around the start of the view, and when it is ready.
#
# Python's collector looks for cycles among everything that was made. While a million objects are loaded it would look
# through them again and again, and afterwards with every full round, and none of them ever is garbage that it could find.
#
# A full round takes up to a microsecond for each object that it looks at, and nothing else runs meanwhile. So rounds are
# made often enough to have little to look at, and what has survived a long one is set aside, too: else a server that is
# given more and more objects would be held up for longer and longer. What is set aside still goes when nobody refers to
# it any more; only a circle of references that is closed already then, and dropped later, stays in memory.


FULL_ROUND_AFTER = 4
"""Middle rounds, each after ten young ones. Python's own ten would leave seventy thousand objects to look at."""
LONG_ROUND_SECONDS = 0.01
"""Processor time of a full round from which on what it has left over is set aside."""


@contextmanager
def lasting() -> Iterator[None]:
    """What is made meanwhile, and all that was there before, is never looked through again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


def keep_everything() -> None:
    """Sets aside all that there is now, and from now on what makes full rounds long: they should only look at what was
    made lately."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_ROUND_AFTER)
    if _full_rounds not in gc.callbacks:
        gc.callbacks.append(_full_rounds)


class FullRounds:
    """Called by the collector before and after each round, in whichever thread it runs."""

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
"""How long the end of the server waits for watches to be told of it; who reads more slowly notices all the same."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A server that answers. `new_key` is the admin's key if this start has made it: it is told once."""

    url: str
    ca_file: Path | None
    new_key: str | None


async def run(settings: Settings, stop: asyncio.Event, ready: Callable[[Started], None]) -> None:
    """Serves until `stop` is set, then ends watches, finishes what is under way and closes the store."""
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
            # Not before all that is stored has been opened with them: others go by what we say.
            await agree_on_active(stores.plain, store.keyring)
        except Unavailable as error:
            raise StartError(str(error)) from None
        people = identity(settings, catalog, view, clock)
        await _same_pepper(settings, store, people)
        chain = admission(settings, people)
        registry = Registry(catalog, store, view, chain, clock)
        chain.look_around_in(registry)
        leading = _leading(settings, store, registry, chain)
        await _ensure_namespaces(registry)
        await ensure_default_roles(registry, settings.api_group)
        await ensure_config(registry, settings.api_group)
        port = _port(settings)
        base_url = settings.base_url(port)
        far = clusters(settings, registry, port)
        unsent = Unsent(settings.body_limit)
        around = Surroundings(audit, store, far.gateways, base_url, commits, Watchdog(), unsent)
        front = Front(handler(settings, registry, people, around), settings.body_limit, unsent)
        async with (
            background(settings, stores, registry, leading, people, far) as begin_work,
            _listening(front, settings, port, certificates),
            running(around.watchdog),
        ):
            # Only a server that answers makes the first key: it is told once, so nothing may fail in between.
            new_key = await ensure_admin(store, view, people.pepper, settings.api_group, clock)
            keep_everything()
            ready(Started(base_url, certificates.ca_file, new_key))
            await _until(stop, begin_work())
            view.end_watches()
            await far.connected.close_all()
            # Whoever watches is told that it is over, before connections are closed.
            await front.finish_streams(min(STREAMS_SECONDS, settings.shutdown_grace))
        await view.stop()


def _own_places(settings: Settings) -> None:
    """Nothing is trusted, or written, that somebody else could change."""
    require_private(private_folder(settings.data))
    place = settings.store_url.removeprefix("sqlite:")
    if place != settings.store_url and Path(place).parent != settings.data:
        require_unchangeable(Path(place).absolute())
    if settings.tls_key is not None:
        require_unchangeable(settings.tls_key)
        if settings.tls_key.exists() and is_readable_by_others(settings.tls_key):
            log.warning("other users may read the server's key; close it to them", tls_key=str(settings.tls_key))


def _catalog(settings: Settings) -> Catalog:
    kinds = [project(settings.namespace_prefix) if kind is PROJECT else kind for kind in KINDS]
    return Catalog(kinds, settings.api_group)


async def _same_pepper(settings: Settings, store: Sealed, people: Identity) -> None:
    try:
        await agree_on_pepper(store, people.pepper, settings.data / PEPPER_FILE)
    except Unavailable as error:
        raise StartError(str(error)) from None


def _leading(settings: Settings, store: Sealed, registry: Registry, admit: Admission) -> Leading:
    """Where other replicas may share the store, what only one may do is done with a registry that is fenced."""
    if not is_shared(settings.store_url):
        return Leading(registry, None)
    leader = Leader(registry.of(LEASE), SYSTEM_NAMESPACE, registry.clock, new_identity())
    fenced = Registry(registry.catalog, Fenced(store, leader.fence), registry.view, admit, registry.clock)
    return Leading(fenced, leader)


async def _ensure_namespaces(registry: Registry) -> None:
    namespaces = registry.resource("", "namespaces")
    for name in NAMESPACES:
        noted = {"annotations": {UNLISTED: USE}} if name == SYSTEM_NAMESPACE else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **noted}}
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
    """The store, and the same with its credentials sealed, which is the one that everything else is given."""
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
    where = Listening(settings.listen, port, certificates.cert_file, certificates.key_file, settings.shutdown_grace)
    return listening(front, where)


async def _until(stop: asyncio.Event, work: "asyncio.Task[None]") -> None:
    """Waits for the order to stop. Background work ends only through a fault of ours, and then so does the server."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, work), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if work.done():
        log.error("background work has failed; the server stops", exc_info=work.exception())
        work.result()
