"""Paths and the catalog for tests of the metrics."""

from fairlead.features.clusters import find_gateways
from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Catalog
from fairlead.server.api.routing import RouteConfig

MOUNT = "/kubernetes/management"

ROOTS = RouteConfig(MOUNT, (find_gateways(MANAGEMENT_GROUP, "service-p-"),))

CORE = f"{MOUNT}/api/v1/namespaces/demo/configmaps"

CATALOG = Catalog(KINDS)
