"""ClusterRoleBinding of the group rbac.authorization.k8s.io: gives a ClusterRole's rights to people, everywhere."""

from fairlead.kinds.bindings import COLUMNS, FIELDS, binding_check, prepare
from fairlead.kinds.rules import GROUP
from fairlead.registry.kind import Kind

CLUSTERROLEBINDING = Kind(
    name="ClusterRoleBinding",
    plural="clusterrolebindings",
    namespaced=False,
    group=GROUP,
    fields=FIELDS,
    description="Gives the rights of a ClusterRole to users and groups, in all namespaces and outside of them.",
    columns=COLUMNS,
    name_is_path_segment=True,
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=prepare,
    check=binding_check("ClusterRole", namespaced=False),
)
