"""Access keys: creation, limits, rotation, expiry and last use. Also the keys of agents and runners."""

from fairlead.admission import Phase
from fairlead.admission.access_key_limits import KeyLimits, enforce_key_limits
from fairlead.admission.access_keys import (
    KeyIssuer,
    issue_access_key,
    restrict_cooldown_label,
    store_component_key,
)
from fairlead.authn.access_keys import ACCESS_KEYS, generate_key
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authz.scope import is_superset
from fairlead.controllers.access.access_keys import AccessKeyController
from fairlead.controllers.runtime.loop import Controller
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.features.core_objects import COMPONENTS
from fairlead.kinds.access.components import Component
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.subresources.credentials import key_list_handlers, rotation_handlers


def build_access_keys_feature(services: Services) -> Feature:
    settings = services.settings
    auth = services.auth
    registry = services.registry
    group = services.api_group
    issuer = KeyIssuer(auth.pepper, generate_key, is_superset, auth.dynamic_config.access_key_max_ttl)
    limits = KeyLimits.for_count(settings.access_keys_per_owner)
    if services.coordinator is not None:
        auth.last_used.share_with(services.coordinator.exchange("uses of keys", auth.last_used.merge))

    async def record_last_uses() -> None:
        await auth.last_used.run(registry.resource(group, ACCESS_KEYS))

    def build_controllers(leader: LeaderServices) -> tuple[Controller, ...]:
        controller = AccessKeyController(
            leader.registry,
            group,
            settings.access_key_retention,
            auth.last_used.last_use,
            auth.other_admin_access,
        )
        return (controller,)

    return Feature(
        name="access keys",
        handlers={
            **key_list_handlers(group, registry),
            **rotation_handlers(group, KeyRotator(registry, group, auth.pepper, is_superset)),
        },
        admission={
            Phase.COMPLETE: (
                issue_access_key(issuer, group),
                restrict_cooldown_label(group),
                enforce_key_limits(group, limits),
                store_component_key(group, SYSTEM_NAMESPACE, COMPONENTS),
            ),
        },
        controllers=build_controllers,
        tasks=(record_last_uses,),
    )


def build_component_keys(services: Services, registry: Registry, component: Component) -> ComponentKeys:
    """The keys of agents or runners. The server keeps their values in Secrets, so that they can be read again."""
    pepper = services.auth.pepper
    group = services.api_group
    return ComponentKeys(
        registry=registry,
        api_group=group,
        component=component,
        namespace=SYSTEM_NAMESPACE,
        pepper=pepper,
        rotator=KeyRotator(registry, group, pepper, is_superset),
    )
