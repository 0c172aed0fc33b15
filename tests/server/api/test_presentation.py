"""Lists are written entry by entry, and nobody can tell: they are what one encoder for all of it would have made."""

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
from tests.harness.kind_examples import BY_NAME, example

NOW = datetime(2026, 1, 31, tzinfo=UTC)
METADATA = {"resourceVersion": "7", "continue": "abc"}
KINDS = [BY_NAME["ConfigMap"], BY_NAME["App"]]
VIEWS = ["", "Table", "PartialObjectMetadataList"]


def objects(kind: Kind, count: int) -> list[dict[str, Any]]:
    odd = {"text": "a\nb: 'c'\n", "yes": "no", "list": [1, [2, {"x": []}]], "": "\u2028"}
    made = []
    for number in range(count):
        about = {"name": f"n{number}", "creationTimestamp": "2026-01-30T00:00:00Z", "resourceVersion": "5"}
        made.append({**example(kind.name), "metadata": {**about, "annotations": {"a": "\n"}}, "odd": odd})
    return made


def whole(kind: Kind, found: list[dict[str, Any]], view: str) -> dict[str, Any]:
    """The list as one value."""
    if view == "Table":
        return render_table(kind, found, METADATA, "Object", NOW)
    if view:
        items = [partial_object_metadata(obj) for obj in found]
        return {"kind": view, "apiVersion": "meta.k8s.io/v1", "metadata": METADATA, "items": items}
    if kind.builtin:
        found = [{name: each for name, each in obj.items() if name not in ("apiVersion", "kind")} for obj in found]
    return {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": METADATA, "items": found}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("how", ["json", "pretty", "yaml"])
def test_a_list_is_what_one_encoder_makes_of_it(kind: Kind, view: str, count: int, how: str) -> None:
    found = objects(kind, count)
    form = Representation(YAML if how == "yaml" else JSON, view)
    made = render_list(
        [orjson.dumps(obj) for obj in found], METADATA, Presentation(kind, form, how == "pretty", "Object", NOW)
    )
    expected = whole(kind, found, view)
    if how == "yaml":  # which may or may not say that it is over
        assert made == yaml.encode(expected).removesuffix(b"...\n")
    else:
        assert made == (json.encode_pretty(expected) if how == "pretty" else orjson.dumps(expected))
    assert (pyyaml.safe_load(made) if how == "yaml" else orjson.loads(made)) == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_object_is_presented_as_asked(kind: Kind) -> None:
    (obj,) = objects(kind, 1)
    body = orjson.dumps(obj)
    assert render_object(body, Presentation(kind, Representation(YAML), False, "", NOW)) == yaml.encode(obj)
    assert render_object(body, Presentation(kind, Representation(JSON), True, "", NOW)) == json.encode_pretty(obj)
    alone = render_object(body, Presentation(kind, Representation(JSON, "PartialObjectMetadata"), False, "", NOW))
    assert orjson.loads(alone) == partial_object_metadata(obj)
    rows = render_object(body, Presentation(kind, Representation(JSON, "Table"), False, "None", NOW))
    assert orjson.loads(rows) == render_table(kind, [obj], {"resourceVersion": "5"}, "None", NOW)
