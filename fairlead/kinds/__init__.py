"""The API itself: one file per kind, nothing but declarations.

A new kind is a file here and a place in `KINDS`; everything else derives from its `Kind` value. `app` makes the catalog
from this tuple.
"""

from fairlead.kinds.accesskey import OWNED_ACCESS_KEY
from fairlead.kinds.app import APP
from fairlead.kinds.cluster import CLUSTER
from fairlead.kinds.clusterrole import CLUSTERROLE
from fairlead.kinds.clusterrolebinding import CLUSTERROLEBINDING
from fairlead.kinds.config import CONFIG
from fairlead.kinds.configmap import CONFIGMAP
from fairlead.kinds.directtoken import DIRECT_CLUSTER_ENDPOINT_TOKEN, TOKEN_KEY_ROTATION
from fairlead.kinds.empty_kinds import POD, SERVICE
from fairlead.kinds.event import EVENT
from fairlead.kinds.event_v1 import EVENT_V1
from fairlead.kinds.lease import LEASE
from fairlead.kinds.namespace import NAMESPACE
from fairlead.kinds.project import PROJECT
from fairlead.kinds.projectsecret import PROJECT_SECRET
from fairlead.kinds.reviews import (
    EXPLAINED_REVIEW,
    EXPLAINED_SELF_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
from fairlead.kinds.role import ROLE
from fairlead.kinds.rolebinding import ROLEBINDING
from fairlead.kinds.runner import RUNNER
from fairlead.kinds.secret import SECRET
from fairlead.kinds.selves import SELF, SELF_SUBJECT_REVIEW, TOKEN_REVIEW
from fairlead.kinds.serviceaccount import SERVICE_ACCOUNT
from fairlead.kinds.sharedsecret import SHARED_SECRET
from fairlead.kinds.space import SPACE
from fairlead.kinds.spacetemplate import SPACE_TEMPLATE
from fairlead.kinds.team import TEAM
from fairlead.kinds.user import USER
from fairlead.kinds.virtualcluster import VIRTUAL_CLUSTER
from fairlead.kinds.virtualclustertemplate import VIRTUAL_CLUSTER_TEMPLATE
from fairlead.kinds.workspace import WORKSPACE
from fairlead.kinds.workspacetemplate import WORKSPACE_TEMPLATE

KINDS = (
    APP,
    CLUSTER,
    PROJECT,
    WORKSPACE,
    SPACE,
    VIRTUAL_CLUSTER,
    WORKSPACE_TEMPLATE,
    SPACE_TEMPLATE,
    VIRTUAL_CLUSTER_TEMPLATE,
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
    EXPLAINED_SELF_REVIEW,
    EXPLAINED_REVIEW,
    NAMESPACE,
    CONFIGMAP,
    SECRET,
    EVENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    EVENT_V1,
    LEASE,
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
