"""ProjectMigrateVirtualClusterInstance: asks that a virtual cluster move into the project that it is posted to.

`POST projects/<target>/migratevirtualclusterinstance`. Nothing of it is stored; `subresources/migration.py` does it.
"""

from collections.abc import Iterable

from fairlead.registry.kind import Change, Kind, Problem
from fairlead.registry.schema import obj, string

MIGRATE = "migratevirtualclusterinstance"
"""What it is called below a project."""
SOURCE = "sourceVirtualClusterInstance"
_PARTS = {"name": "say which virtual cluster is to move", "namespace": "say which project's namespace it is in"}


def _check(change: Change) -> Iterable[Problem]:
    """All of it is needed, and a text without letters says nothing."""
    source = change.obj.get(SOURCE)
    if source is None:
        yield Problem.required(SOURCE, "say which virtual cluster is to move, by name and namespace")
        return
    for part, why in _PARTS.items():
        if not source.get(part):
            yield Problem.required(f"{SOURCE}.{part}", why)


MIGRATION = Kind(
    name="ProjectMigrateVirtualClusterInstance",
    plural="projectmigratevirtualclusterinstances",
    namespaced=False,
    fields={
        SOURCE: obj(
            "The virtual cluster that moves.",
            name=string("Name of the virtual cluster instance."),
            namespace=string("Namespace that it is in now: that of the project which it leaves."),
        )
    },
    description="Moves a virtual cluster instance into the project that this is posted to. Nothing of it is stored.",
    verbs=("create",),
    stored=False,
    check=_check,
)
