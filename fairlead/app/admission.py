"""Builds the admission chain: all rules, in order."""

from fairlead.admission import AdmissionChain, Rule
from fairlead.admission.access_key_limits import KeyLimits, enforce_key_limits
from fairlead.admission.access_keys import KeyIssuer, issue_access_key, store_component_key
from fairlead.admission.allow_lists import ClusterUseCheck, check_listed_clusters, unlisted_cluster_policy
from fairlead.admission.apps import check_app_instances
from fairlead.admission.escalation import GrantChecks, ResourceNaming, check_grants, prevent_escalation
from fairlead.admission.instance_owners import OwnerChecks, keep_instance_owner, require_owner_consent
from fairlead.admission.instances import (
    check_abandon,
    default_instance_owner,
    restrict_remote_access,
    warn_outside_of_projects,
)
from fairlead.admission.namespaces import manage_project_namespace, protect_system_namespaces, require_active_namespace
from fairlead.admission.owners_and_finalizers import (
    ProtectedObjects,
    check_block_owner_deletion,
    protect_metadata,
    touch_movable_owner,
)
from fairlead.admission.presets import apply_presets, check_presets
from fairlead.admission.project_fields import check_project_fields
from fairlead.admission.projects import enforce_allow_lists, require_active_project
from fairlead.admission.protected_fields import protect_ownership_labels, protect_status
from fairlead.admission.quotas import enforce_quotas
from fairlead.admission.references import warn_missing_references
from fairlead.admission.runners import (
    prevent_runner_deletion_while_used,
    protect_cluster_ref,
    protect_runner_endpoint,
)
from fairlead.admission.secret_references import WriterChecks, record_secret_writers
from fairlead.admission.secret_refs import check_cluster_secret, check_virtual_cluster_secret
from fairlead.admission.server_objects import protect_server_leases, protect_server_secrets
from fairlead.admission.sign_in_settings import protect_sign_in_settings
from fairlead.admission.storage_locks import release_storage_locks
from fairlead.admission.template_apps import require_app_use
from fairlead.admission.templates import check_parameters, mark_trusted_templates, prevent_deletion_while_used
from fairlead.admission.trusted_clusters import protect_trusted_clusters
from fairlead.admission.users import check_users_and_teams, protect_password_secret
from fairlead.admission.workspace_templates import restrict_workspace_templates, warn_about_workspace_templates
from fairlead.app.auth import Auth
from fairlead.authn.access_keys import generate_key
from fairlead.authz.name_index import owns
from fairlead.authz.scope import is_superset
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.settings import Settings
from fairlead.upstream import kubeconfig

SYSTEM_NAMESPACE = "service-system"
BUILTIN_NAMESPACES = ("default", SYSTEM_NAMESPACE)
"""Namespaces that always exist: the default one, and the one for the server's own objects."""
COMPONENTS = (RUNNER_COMPONENT, AGENT)


def build_admission(settings: Settings, auth: Auth) -> AdmissionChain:
    group, prefix = settings.api_group, settings.namespace_prefix
    unlisted = unlisted_cluster_policy(settings.unlisted_clusters, SYSTEM_NAMESPACE)
    cluster_use = ClusterUseCheck(auth.authorize, unlisted, group)
    return AdmissionChain(
        (
            require_active_namespace,
            protect_server_secrets(SYSTEM_NAMESPACE, COMPONENTS),
            protect_server_leases(SYSTEM_NAMESPACE),
            protect_status(group),
            require_active_project(group, prefix),
            protect_system_namespaces(BUILTIN_NAMESPACES),
            # Before `manage_project_namespace`, which sets a finalizer.
            protect_metadata(auth.authorize, ProtectedObjects(prefix, BUILTIN_NAMESPACES, SYSTEM_NAMESPACE)),
            manage_project_namespace(prefix, group),
            check_abandon(auth.authorize, group),
            protect_ownership_labels(prefix),
            check_users_and_teams(auth.authorize, auth.is_admin_user, group),
            issue_access_key(
                KeyIssuer(auth.pepper, generate_key, is_superset, auth.dynamic_config.access_key_max_ttl), group
            ),
            enforce_key_limits(group, KeyLimits(settings.access_keys_per_owner, settings.access_key_bytes_per_owner)),
            protect_sign_in_settings(group),
            protect_trusted_clusters(group, SYSTEM_NAMESPACE, auth.dynamic_config.workload_identity),
            protect_password_secret(auth.authorize, auth.is_admin_user, SYSTEM_NAMESPACE),
            store_component_key(group, SYSTEM_NAMESPACE, COMPONENTS),
            prevent_escalation(auth.authorize, auth.rbac),
            apply_presets(group, prefix),  # before all rules about what a workspace uses
            keep_instance_owner(group),
            # Before the grant checks, which read the owner set here.
            default_instance_owner(auth.authorize, group, prefix),
            check_grants(
                GrantChecks(auth.authorize, auth.is_within_scope, owns, auth.project_members.is_member),
                ResourceNaming(group, prefix),
            ),
            *_owner_rules(auth, group),
            check_cluster_secret(auth.authorize, group, SYSTEM_NAMESPACE, kubeconfig.kubeconfig_problems),
            check_virtual_cluster_secret(auth.authorize, group, kubeconfig.kubeconfig_problems),
            restrict_remote_access(auth.authorize, group, frozenset(settings.space_roles)),
            protect_runner_endpoint(auth.authorize, group),
            protect_cluster_ref(group),  # after `protect_metadata`, too: it sets a finalizer
            check_block_owner_deletion(auth.authorize),
            touch_movable_owner(group),
            check_listed_clusters(cluster_use),
            check_project_fields(group),
            enforce_allow_lists(group, prefix, cluster_use),
            warn_outside_of_projects(group, prefix),
            check_parameters(group),
            check_presets(group),
            check_app_instances(auth.authorize, group),
            require_app_use(auth.authorize, group),
            restrict_workspace_templates(group),
            mark_trusted_templates(group),
            warn_about_workspace_templates(group),  # after the rule that decides about trust
            prevent_deletion_while_used(auth.authorize, group),
            prevent_runner_deletion_while_used(auth.authorize, group),
            warn_missing_references(auth.authorize, group, prefix),  # after the rules that set an owner
            release_storage_locks(group, (RUNNER_COMPONENT, AGENT)),
            enforce_quotas(group, prefix),  # last: usage counts for the owner that other rules set
        )
    )


def _owner_rules(auth: Auth, group: str) -> tuple[Rule, ...]:
    """The rules about the owners of instances, and about the secrets that these may use."""
    owners = OwnerChecks(auth.authorize, owns, auth.secret_access.may_own)
    writers = WriterChecks(auth.authorize, auth.is_within_scope, owns, auth.secret_access.writer_may_use)
    return require_owner_consent(owners, group), record_secret_writers(writers, group)
