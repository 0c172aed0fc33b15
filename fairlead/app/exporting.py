"""What other servers can be given of this one. Called by `fairlead export`; no server runs meanwhile."""

from typing import Any

from fairlead.kinds import KINDS
from fairlead.registry.catalog import Catalog
from fairlead.registry.crds import crds


def management_crds(api_group: str) -> list[dict[str, Any]]:
    """The management kinds as definitions for a kube-apiserver."""
    return crds(Catalog(KINDS, api_group).kinds, api_group)
