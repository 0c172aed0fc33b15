"""ResourceCount: how many objects of a kind the requester may see. Computed for each request, and never stored."""

from fairlead.kinds.answered import list_only_kind
from fairlead.registry.kind import Column
from fairlead.registry.schema import boolean, integer, string

RESOURCE_COUNT = list_only_kind(
    "ResourceCount",
    "The number of objects of a kind that the requester may list. Kinds that the requester may not list are left out. "
    "With the field selector `metadata.namespace=NAME`, the objects in one namespace are counted.",
    {
        "group": string("API group of the kind, empty for the core group."),
        "resource": string("Plural name of the kind."),
        "resourceKind": string("Name of the kind."),
        "namespaced": boolean("Whether the objects are in namespaces."),
        "count": integer("Number of objects."),
        "filtered": boolean("There may be other objects, which the requester may not see."),
    },
    (
        Column("Kind", "resourceKind", description="Name of the kind."),
        Column("Group", "group", description="API group of the kind."),
        Column("Count", "count", type="integer", description="Number of objects that you may see."),
        Column("Filtered", "filtered", type="boolean", wide=True, description="Whether there may be other objects."),
    ),
)
