"""examples/backstage: the entities are complete, refer to each other, and name addresses that the server has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.kinds.projects.project import NAMESPACE_PREFIX

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "backstage"
REQUIRED = {
    "System": ("owner",),
    "API": ("type", "lifecycle", "owner", "definition"),
    "Resource": ("type", "owner"),
    "Component": ("type", "lifecycle", "owner"),
}
"""Fields of `spec` that Backstage requires of each kind."""
ENTITIES: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "catalog-info.yaml").read_text()))


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity["kind"])
def test_an_entity_has_what_backstage_requires(entity: dict[str, Any]) -> None:
    assert entity["apiVersion"] == "backstage.io/v1alpha1"
    assert re.fullmatch(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?", entity["metadata"]["name"])
    assert [field for field in REQUIRED[entity["kind"]] if not entity["spec"].get(field)] == []
    assert re.fullmatch(r"group:default/\w+", entity["spec"]["owner"])


def test_references_between_entities_resolve() -> None:
    known = {f"{entity['kind'].lower()}:default/{entity['metadata']['name']}" for entity in ENTITIES}
    for entity in ENTITIES:
        assert set(entity["spec"].get("dependsOn", ())) <= known
        system = entity["spec"].get("system")
        assert system is None or f"system:default/{system}" in known


def test_the_link_of_a_space_is_its_page_in_the_console() -> None:
    (space,) = (entity for entity in ENTITIES if entity["kind"] == "Resource")
    names = {name.rpartition("/")[2]: value for name, value in space["metadata"]["annotations"].items()}
    page = f"/console/spaceinstances/{NAMESPACE_PREFIX}{names['project']}/{names['space']}"
    assert space["metadata"]["links"][0]["url"].endswith(page)


def test_the_clusters_are_addressed_through_the_gateway() -> None:
    (locator,) = yaml.safe_load((FOLDER / "app-config.yaml").read_text())["kubernetes"]["clusterLocatorMethods"]
    for cluster in locator["clusters"]:
        assert cluster["url"].endswith(f"/kubernetes/cluster/{cluster['name']}")
        assert cluster["serviceAccountToken"] == "${FAIRLEAD_KEY}"
