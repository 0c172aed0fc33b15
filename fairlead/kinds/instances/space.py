"""SpaceInstance: a namespace in a connected cluster that belongs to a project."""

from fairlead.domain.password_parameters import redact_instance
from fairlead.kinds.fields import CATEGORY, password_independent_fields, password_paths
from fairlead.kinds.instances.fields import (
    COLUMNS,
    SELECTABLE,
    SPEC_FIELDS,
    STATUS_FIELDS,
    default_instance,
    instance_problems,
)
from fairlead.kinds.instances.templates import SPACE_TEMPLATE_SPEC
from fairlead.registry.kind import Kind, Sensitivity
from fairlead.registry.schema import obj, with_description

FIELDS = {
    "spec": obj(
        "Desired state of the space.",
        **SPEC_FIELDS,
        template=with_description(SPACE_TEMPLATE_SPEC, "Inline definition. Mutually exclusive with templateRef."),
    ),
    "status": obj(
        "Observed state of the space. Written by the server and the cluster's agent.",
        **STATUS_FIELDS,
        space=with_description(SPACE_TEMPLATE_SPEC, "The rendered template of this space."),
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
    sensitive=password_paths(FIELDS),
    write_only=password_paths(FIELDS),
    safe_siblings=password_independent_fields(FIELDS),
    encrypted=("spec.parameters",),
    redact_derived=redact_instance,
    redacted_paths=("status.space",),
    has_access_entries=True,
    default=default_instance,
    check=instance_problems,
    sensitivity=Sensitivity.NORMAL,
)
