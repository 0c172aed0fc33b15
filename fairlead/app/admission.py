"""Builds the admission chain: all rules, in order."""

from fairlead.admission import Chain
from fairlead.admission.access_key_limits import KeyLimits, own_keys
from fairlead.admission.access_keys import Mint, component_keys, minting
from fairlead.admission.allow_lists import ClusterUse, listed_clusters, unlisted_clusters
from fairlead.admission.escalation import Names, Standing, escalation, granting
from fairlead.admission.instances import abandoning, instance_reach, instances
from fairlead.admission.namespaces import lasting_namespaces, living_namespace, project_namespace
from fairlead.admission.owner_references import attaching, block_owner_deletion
from fairlead.admission.projects import allowed, living_project
from fairlead.admission.protected_fields import ownership_marks, reported_status, servers_own
from fairlead.admission.protected_objects import Protected, protected_objects
from fairlead.admission.quotas import quotas
from fairlead.admission.secret_refs import cluster_secret, virtual_cluster_secret
from fairlead.admission.templates import parameters, template_trust, templates_in_use
from fairlead.admission.users import identities, password_secret
from fairlead.app.auth import Identity
from fairlead.authn.access_keys import new_key
from fairlead.authz.name_index import owns
from fairlead.authz.scope import covers
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.settings import Settings
from fairlead.upstream import kubeconfig

SYSTEM_NAMESPACE = "service-system"
NAMESPACES = ("default", SYSTEM_NAMESPACE)
"""Namespaces that always exist: the default one, and the one for the server's own objects."""


def admission(settings: Settings, identity: Identity) -> Chain:
    group, prefix = settings.api_group, settings.namespace_prefix
    unlisted = unlisted_clusters(settings.unlisted_clusters, SYSTEM_NAMESPACE)
    cluster_use = ClusterUse(identity.may, unlisted, group)
    return Chain(
        (
            living_namespace,
            servers_own,
            reported_status(group),
            living_project(group, prefix),
            lasting_namespaces(NAMESPACES),
            # Before `project_namespace`, which sets a finalizer.
            protected_objects(identity.may, Protected(prefix, NAMESPACES, SYSTEM_NAMESPACE)),
            project_namespace(prefix, group),
            abandoning(identity.may, group),
            ownership_marks(prefix),
            identities(identity.may, group),
            minting(Mint(identity.pepper, new_key, covers, identity.run_time.access_key_max_ttl), group),
            own_keys(group, KeyLimits(settings.access_keys_per_owner, settings.access_key_bytes_per_owner)),
            password_secret(identity.may, identity.is_administrator, SYSTEM_NAMESPACE),
            component_keys(group, SYSTEM_NAMESPACE, (RUNNER_COMPONENT, AGENT)),
            escalation(identity.may, identity.rbac),
            instances(identity.may, group, prefix),  # before the grant checks, which read the owner set here
            granting(Standing(identity.may, identity.inside, owns, identity.members.is_member), Names(group, prefix)),
            cluster_secret(identity.may, group, SYSTEM_NAMESPACE, kubeconfig.problems),
            virtual_cluster_secret(identity.may, group),
            instance_reach(identity.may, group, frozenset(settings.space_roles)),
            block_owner_deletion(identity.may),
            attaching(group),
            listed_clusters(cluster_use),
            allowed(group, prefix, cluster_use),
            parameters(group),
            template_trust(group),
            templates_in_use(identity.may, group),
            quotas(group, prefix),  # last: usage counts for the owner that other rules set
        )
    )
