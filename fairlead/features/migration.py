"""Moves a virtual cluster to another project."""

from fairlead.features.contract import Feature, Services
from fairlead.subresources.migration import migration_handlers


def build_migration_feature(services: Services) -> Feature:
    return Feature(
        name="migration",
        handlers=migration_handlers(services.api_group, services.registry, services.settings.namespace_prefix),
    )
