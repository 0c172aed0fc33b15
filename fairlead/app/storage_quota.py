"""Builds the quota on stored objects from the settings, and says who is an administrator or a component for it."""

from fairlead.core.call import RequestInfo
from fairlead.core.user import User
from fairlead.features.auth import Auth
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.storage_quota import StorageLimits, StorageQuota, WriterRules
from fairlead.registry.storage_usage import StorageUsage, StoredUsage
from fairlead.settings import Settings
from fairlead.storage.view.view import View

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
