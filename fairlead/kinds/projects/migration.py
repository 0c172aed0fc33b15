"""ProjectMigrateVirtualClusterInstance: moves a virtual cluster instance to another project.

`POST projects/<target>/migratevirtualclusterinstance`. Not persisted; `subresources/migration.py` implements it.
"""

from collections.abc import Iterable

from fairlead.registry.kind import Change, Kind, Problem, Sensitivity
from fairlead.registry.schema import obj, string

MIGRATE_SUBRESOURCE = "migratevirtualclusterinstance"
"""Name of the subresource."""
SOURCE_FIELD = "sourceVirtualClusterInstance"
_REQUIRED_FIELDS = {
    "name": "set the virtual cluster to move",
    "namespace": "set the namespace of the project that it is in",
}


def _check(change: Change) -> Iterable[Problem]:
    """Requires all fields, and rejects empty strings."""
    source = change.obj.get(SOURCE_FIELD)
    if source is None:
        yield Problem.required(SOURCE_FIELD, "set the name and namespace of the virtual cluster to move")
        return
    for field, reason in _REQUIRED_FIELDS.items():
        if not source.get(field):
            yield Problem.required(f"{SOURCE_FIELD}.{field}", reason)


MIGRATION = Kind(
    name="ProjectMigrateVirtualClusterInstance",
    plural="projectmigratevirtualclusterinstances",
    namespaced=False,
    fields={
        SOURCE_FIELD: obj(
            "The virtual cluster to move.",
            name=string("Name of the virtual cluster instance."),
            namespace=string("Its current namespace: that of the source project."),
        )
    },
    description="Moves a virtual cluster instance into this project. Not persisted.",
    verbs=("create",),
    persisted=False,
    check=_check,
    sensitivity=Sensitivity.NORMAL,
)
