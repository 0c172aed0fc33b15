"""DevPodWorkspaceTemplate: what workspaces are made from."""

from fairlead.kinds.template_kinds import template_kind
from fairlead.kinds.templates import WORKSPACE_TEMPLATE as DEFINITION

WORKSPACE_TEMPLATE = template_kind("DevPodWorkspaceTemplate", "workspaces", DEFINITION)
