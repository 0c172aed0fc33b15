"""The objects of Kubernetes itself: namespaces, Secrets and Leases of the server, owner references, Events."""

from fairlead.admission import Phase
from fairlead.admission.namespaces import protect_system_namespaces, require_active_namespace
from fairlead.admission.owners_and_finalizers import (
    ProtectedObjects,
    check_block_owner_deletion,
    protect_metadata,
    touch_movable_owner,
)
from fairlead.admission.protected_fields import protect_server_leases, protect_server_secrets, protect_status
from fairlead.admission.quotas import release_storage_locks
from fairlead.admission.references import warn_missing_references
from fairlead.controllers.core.event_ttl import EventTtlController
from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.controllers.core.namespaces import NamespaceController
from fairlead.controllers.runtime.loop import Controller
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.kinds.core.namespace import BUILTIN_NAMESPACES, SYSTEM_NAMESPACE

COMPONENTS = (RUNNER_COMPONENT, AGENT)
"""The programs that have access keys of their own, which the server keeps in Secrets."""


def build_core_objects_feature(services: Services) -> Feature:
    settings = services.settings
    group = services.api_group
    prefix = settings.namespace_prefix
    authorize = services.auth.authorize

    def build_controllers(leader: LeaderServices) -> tuple[Controller, ...]:
        return (
            NamespaceController(leader.registry),
            EventTtlController(leader.registry, settings.event_ttl),
            GarbageCollector(leader.registry),
        )

    return Feature(
        name="core objects",
        admission={
            Phase.PLACE: (require_active_namespace,),
            Phase.PROTECT: (
                protect_server_secrets(SYSTEM_NAMESPACE, COMPONENTS),
                protect_server_leases(SYSTEM_NAMESPACE),
                protect_status(group),
                protect_system_namespaces(BUILTIN_NAMESPACES),
                protect_metadata(authorize, ProtectedObjects(prefix, BUILTIN_NAMESPACES, SYSTEM_NAMESPACE)),
            ),
            Phase.CHECK: (
                check_block_owner_deletion(authorize),
                touch_movable_owner(group),
            ),
            Phase.FINISH: (
                warn_missing_references(authorize, group, prefix),
                release_storage_locks(group, COMPONENTS),
            ),
        },
        controllers=build_controllers,
        tasks=(services.registry.view.warm_selector_fields,),
    )
