"""server.api.presentation: lists are rendered entry by entry, with the same result as by one encoder."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import yaml as pyyaml

from fairlead.core import json, yaml
from fairlead.registry.kind import Kind
from fairlead.registry.table import partial_object_metadata, render_table
from fairlead.server.api.content import JSON, YAML, Representation
from fairlead.server.api.presentation import Presentation, render_list, render_object
from tests.harness.kind_examples import BY_NAME, build_example

NOW = datetime(2026, 1, 31, tzinfo=UTC)
METADATA = {"resourceVersion": "7", "continue": "abc"}
KINDS = [BY_NAME["ConfigMap"], BY_NAME["App"]]
VIEWS = ["", "Table", "PartialObjectMetadataList"]


def build_objects(kind: Kind, count: int) -> list[dict[str, Any]]:
    special_values = {"text": "a\nb: 'c'\n", "yes": "no", "list": [1, [2, {"x": []}]], "": "\u2028"}
    objects = []
    for number in range(count):
        metadata = {"name": f"n{number}", "creationTimestamp": "2026-01-30T00:00:00Z", "resourceVersion": "5"}
        objects.append(
            {**build_example(kind.name), "metadata": {**metadata, "annotations": {"a": "\n"}}, "odd": special_values}
        )
    return objects


def build_list(kind: Kind, objects: list[dict[str, Any]], view: str) -> dict[str, Any]:
    """The list as one value."""
    if view == "Table":
        return render_table(kind, objects, METADATA, "Object", NOW)
    if view:
        items = [partial_object_metadata(obj) for obj in objects]
        return {"kind": view, "apiVersion": "meta.k8s.io/v1", "metadata": METADATA, "items": items or None}
    if kind.builtin:
        objects = [
            {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")} for obj in objects
        ]
    return {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": METADATA, "items": objects}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("output_format", ["json", "pretty", "yaml"])
def test_a_list_equals_the_output_of_one_encoder(kind: Kind, view: str, count: int, output_format: str) -> None:
    objects = build_objects(kind, count)
    representation = Representation(YAML if output_format == "yaml" else JSON, view)
    result = render_list(
        [orjson.dumps(obj) for obj in objects],
        METADATA,
        Presentation(kind, representation, output_format == "pretty", "Object", NOW),
    )
    expected = build_list(kind, objects, view)
    if output_format == "yaml":  # with or without the end-of-document marker
        assert result == yaml.encode(expected).removesuffix(b"...\n")
    else:
        assert result == (json.encode_pretty(expected) if output_format == "pretty" else orjson.dumps(expected))
    assert (pyyaml.safe_load(result) if output_format == "yaml" else orjson.loads(result)) == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_object_is_rendered_in_the_requested_representation(kind: Kind) -> None:
    (obj,) = build_objects(kind, 1)
    body = orjson.dumps(obj)
    assert render_object(body, Presentation(kind, Representation(YAML), False, "", NOW)) == yaml.encode(obj)
    assert render_object(body, Presentation(kind, Representation(JSON), True, "", NOW)) == json.encode_pretty(obj)
    partial = render_object(body, Presentation(kind, Representation(JSON, "PartialObjectMetadata"), False, "", NOW))
    assert orjson.loads(partial) == partial_object_metadata(obj)
    rows = render_object(body, Presentation(kind, Representation(JSON, "Table"), False, "None", NOW))
    assert orjson.loads(rows) == render_table(kind, [obj], {"resourceVersion": "5"}, "None", NOW)


@pytest.mark.parametrize("hides_owners", [True, False])
def test_metadata_for_another_api_server_has_neither_owners_nor_finalizers(hides_owners: bool) -> None:
    kind = BY_NAME["App"]
    meta = {"name": "a", "uid": "u", "ownerReferences": [{"name": "o"}], "finalizers": ["orphan"]}
    body = orjson.dumps({**build_example("App"), "metadata": meta})
    for view in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        presentation = Presentation(kind, Representation(JSON, view), False, "", NOW, hides_owners)
        is_list = view.endswith("List")
        rendered = render_list([body], METADATA, presentation) if is_list else render_object(body, presentation)
        found = orjson.loads(rendered)
        shown = found["items"][0]["metadata"] if is_list else found["metadata"]
        assert shown == ({"name": "a", "uid": "u"} if hides_owners else meta)
