"""Templates of spaces, virtual clusters and workspaces."""

from fairlead.admission import Phase
from fairlead.admission.templates import mark_trusted_templates, prevent_deletion_while_used
from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.features.contract import Feature, Services


def build_templates_feature(services: Services) -> Feature:
    settings = services.settings
    group = services.api_group
    config = InstanceConfig(group, settings.namespace_prefix, ClusterIdentityMapper(settings.identity_prefix))
    return Feature(
        name="templates",
        admission={
            Phase.CHECK: (
                mark_trusted_templates(group),
                prevent_deletion_while_used(services.auth.authorize, group),
            ),
        },
        controllers=lambda leader: (InstanceTemplateController(leader.registry, config),),
    )
