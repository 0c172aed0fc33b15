"""SpaceInstance: a namespace in a connected cluster that belongs to a project."""

from fairlead.domain.password_parameters import conceal
from fairlead.kinds.fields import CATEGORY, passwords, unbound_from_passwords
from fairlead.kinds.instances.fields import (
    COLUMNS,
    SELECTABLE,
    SPEC_FIELDS,
    STATUS_FIELDS,
    instance_problems,
    prepare_instance,
)
from fairlead.kinds.instances.templates import SPACE_TEMPLATE_SPEC
from fairlead.registry.kind import Kind
from fairlead.registry.schema import described, obj

FIELDS = {
    "spec": obj(
        "Desired state of the space.",
        **SPEC_FIELDS,
        template=described(SPACE_TEMPLATE_SPEC, "Inline definition. Mutually exclusive with templateRef."),
    ),
    "status": obj(
        "Observed state of the space. Written by the server and the cluster's agent.",
        **STATUS_FIELDS,
        space=described(SPACE_TEMPLATE_SPEC, "The rendered template of this space."),
    ),
}

SPACE = Kind(
    name="SpaceInstance",
    plural="spaceinstances",
    namespaced=True,
    fields=FIELDS,
    description="A space of a project: a namespace in a connected cluster.",
    short_names=("si",),
    categories=(CATEGORY, "all"),
    status_subresource=True,
    columns=COLUMNS,
    selectable=SELECTABLE,
    secret=passwords(FIELDS),
    hidden=passwords(FIELDS),
    unbound=unbound_from_passwords(FIELDS),
    sealed=("spec.parameters",),
    conceal=conceal,
    concealed=("status.space",),
    shared=True,
    prepare=prepare_instance,
    check=instance_problems,
)
