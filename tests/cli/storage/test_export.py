"""`fairlead export`: manifests on the standard output, ready for kubectl."""

from typing import Any

import yaml
from typer.testing import CliRunner

from fairlead.cli.storage.export import group


def exported(*arguments: str) -> str:
    result = CliRunner().invoke(group, ["crds", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def read(printed: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(printed, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def test_definitions_are_yaml_documents_without_anchors() -> None:
    printed = exported()
    documents = read(printed)
    assert {each["kind"] for each in documents} == {"CustomResourceDefinition"}
    assert "apps.management.service.sh" in {each["metadata"]["name"] for each in documents}
    assert "&id" not in printed


def test_the_group_can_be_another() -> None:
    documents = read(exported("--api-group", "fleet.example.com"))
    assert {each["spec"]["group"] for each in documents} == {"fleet.example.com"}
