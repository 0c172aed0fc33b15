"""The kinds that the API serves: declarations of schemas, columns, defaulting and validation. No I/O.

To add a kind, declare a `Kind` and add it to `KINDS`; routes, discovery, OpenAPI and tables derive from it.

- `fields`: schemas that several management kinds share
- `answered`: functions that declare kinds without storage
- `access`: users, teams, access keys and their scopes, direct tokens, whoami reviews, audit events
- `clusters`: Cluster, Runner, App, Config
- `instances`: spaces, virtual clusters, workspaces and their templates, deployed apps
- `projects`: Project and its subresources, project secrets, migration
- `core`: kinds of the core group, events.k8s.io, coordination.k8s.io and apiextensions.k8s.io
- `rbac`: roles, bindings, access reviews
"""

from collections.abc import Mapping

from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.audit_event import AUDIT_EVENT
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN, TOKEN_KEY_ROTATION
from fairlead.kinds.access.sign_on_review import SIGN_ON_REVIEW
from fairlead.kinds.access.users import TEAM, USER
from fairlead.kinds.access.whoami import SELF, SELF_SUBJECT_REVIEW, TOKEN_REVIEW
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.clusters.config import CONFIG
from fairlead.kinds.clusters.runner import RUNNER
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.kinds.core.empty_kinds import CUSTOM_RESOURCE_DEFINITION, POD, SERVICE
from fairlead.kinds.core.event import EVENT
from fairlead.kinds.core.event_v1 import EVENT_V1
from fairlead.kinds.core.lease import LEASE
from fairlead.kinds.core.namespace import NAMESPACE
from fairlead.kinds.core.resource_count import RESOURCE_COUNT
from fairlead.kinds.core.service_account import SERVICE_ACCOUNT
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.kinds.instances.preset import WORKSPACE_PRESET
from fairlead.kinds.instances.remote_instances import SPACE, VIRTUAL_CLUSTER
from fairlead.kinds.instances.templates import (
    ENVIRONMENT_TEMPLATE,
    SPACE_TEMPLATE,
    VIRTUAL_CLUSTER_TEMPLATE,
    WORKSPACE_TEMPLATE,
)
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.kinds.projects.project import PROJECT
from fairlead.kinds.projects.secrets import PROJECT_SECRET, SHARED_SECRET
from fairlead.kinds.rbac.access_reviews import (
    EXPLAINED_REVIEW,
    EXPLAINED_SELF_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    RESOURCE_ACCESS_REVIEW,
    SELF_REVIEW_BATCH,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
from fairlead.kinds.rbac.bindings import CLUSTERROLEBINDING, ROLEBINDING
from fairlead.kinds.rbac.roles import CLUSTERROLE, ROLE
from fairlead.registry.kind import Instance

KINDS = (
    APP,
    APP_INSTANCE,
    CLUSTER,
    PROJECT,
    WORKSPACE,
    SPACE,
    VIRTUAL_CLUSTER,
    WORKSPACE_TEMPLATE,
    SPACE_TEMPLATE,
    VIRTUAL_CLUSTER_TEMPLATE,
    ENVIRONMENT_TEMPLATE,
    WORKSPACE_PRESET,
    PROJECT_SECRET,
    SHARED_SECRET,
    RUNNER,
    USER,
    TEAM,
    OWNED_ACCESS_KEY,
    CONFIG,
    DIRECT_CLUSTER_ENDPOINT_TOKEN,
    TOKEN_KEY_ROTATION,
    SELF,
    SIGN_ON_REVIEW,
    EXPLAINED_SELF_REVIEW,
    EXPLAINED_REVIEW,
    SELF_REVIEW_BATCH,
    RESOURCE_ACCESS_REVIEW,
    RESOURCE_COUNT,
    AUDIT_EVENT,
    NAMESPACE,
    CONFIGMAP,
    SECRET,
    EVENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    EVENT_V1,
    LEASE,
    CUSTOM_RESOURCE_DEFINITION,
    ROLE,
    CLUSTERROLE,
    ROLEBINDING,
    CLUSTERROLEBINDING,
    SELF_SUBJECT_REVIEW,
    TOKEN_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SUBJECT_ACCESS_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
)

INSTANCES: Mapping[str, Instance] = {kind.plural: kind.instance for kind in KINDS if kind.instance}
"""The kinds of instances, by plural."""

TEMPLATE_INSTANCES = {plural: instance for plural, instance in INSTANCES.items() if instance.template_kind}
"""The kinds of instances that templates define, by plural."""

CLUSTER_INSTANCES = {plural: instance for plural, instance in INSTANCES.items() if instance.in_cluster}
"""The kinds of instances in connected clusters, by plural."""

DELETION_ORDER = (APP_INSTANCE.plural, WORKSPACE.plural, VIRTUAL_CLUSTER.plural, SPACE.plural)
"""The order in which the instances of a deleted project are deleted: apps are deployed into virtual clusters and
spaces, workspaces may run in virtual clusters, and those in spaces. Every kind in `INSTANCES` has a place here."""
