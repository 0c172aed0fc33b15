"""RoleBinding of the group rbac.authorization.k8s.io: gives the rights of a role to people, in its own namespace."""

from fairlead.kinds.bindings import COLUMNS, FIELDS, binding_check, prepare
from fairlead.kinds.rules import GROUP
from fairlead.registry.kind import Kind

ROLEBINDING = Kind(
    name="RoleBinding",
    plural="rolebindings",
    namespaced=True,
    group=GROUP,
    fields=FIELDS,
    description="Gives the rights of a Role or ClusterRole to users and groups, inside the binding's namespace.",
    columns=COLUMNS,
    name_is_path_segment=True,
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=prepare,
    check=binding_check("Role", "ClusterRole", namespaced=True),
)
