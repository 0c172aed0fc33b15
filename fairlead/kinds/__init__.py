"""The API itself: one file per kind, nothing but declarations.

A new kind is a file here and a place in `KINDS`; everything else derives from its `Kind` value. `app` makes the catalog
from this tuple.
"""

from fairlead.kinds.app import APP
from fairlead.kinds.cluster import CLUSTER
from fairlead.kinds.configmap import CONFIGMAP
from fairlead.kinds.event import EVENT
from fairlead.kinds.lease import LEASE
from fairlead.kinds.namespace import NAMESPACE
from fairlead.kinds.project import PROJECT
from fairlead.kinds.secret import SECRET
from fairlead.kinds.workspace import WORKSPACE

KINDS = (
    APP,
    CLUSTER,
    PROJECT,
    WORKSPACE,
    NAMESPACE,
    CONFIGMAP,
    SECRET,
    EVENT,
    LEASE,
)
