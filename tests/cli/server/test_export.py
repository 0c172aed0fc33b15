"""fairlead.cli.server.export: CustomResourceDefinitions on the standard output, ready for kubectl."""

from typing import Any

import yaml
from typer.testing import CliRunner

from fairlead.cli.server.export import group


def export_crds(*arguments: str) -> str:
    result = CliRunner().invoke(group, ["crds", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def parse_documents(output: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(output, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def test_definitions_are_yaml_documents_without_anchors() -> None:
    output = export_crds()
    documents = parse_documents(output)
    assert {each["kind"] for each in documents} == {"CustomResourceDefinition"}
    assert "apps.management.service.sh" in {each["metadata"]["name"] for each in documents}
    assert "&id" not in output


def test_the_api_group_can_be_changed() -> None:
    documents = parse_documents(export_crds("--api-group", "fleet.example.com"))
    assert {each["spec"]["group"] for each in documents} == {"fleet.example.com"}
