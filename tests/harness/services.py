"""The services and features of a server that listens on no port, on virtual time. No controller and no task runs."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fairlead.admission import AdmissionChain
from fairlead.app.auth import build_auth
from fairlead.app.background import LeaderElection
from fairlead.app.features import build_features
from fairlead.app.link_hubs import LinkHubs
from fairlead.app.services import OpenedServices, build_services
from fairlead.app.stores import StoreStack
from fairlead.core.crypto.encryption import EncryptionKey, EncryptionKeyFile, Keyring
from fairlead.features.contract import Feature, Services
from fairlead.kinds import KINDS
from fairlead.registry.codec import entry_builder
from fairlead.registry.kind import Catalog, Kind
from fairlead.registry.registry import Registry
from fairlead.registry.secret_fields import SensitiveFieldIndex
from fairlead.settings import Settings
from fairlead.storage.encrypted import EncryptedStore
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from fairlead.subresources.agents.hub import AgentHub
from fairlead.subresources.workspaces.hub import RunnerHub
from tests.harness.virtual_time import LoopClock


@dataclass(frozen=True, slots=True)
class ServicesFixture:
    """`store` is the raw store."""

    store: MemoryStore
    services: Services
    features: Feature


@asynccontextmanager
async def open_services(settings: Settings, kinds: Sequence[Kind] = KINDS) -> AsyncIterator[ServicesFixture]:
    """A new installation, without any object."""
    clock = LoopClock()
    catalog = Catalog(kinds, settings.api_group)
    store = MemoryStore()
    keyring = Keyring([EncryptionKey("tests", bytes(32))], "tests")
    encrypted = EncryptedStore(store, keyring, SensitiveFieldIndex(catalog).may_contain)
    view = View(encrypted, entry_builder(catalog))
    await view.start()
    try:
        auth = build_auth(settings, catalog, view, clock)
        chain = AdmissionChain()
        registry = Registry(catalog, encrypted, view, chain, clock)
        opened = OpenedServices(
            stores=StoreStack(store, encrypted, EncryptionKeyFile(settings.data)),
            coordinator=None,
            audit=None,
            hubs=LinkHubs(RunnerHub(clock, "server"), AgentHub(clock, "server")),
        )
        services = build_services(settings, opened, registry, auth, LeaderElection(registry, None), 8443)
        features = build_features(services)
        chain.bind(registry, features.admission_rules())
        yield ServicesFixture(store, services, features)
    finally:
        await view.stop()
        await store.close()
