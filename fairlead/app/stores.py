"""Opens the store of the server with encryption at rest, and loads the view from it. Also the quota on objects."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from fairlead.app.garbage_collection import frozen_gc
from fairlead.app.worker_limits import history_bytes
from fairlead.app.workers.context import WorkerContext
from fairlead.core.call import RequestInfo
from fairlead.core.crypto.encryption import EncryptionKeyFile
from fairlead.core.user import User
from fairlead.features.auth import Auth
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.codec import entry_builder
from fairlead.registry.kind import Catalog
from fairlead.registry.quota.enforcement import StorageLimits, StorageQuota, WriterRules
from fairlead.registry.quota.usage import StorageUsage, StoredUsage
from fairlead.registry.secret_fields import SensitiveFieldIndex
from fairlead.server.metrics.exposition import Histogram
from fairlead.server.metrics.families import new_commit_histogram
from fairlead.settings import Settings, StartError, read_variable
from fairlead.storage.contract import Store, StoreUnavailable
from fairlead.storage.encrypted import EncryptedStore, load_keyring, publish_active_key
from fairlead.storage.open import open_store
from fairlead.storage.reencrypt import reload_keys
from fairlead.storage.socket import SocketStore
from fairlead.storage.view.view import View


@dataclass(frozen=True, slots=True)
class StoreStack:
    """The raw store, the wrapper that encrypts credentials at rest, and its encryption keys."""

    raw: Store
    encrypted: EncryptedStore
    key_file: EncryptionKeyFile
    commit_seconds: Histogram = field(default_factory=new_commit_histogram)
    """How long commits take."""


@asynccontextmanager
async def open_stores(settings: Settings, catalog: Catalog, worker: WorkerContext | None) -> AsyncIterator[StoreStack]:
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
        stores = StoreStack(store, encrypted, keys)
        encrypted.on_commit = stores.commit_seconds.observe
        yield stores
    finally:
        await store.close()


async def _open_store(settings: Settings, worker: WorkerContext | None) -> Store:
    """The store itself, or a connection to the process that has opened it."""
    if worker is None or worker.sockets.store is None:
        return await open_store(settings.store_url)
    return await SocketStore.connect(worker.sockets.store, worker.revision)


async def load_view(stores: StoreStack, catalog: Catalog, worker_count: int, usage: StorageUsage) -> View:
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


_EVERYTHING = RequestInfo("*", group="*", version="*", resource="*")
_COMPONENT_GROUPS = frozenset({RUNNER_COMPONENT.group, AGENT.group})


def build_storage_quota(settings: Settings, auth: Auth, view: View, usage: StorageUsage) -> StorageQuota:
    limits = StorageLimits(
        StoredUsage(settings.stored_objects_per_namespace, settings.stored_bytes_per_namespace),
        StoredUsage(settings.stored_objects_per_user, settings.stored_bytes_per_user),
    )

    def is_privileged(user: User) -> bool:
        """Administrators, also those by a binding to cluster-admin: they can raise the limits anyway."""
        return user.is_unscoped_admin or auth.authorize(user, _EVERYTHING).allowed

    def is_component(user: User) -> bool:
        return not _COMPONENT_GROUPS.isdisjoint(user.groups)

    return StorageQuota(view, usage, settings.api_group, limits, WriterRules(is_privileged, is_component))
