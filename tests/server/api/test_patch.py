"""server.api.patch: bodies of patches, by media type."""

import threading
from typing import Any

import orjson
import pytest

from fairlead.core.call import Call
from fairlead.core.errors import BadRequest, Invalid, TooLarge, UnsupportedMediaType
from fairlead.registry import schema
from fairlead.registry.patching import json_patch
from fairlead.registry.patching.merge_schema import build_merge_schema
from fairlead.server.api.patch import is_apply_patch, read_apply_configuration, read_patch
from tests.harness.calls import call

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE_SCHEMA = build_merge_schema(schema.obj(tags=schema.array_set(schema.string())))


def build_request(body: bytes, media_type: str = APPLY, query: str = "") -> Call:
    return call(query=query, body=body, headers={"content-type": media_type})


@pytest.mark.parametrize("media_type", [APPLY, f"{APPLY}; charset=utf-8", "Application/Apply-Patch+YAML"])
def test_an_apply_patch_is_recognized_by_its_media_type(media_type: str) -> None:
    assert is_apply_patch(build_request(b"", media_type))


@pytest.mark.parametrize("media_type", [STRATEGIC, "application/merge-patch+json", "application/json-patch+json"])
def test_other_patches_are_not_apply_patches(media_type: str) -> None:
    assert not is_apply_patch(build_request(b"", media_type))


@pytest.mark.parametrize("media_type", ["", "application/json", "application/apply-patch+cbor", "text/plain"])
def test_an_unsupported_media_type_gets_415_with_the_supported_ones(media_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as error:
        is_apply_patch(build_request(b"", media_type))
    assert APPLY in error.value.message
    assert STRATEGIC in error.value.message


@pytest.mark.parametrize(
    ("body", "config", "duplicates"),
    [
        (b'{"a": {"b": 1}}', {"a": {"b": 1}}, []),
        (b' \n{"a": 1, "a": 2}', {"a": 2}, ["a"]),
        (b"a:\n  b: 1\n", {"a": {"b": 1}}, []),
        (b"{a: {b: 1, b: 2}}", {"a": {"b": 2}}, ["a.b"]),
        (b"", None, []),
        (b"[]", [], []),
    ],
)
async def test_an_apply_configuration_is_yaml_or_json(body: bytes, config: Any, duplicates: list[str]) -> None:
    assert await read_apply_configuration(build_request(body)) == (config, duplicates)


@pytest.mark.parametrize("body", [b"{a: [", b'{"a": 1e999, "b": [}', b"\xff"])
async def test_an_invalid_apply_configuration_is_rejected(body: bytes) -> None:
    with pytest.raises(BadRequest, match="error decoding patch: error converting YAML to JSON: "):
        await read_apply_configuration(build_request(body))


async def test_a_strategic_merge_patch_merges_lists_by_the_schema() -> None:
    edit, duplicates = await read_patch(build_request(b'{"tags": ["b"], "x": 1, "x": 2}', STRATEGIC), MERGE_SCHEMA)
    assert edit({"tags": ["a"]}) == {"tags": ["b", "a"], "x": 2}
    assert duplicates == ["x"]


async def test_an_edit_can_be_repeated_after_a_conflict() -> None:
    edit, _ = await read_patch(build_request(b'{"x": {"$patch": "replace", "a": 1}}', STRATEGIC), MERGE_SCHEMA)
    assert [edit({"x": {"b": 1}}), edit({"x": {"c": 1}})] == [{"x": {"a": 1}}, {"x": {"a": 1}}]


UNKNOWN = b'[{"op": "add", "path": "/a", "value": 1, "nope": 1}, {"op": "test", "path": "/a", "value": 1, "Op": 2}]'
WARNINGS = ['json patch unknown field "[0].nope"', 'json patch unknown field "[1].Op"']


@pytest.mark.parametrize(("validation", "warnings"), [("", WARNINGS), ("Warn", WARNINGS), ("Ignore", [])])
async def test_unknown_fields_of_operations_are_warnings(validation: str, warnings: list[str]) -> None:
    request = build_request(UNKNOWN, JSON_PATCH, query=f"fieldValidation={validation}")
    edit, _ = await read_patch(request, MERGE_SCHEMA)
    assert request.warnings == []
    assert edit({}) == edit({}) == {"a": 1}
    assert request.warnings == warnings


async def test_unknown_fields_of_operations_are_rejected_by_strict_validation() -> None:
    edit, _ = await read_patch(build_request(UNKNOWN, JSON_PATCH, query="fieldValidation=Strict"), MERGE_SCHEMA)
    with pytest.raises(Invalid, match=r'json patch unknown field "\[0\].nope", json patch unknown field "\[1\].Op"'):
        edit({})


LONG_NUMBER = b'{"a":' + b"9" * 3_000_000 + b"}"
MERGE = "application/merge-patch+json"


@pytest.mark.parametrize("media_type", [JSON_PATCH, STRATEGIC, MERGE])
async def test_a_long_number_in_a_patch_is_rejected_before_it_is_parsed(
    media_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orjson, "loads", lambda text: pytest.fail("the parser was called"))
    edit, _ = await read_patch(build_request(LONG_NUMBER, media_type), MERGE_SCHEMA)
    with pytest.raises(BadRequest, match="a number has more than 1024 characters; write it shorter, or as a string"):
        edit({})


@pytest.mark.parametrize("space", [b"", b" "])
async def test_a_long_number_in_an_apply_configuration_does_not_become_a_string(space: bytes) -> None:
    """As YAML, it would be one."""
    with pytest.raises(BadRequest, match="error decoding patch: a number has more than 1024 characters"):
        await read_apply_configuration(build_request(space + LONG_NUMBER))


async def test_too_many_values_in_a_patch_are_too_large() -> None:
    body = b"[" + b"{}," * 100_000 + b"{}]"
    with pytest.raises(TooLarge, match="Request entity too large: more than 100000 values"):
        await read_patch(build_request(body, MERGE), MERGE_SCHEMA)
    with pytest.raises(TooLarge, match="Request entity too large: more than 100000 values"):
        await read_apply_configuration(build_request(b'{"a":' + body + b"}"))


async def test_the_operations_of_a_large_json_patch_are_examined_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(operations: Any) -> list[str]:
        threads.append(threading.current_thread().name.partition("-")[0])
        return unknown_fields(operations)

    threads, unknown_fields = list[str](), json_patch.unknown_fields
    monkeypatch.setattr(json_patch, "unknown_fields", examine)
    for count in (1, 5_000):
        body = b"[" + b'{"op":"test","path":"/a","value":null},' * count + b'{"op":"copy","path":"/b","from":"/a"}]'
        request = build_request(body, JSON_PATCH)
        await read_patch(request, MERGE_SCHEMA)
        assert request.body_size == len(body) + json_patch.MAX_COPIED_BYTES
    assert threads == ["MainThread", "compute"]
