"""SpaceTemplate: what spaces are made from."""

from fairlead.kinds.template_kinds import template_kind
from fairlead.kinds.templates import SPACE_TEMPLATE as DEFINITION

SPACE_TEMPLATE = template_kind("SpaceTemplate", "spaces", DEFINITION)
