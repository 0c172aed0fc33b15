"""Bodies of patches: which sort is which, and what a configuration may look like."""

from typing import Any

import pytest

from fairlead.core.call import Call
from fairlead.core.errors import BadRequest, UnsupportedMediaType
from fairlead.registry import schema as words
from fairlead.registry.patching.merge_schema import build_merge_schema
from fairlead.server.api.patch import is_apply_patch, read_apply_configuration, read_patch
from tests.harness.calls import call

APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
SHAPE = build_merge_schema(words.obj(tags=words.array_set(words.string())))


def patching(body: bytes, media_type: str = APPLY) -> Call:
    return call(body=body, headers={"content-type": media_type})


@pytest.mark.parametrize("media_type", [APPLY, f"{APPLY}; charset=utf-8", "Application/Apply-Patch+YAML"])
def test_a_configuration_is_told_by_its_media_type(media_type: str) -> None:
    assert is_apply_patch(patching(b"", media_type))


@pytest.mark.parametrize("media_type", [STRATEGIC, "application/merge-patch+json", "application/json-patch+json"])
def test_other_patches_are_not_applied(media_type: str) -> None:
    assert not is_apply_patch(patching(b"", media_type))


@pytest.mark.parametrize("media_type", ["", "application/json", "application/apply-patch+cbor", "text/plain"])
def test_what_is_no_patch_is_refused_with_a_list_of_what_is(media_type: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        is_apply_patch(patching(b"", media_type))
    assert APPLY in caught.value.message
    assert STRATEGIC in caught.value.message


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
async def test_a_configuration_is_yaml_or_json(body: bytes, config: Any, duplicates: list[str]) -> None:
    assert await read_apply_configuration(patching(body)) == (config, duplicates)


@pytest.mark.parametrize("body", [b"{a: [", b'{"a": 123456789012345678901234567890}', b"\xff"])
async def test_a_configuration_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="error decoding patch: error converting YAML to JSON: "):
        await read_apply_configuration(patching(body))


async def test_a_strategic_merge_patch_knows_which_lists_merge() -> None:
    edit, duplicates = await read_patch(patching(b'{"tags": ["b"], "x": 1, "x": 2}', STRATEGIC), SHAPE)
    assert edit({"tags": ["a"]}) == {"tags": ["b", "a"], "x": 2}
    assert duplicates == ["x"]


async def test_an_edit_can_be_made_again_after_a_lost_race() -> None:
    edit, _ = await read_patch(patching(b'{"x": {"$patch": "replace", "a": 1}}', STRATEGIC), SHAPE)
    assert [edit({"x": {"b": 1}}), edit({"x": {"c": 1}})] == [{"x": {"a": 1}}, {"x": {"a": 1}}]
