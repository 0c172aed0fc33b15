"""The path of a request: the stages in order, and what stands at their end."""

from collections.abc import Mapping

from fairlead import __version__
from fairlead.app.identity import Identity
from fairlead.app.rules import SYSTEM_NAMESPACE
from fairlead.authn.login_keys import LoginKeys
from fairlead.authn.password_store import PasswordStore
from fairlead.authn.passwords import Passwords
from fairlead.authn.rotation import Rotation
from fairlead.authn.throttle import Throttle
from fairlead.authz.scope import covers
from fairlead.core.objects import metadata
from fairlead.registry.record import decode
from fairlead.registry.registry import Registry
from fairlead.registry.translate import storage_errors
from fairlead.server.actions import Actions, Handler, Place
from fairlead.server.audit.stage import Audit
from fairlead.server.audit.trail import Trail
from fairlead.server.compress import compressed
from fairlead.server.documents import documents
from fairlead.server.failures import failures
from fairlead.server.health import Health, Probe
from fairlead.server.identify import authenticated, authorized, identification
from fairlead.server.impersonate import Impersonation
from fairlead.server.key_lists import key_list_handlers
from fairlead.server.key_rotation import rotation_handlers
from fairlead.server.login import Login
from fairlead.server.pipeline import Proceed, Stage, pipeline
from fairlead.server.platform import platform_documents
from fairlead.server.profile import Profiles
from fairlead.server.reviews import Sources, review_handlers
from fairlead.server.route import MANAGEMENT
from fairlead.server.selves import Installation, Selves, Tokens, self_handlers
from fairlead.server.serve import Serve, deadline, routed
from fairlead.server.verbs import Verbs
from fairlead.server.watch import Watches, WatchLimits
from fairlead.settings import ON, Settings
from fairlead.storage.contract import Store

MOUNT = "/kubernetes/management"


class Signing:
    """Signing in with a password, and what users see of themselves: both need the same passwords and patience."""

    def __init__(self, settings: Settings, registry: Registry, identity: Identity) -> None:
        group, throttle = settings.api_group, Throttle(registry.clock)
        logins = LoginKeys(registry, group, settings.login_key_ttl)
        passwords = PasswordStore(registry, group, Passwords(), logins)
        self.login = Login(passwords, logins, throttle, settings.password_login == ON, settings.public_url)
        self.profiles = Profiles(registry, group, passwords, throttle, identity.may)


def handler(
    settings: Settings, registry: Registry, store: Store, identity: Identity, audit: tuple[Audit, Trail] | None
) -> Proceed:
    """Everything that a request passes, as one function."""
    signing = Signing(settings, registry, identity)
    limits = WatchLimits(
        settings.watch_timeout_min, settings.watch_queue, settings.watches_max, settings.watches_per_key
    )
    actions = Actions(registry.catalog, _handlers(settings, registry, identity, signing))
    verbs = Verbs(registry, Watches(limits, registry.clock), actions)
    roots = {
        MANAGEMENT: documents(registry.catalog, MOUNT, version=__version__),
        "": platform_documents(__version__, MOUNT),
    }
    health = Health(_probes(store, audit))
    return pipeline(_stages(settings, identity, audit), Serve(verbs, health, roots, signing.login.endpoints()))


def _stages(settings: Settings, identity: Identity, audit: tuple[Audit, Trail] | None) -> tuple[Stage, ...]:
    permissions = identity.permissions
    impersonation = Impersonation(permissions.decide, identity.people.user_named)
    identify = identification(identity.authenticators, impersonation)
    return (
        compressed,
        *((audit[0].recorded,) if audit else ()),
        failures,
        deadline(settings.request_timeout),
        routed(MOUNT),
        authenticated(identify, identity.activity.note),
        authorized(permissions, identify),
        *((audit[0].accountable,) if audit else ()),
    )


def _handlers(settings: Settings, registry: Registry, identity: Identity, signing: Signing) -> Mapping[Place, Handler]:
    """Who answers what is not stored."""
    group, prefix = settings.api_group, settings.namespace_prefix
    selves = Selves(registry, group, identity.keys.identity, Installation(_installation_id(registry), prefix))
    rbac, people, keys = identity.rbac, identity.people, identity.keys
    sources = Sources(
        registry.catalog,
        identity.permissions,
        rbac.rules_for,
        people.user_named,
        keys.identity,
        selves.inspect,
        identity.allowing_entry,
    )
    return {
        **self_handlers(group, selves, Tokens(identity.authenticators)),
        **review_handlers(group, sources),
        **key_list_handlers(group, registry),
        **rotation_handlers(group, Rotation(registry, group, identity.pepper, covers)),
        (group, "users", "profile"): signing.profiles,
    }


def _installation_id(registry: Registry) -> str:
    """Whoever was here first: the namespace that comes with every installation and never goes."""
    entry = registry.resource("", "namespaces").peek("", SYSTEM_NAMESPACE)
    return str(metadata(decode(entry))["uid"]) if entry is not None else ""


def _probes(store: Store, audit: tuple[Audit, Trail] | None) -> Mapping[str, Probe]:
    async def store_ready() -> None:
        with storage_errors():
            await store.check()

    return {"store": store_ready, **({"audit": audit[1].check} if audit else {})}
