"""The API itself: one file per kind, nothing but declarations.

A new kind is a file here and a place in `KINDS`; everything else derives from its `Kind` value. `app` makes the catalog
from this tuple.
"""

from fairlead.kinds.accesskey import OWNED_ACCESS_KEY
from fairlead.kinds.app import APP
from fairlead.kinds.cluster import CLUSTER
from fairlead.kinds.clusterrole import CLUSTERROLE
from fairlead.kinds.clusterrolebinding import CLUSTERROLEBINDING
from fairlead.kinds.configmap import CONFIGMAP
from fairlead.kinds.event import EVENT
from fairlead.kinds.lease import LEASE
from fairlead.kinds.namespace import NAMESPACE
from fairlead.kinds.project import PROJECT
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
from fairlead.kinds.secret import SECRET
from fairlead.kinds.selves import SELF, SELF_SUBJECT_REVIEW, TOKEN_REVIEW
from fairlead.kinds.team import TEAM
from fairlead.kinds.user import USER
from fairlead.kinds.workspace import WORKSPACE

KINDS = (
    APP,
    CLUSTER,
    PROJECT,
    WORKSPACE,
    USER,
    TEAM,
    OWNED_ACCESS_KEY,
    SELF,
    EXPLAINED_SELF_REVIEW,
    EXPLAINED_REVIEW,
    NAMESPACE,
    CONFIGMAP,
    SECRET,
    EVENT,
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
