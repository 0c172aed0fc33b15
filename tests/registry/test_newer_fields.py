"""Fields of a newer version in stored objects: an older replica serves them, and its writes do not remove them."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.storage.contract import Write
from tests.harness.registry import RegistryFixture, write_options

Edit = Callable[[Object], object]


async def store_newer_fields(api: RegistryFixture, kind: str, name: str, change: Edit) -> Object:
    """Changes the stored object as a server of a newer version would, which knows more fields."""
    resource = api.resource(kind)
    entry = resource.get_cached("demo" if resource.kind.namespaced else "", name)
    assert entry is not None
    record = await api.store.read(entry.key)
    assert record is not None
    stored: Object = orjson.loads(record.value)
    change(stored)
    await api.view.wait_for(await api.store.inner.commit([Write(entry.key, orjson.dumps(stored), record.revision)]))
    found = api.get(kind, name)
    assert found is not None
    return found


def set_newer_fields(obj: Object) -> None:
    obj["spec"]["newer"] = {"deep": [1, {"a": None}]}
    obj["spec"]["limit"] = 3
    obj.setdefault("status", {})["newerStatus"] = "yes"
    obj["metadata"]["newerMetadata"] = "m"
    obj["newerTop"] = True


async def create_gadget(api: RegistryFixture) -> Object:
    await api.create("Gadget", "g", spec={"size": 1})
    return await store_newer_fields(api, "Gadget", "g", set_newer_fields)


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
async def test_a_patch_of_another_field_preserves_fields_of_a_newer_version(
    api: RegistryFixture, validation: str
) -> None:
    before = await create_gadget(api)
    options = write_options(is_patch=True, field_validation=validation)
    after = await api.patch("Gadget", "g", lambda obj: obj["spec"].update(size=2), options)
    assert options.warnings == []
    assert after["spec"] == {**before["spec"], "size": 2}
    assert (after["status"], after["newerTop"]) == (before["status"], True)
    assert after["metadata"]["newerMetadata"] == "m"


async def test_a_status_patch_preserves_fields_of_a_newer_version(api: RegistryFixture) -> None:
    before = await create_gadget(api)
    options = write_options(is_patch=True, subresource="status", field_validation="Strict")
    after = await api.patch("Gadget", "g", lambda obj: obj["status"].update(phase="Ready"), options)
    assert after["status"] == {"newerStatus": "yes", "phase": "Ready"}
    assert after["spec"] == before["spec"]


async def test_a_put_of_what_was_read_preserves_fields_of_a_newer_version(api: RegistryFixture) -> None:
    before = await create_gadget(api)
    body = orjson.loads(orjson.dumps(before))
    body["spec"]["size"] = 5
    after = await api.replace("Gadget", body, write_options(field_validation="Strict"))
    assert after["spec"] == {**before["spec"], "size": 5}


async def test_a_put_without_the_field_removes_it(api: RegistryFixture) -> None:
    body = orjson.loads(orjson.dumps(await create_gadget(api)))
    del body["spec"]["newer"]
    after = await api.replace("Gadget", body, write_options(field_validation="Strict"))
    assert "newer" not in after["spec"] and after["spec"]["limit"] == 3


async def test_an_older_version_cannot_change_such_a_field_and_says_so(api: RegistryFixture) -> None:
    await create_gadget(api)
    options = write_options(is_patch=True, field_validation="Warn")
    after = await api.patch("Gadget", "g", lambda obj: obj["spec"].update(limit=9, size=4), options)
    assert (after["spec"]["limit"], after["spec"]["size"]) == (3, 4)
    assert options.warnings == ['unknown field "spec.limit"']
    strict = write_options(is_patch=True, field_validation="Strict")
    with pytest.raises(Exception, match=r'unknown field "spec\.limit"'):
        await api.patch("Gadget", "g", lambda obj: obj["spec"].update(limit=9), strict)


EQUAL_VALUES = [
    (True, 1, True),
    (0, False, True),
    ([{"a": 1}], [{"a": True}], True),
    (1.0, 1, False),
    (2.0**70, 2**70, False),
]


@pytest.mark.parametrize(("stored", "sent", "is_changed"), EQUAL_VALUES)
async def test_a_value_that_is_equal_in_python_does_not_replace_the_stored_one(
    api: RegistryFixture, stored: Any, sent: Any, is_changed: bool
) -> None:
    await api.create("Gadget", "g", spec={"size": 1})
    await store_newer_fields(api, "Gadget", "g", lambda obj: obj["spec"].update(newer=stored))
    options = write_options(is_patch=True, field_validation="Warn")
    after = await api.patch("Gadget", "g", lambda obj: obj["spec"].update(newer=sent, size=2), options)
    assert orjson.dumps(after["spec"]["newer"]) == orjson.dumps(stored)
    assert options.warnings == (['unknown field "spec.newer"'] if is_changed else [])


async def test_other_unknown_fields_are_still_dropped(api: RegistryFixture) -> None:
    await create_gadget(api)
    options = write_options(is_patch=True, field_validation="Warn")
    after = await api.patch("Gadget", "g", lambda obj: obj["spec"].update(misspelt=1), options)
    assert "misspelt" not in after["spec"] and after["spec"]["limit"] == 3
    assert options.warnings == ['unknown field "spec.misspelt"']
    with pytest.raises(BadRequest, match="misspelt"):
        await api.submit(
            "Gadget", api.build_object("Gadget", "h", spec={"misspelt": 1}), write_options(field_validation="Strict")
        )


async def test_apply_preserves_fields_of_a_newer_version(api: RegistryFixture) -> None:
    before = await create_gadget(api)
    config = api.build_object("Gadget", "g", spec={"size": 7})
    options = write_options(is_patch=True, is_apply=True, force=True, field_validation="Strict")
    body, _ = await api.resource("Gadget").apply(config, "", "g", options)
    assert orjson.loads(body)["spec"] == {**before["spec"], "size": 7}


ROWS = [{"variable": "a", "newer": 1}, {"variable": "b"}, {"variable": "c", "newer": 3}]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS, ROWS),
        (ROWS[1:], ROWS[1:]),
        ([*ROWS[:1], {"variable": "b", "label": "B"}, ROWS[2]], [*ROWS[:1], {"variable": "b", "label": "B"}, ROWS[2]]),
        ([ROWS[2], ROWS[0]], [ROWS[2], ROWS[0]]),
        ([{"variable": "z", "newer": 9}], [{"variable": "z"}]),
        ([{"variable": "a", "newer": True}], [{"variable": "a"}]),
    ],
    ids=["same", "first removed", "one changed", "moved", "a new one", "equal in Python"],
)
async def test_items_of_lists_preserve_fields_of_a_newer_version(
    api: RegistryFixture, rows: list[Any], expected: list[Any]
) -> None:
    chart = {"chart": {"name": "a", "repoURL": "https://charts.example.com"}}
    await api.create("App", "a", spec={"config": chart, "parameters": [{"variable": "a"}]})
    await store_newer_fields(api, "App", "a", lambda obj: obj["spec"].update(parameters=ROWS))
    options = write_options(is_patch=True, field_validation="Ignore")
    after = await api.patch("App", "a", lambda obj: obj["spec"].update(parameters=rows), options)
    assert after["spec"]["parameters"] == expected


async def test_a_limit_of_a_newer_version_does_not_prevent_other_changes(api: RegistryFixture) -> None:
    """Below some fields, unknown fields are rejected, as the scope of a key: those that are stored are none of them."""
    scope = {"projects": [{"project": "demo"}]}
    await api.create("OwnedAccessKey", "k", spec={"user": "ada", "key": "hmac-sha256:0011:2233", "scope": scope})
    await store_newer_fields(api, "OwnedAccessKey", "k", lambda obj: obj["spec"]["scope"].update(newerLimit=["x"]))
    after = await api.patch("OwnedAccessKey", "k", lambda obj: obj["spec"].update(displayName="K"))
    assert after["spec"]["scope"] == {**scope, "newerLimit": ["x"]}
