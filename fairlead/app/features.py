"""All features of the server, in order, and the loop that joins them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from fairlead.admission import Phase
from fairlead.controllers.runtime.loop import Controller
from fairlead.features.access_keys import build_access_keys_feature
from fairlead.features.apps import build_apps_feature
from fairlead.features.audit import build_audit_feature
from fairlead.features.clusters import build_agents_feature, build_clusters_feature, build_local_cluster_feature
from fairlead.features.console import build_console_feature
from fairlead.features.contract import Feature, LeaderServices, Services
from fairlead.features.core_objects import build_core_objects_feature
from fairlead.features.instances import build_instances_feature, build_migration_feature, build_templates_feature
from fairlead.features.logins import build_cli_logins_feature, build_passwords_feature
from fairlead.features.metrics import build_metrics_feature
from fairlead.features.permissions import build_permissions_feature, build_users_feature
from fairlead.features.projects import build_projects_feature
from fairlead.features.settings_list import build_settings_list_feature
from fairlead.features.single_sign_on import build_single_sign_on_feature
from fairlead.features.tokens import build_direct_tokens_feature, build_service_accounts_feature
from fairlead.features.workload_identity import build_workload_identity_feature
from fairlead.features.workspaces import build_workspaces_feature
from fairlead.settings import Settings
from fairlead.settings.values import ON

FeatureBuilder = Callable[[Services], Feature]
K = TypeVar("K")
V = TypeVar("V")

FEATURES: tuple[FeatureBuilder, ...] = (
    build_metrics_feature,
    build_core_objects_feature,
    build_projects_feature,
    build_users_feature,
    build_access_keys_feature,
    build_single_sign_on_feature,
    build_workload_identity_feature,
    build_passwords_feature,
    build_settings_list_feature,
    build_cli_logins_feature,
    build_permissions_feature,
    build_direct_tokens_feature,
    build_service_accounts_feature,
    build_clusters_feature,
    build_local_cluster_feature,
    build_agents_feature,
    build_instances_feature,
    build_apps_feature,
    build_templates_feature,
    build_workspaces_feature,
    build_migration_feature,
    build_audit_feature,
    build_console_feature,
)
"""The order is that of the admission rules within each phase; a test shows the resulting order of all rules."""

SWITCHES: Mapping[FeatureBuilder, Callable[[Settings], bool]] = {
    build_local_cluster_feature: lambda settings: bool(settings.local_cluster),
    build_console_feature: lambda settings: settings.console == ON,
}
"""The features that are only built if a setting says so."""


def enabled_features(settings: Settings) -> tuple[FeatureBuilder, ...]:
    return tuple(build for build in FEATURES if build not in SWITCHES or SWITCHES[build](settings))


def build_features(services: Services) -> Feature:
    """Everything that the enabled features add to the server."""
    return join_features([build(services) for build in enabled_features(services.settings)])


def join_features(features: Sequence[Feature]) -> Feature:
    """Raises ValueError if two features add the same path, also if one of them makes it public and the other does not:
    the public one would be served, without authentication."""
    endpoints = _join((each.name, each.endpoints) for each in features)
    public_endpoints = _join((each.name, each.public_endpoints) for each in features)
    for path in endpoints.keys() & public_endpoints.keys():
        raise ValueError(f"{path} is in the endpoints of a feature and in the public endpoints of a feature")

    def build_controllers(leader: LeaderServices) -> Sequence[Controller]:
        return [controller for each in features for controller in each.controllers(leader)]

    return Feature(
        name="all features",
        handlers=_join((each.name, each.handlers) for each in features),
        endpoints=endpoints,
        public_endpoints=public_endpoints,
        grants=_join((each.name, each.grants) for each in features),
        find_mounts=[find for each in features for find in each.find_mounts],
        host_pipelines=[pipeline for each in features for pipeline in each.host_pipelines],
        mounts=_join((each.name, each.mounts) for each in features),
        public_stages=_join((each.name, each.public_stages) for each in features),
        admission={phase: [rule for each in features for rule in each.admission.get(phase, ())] for phase in Phase},
        controllers=build_controllers,
        leader_tasks=[task for each in features for task in each.leader_tasks],
        tasks=[task for each in features for task in each.tasks],
        metrics=[source for each in features for source in each.metrics],
        health_checks=_join((each.name, each.health_checks) for each in features),
    )


def _join(additions: Iterable[tuple[str, Mapping[K, V]]]) -> Mapping[K, V]:
    joined: dict[K, V] = {}
    for feature, added in additions:
        for key in added.keys() & joined.keys():
            raise ValueError(f"the feature {feature} adds {key}, which another feature has added already")
        joined.update(added)
    return joined
