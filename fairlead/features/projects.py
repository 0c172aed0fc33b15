"""Projects: their namespaces, what may be used in them, and how much."""

from fairlead.admission import Phase
from fairlead.admission.allow_lists import ClusterUseCheck, check_listed_clusters, unlisted_cluster_policy
from fairlead.admission.namespaces import manage_project_namespace
from fairlead.admission.projects import check_project_fields, enforce_allow_lists, require_active_project
from fairlead.admission.protected_fields import protect_ownership_labels
from fairlead.admission.quotas import enforce_quotas
from fairlead.controllers.projects.projects import ProjectController
from fairlead.features.contract import Feature, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.subresources.projects import project_handlers, usage_handlers


def build_projects_feature(services: Services) -> Feature:
    settings = services.settings
    auth = services.auth
    group = services.api_group
    prefix = settings.namespace_prefix
    unlisted = unlisted_cluster_policy(settings.unlisted_clusters, SYSTEM_NAMESPACE)
    cluster_use = ClusterUseCheck(auth.authorize, unlisted, group)
    return Feature(
        name="projects",
        handlers={
            **project_handlers(group, services.registry, auth.principals, auth.authorize),
            **usage_handlers(group, services.registry, prefix),
        },
        admission={
            Phase.PLACE: (require_active_project(group, prefix),),
            Phase.COMPLETE: (
                manage_project_namespace(prefix, group),
                protect_ownership_labels(prefix),
            ),
            Phase.CHECK: (
                check_listed_clusters(cluster_use),
                check_project_fields(group),
                enforce_allow_lists(group, prefix, cluster_use),
            ),
            Phase.FINISH: (enforce_quotas(group, prefix),),
        },
        controllers=lambda leader: (ProjectController(leader.registry, group, prefix),),
    )
