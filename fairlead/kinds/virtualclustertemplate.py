"""VirtualClusterTemplate: what virtual clusters are made from."""

from fairlead.kinds.template_kinds import template_kind
from fairlead.kinds.templates import VIRTUAL_CLUSTER_TEMPLATE as DEFINITION

VIRTUAL_CLUSTER_TEMPLATE = template_kind("VirtualClusterTemplate", "virtual clusters", DEFINITION)
