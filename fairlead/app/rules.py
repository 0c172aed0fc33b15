"""The admission rules, in order."""

from fairlead.admission.abandoning import abandoning
from fairlead.admission.allowed import allowed
from fairlead.admission.attaching import attaching
from fairlead.admission.block_owner_deletion import block_owner_deletion
from fairlead.admission.chain import Chain
from fairlead.admission.cluster_secret import cluster_secret
from fairlead.admission.cluster_use import ClusterUse, listed_clusters, unlisted_clusters
from fairlead.admission.component_keys import component_keys
from fairlead.admission.escalation import escalation
from fairlead.admission.granting import Names, Standing, granting
from fairlead.admission.identities import identities
from fairlead.admission.instance_reach import instance_reach
from fairlead.admission.instances import instances
from fairlead.admission.lasting_namespaces import lasting_namespaces
from fairlead.admission.living_namespace import living_namespace
from fairlead.admission.living_project import living_project
from fairlead.admission.minting import Mint, minting
from fairlead.admission.own_keys import KeyLimits, own_keys
from fairlead.admission.ownership_marks import ownership_marks
from fairlead.admission.parameters import parameters
from fairlead.admission.password_secret import password_secret
from fairlead.admission.project_namespace import project_namespace
from fairlead.admission.protected_objects import Protected, protected_objects
from fairlead.admission.quotas import quotas
from fairlead.admission.reported_status import reported_status
from fairlead.admission.servers_own import servers_own
from fairlead.admission.template_trust import template_trust
from fairlead.admission.templates_in_use import templates_in_use
from fairlead.admission.virtual_cluster_secret import virtual_cluster_secret
from fairlead.app.identity import Identity
from fairlead.authn.accesskeys import new_key
from fairlead.authz.people import owns
from fairlead.authz.scope import covers
from fairlead.kinds.agent import AGENT
from fairlead.kinds.runner import RUNNER_COMPONENT
from fairlead.settings import Settings
from fairlead.upstream import kubeconfig

SYSTEM_NAMESPACE = "service-system"
NAMESPACES = ("default", SYSTEM_NAMESPACE)
"""Namespaces that are always there: for objects that need one, and for the server's own."""


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
            # Before the next one, which sets a finalizer of its own.
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
            instances(identity.may, group, prefix),  # before granting, which looks at the owner that this sets
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
            quotas(group, prefix),  # last: it counts for the owner that other rules have set
        )
    )
