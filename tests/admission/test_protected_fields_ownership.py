"""Only administrators change ownership labels and annotations (T-11)."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from fairlead.admission.protected_fields import OWNERSHIP_KEYS, SERVER_ONLY_KEYS, protect_ownership_labels
from fairlead.core.errors import Forbidden
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture

ADMIN = User("root", ("service:admins",))
SCOPED = User("root", ("service:admins",), scope=Scope(projects=("*",)))


@pytest.fixture
def api_with_rule(api: RegistryFixture) -> RegistryFixture:
    return api.with_rules(protect_ownership_labels("service-p-"))


def set_metadata(field: str, **values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda obj: obj["metadata"].update({field: values})


@pytest.mark.parametrize(("field", "key"), sorted({*OWNERSHIP_KEYS, *SERVER_ONLY_KEYS}))
async def test_t11_an_ownership_label_cannot_be_changed_or_removed(
    api_with_rule: RegistryFixture, field: str, key: str
) -> None:
    body = api_with_rule.build_object("Gadget", "a", metadata={field: {key: "mine", "other": "x"}})
    await api_with_rule.submit("Gadget", body, WriteOptions(ADMIN))
    for patch in (set_metadata(field, **{key: "yours"}), set_metadata(field), set_metadata(field, other="x")):
        for user in (ADA, SCOPED):
            with pytest.raises(Forbidden, match="only administrators may change it"):
                await api_with_rule.patch("Gadget", "a", patch, WriteOptions(user))
    await api_with_rule.patch("Gadget", "a", set_metadata(field, **{key: "mine", "other": "y"}), WriteOptions(ADA))
    await api_with_rule.patch("Gadget", "a", set_metadata(field, **{key: "yours"}), WriteOptions(ADMIN))


PROJECT, WORKSPACE_UID = "service.sh/project", "service.sh/workspace-uid"


@pytest.mark.parametrize("user", [ADA, SCOPED])
@pytest.mark.parametrize("key", [PROJECT, WORKSPACE_UID])
@pytest.mark.parametrize("kind", ["Gadget", "ConfigMap", "DevPodWorkspaceInstance"])
async def test_t11_a_label_by_which_clients_find_objects_is_dropped_unless_it_is_true(
    api_with_rule: RegistryFixture, kind: str, key: str, user: User
) -> None:
    await api_with_rule.create("Namespace", "service-p-x")
    options = WriteOptions(user)
    body = api_with_rule.build_object(kind, "a", "service-p-x", metadata={"labels": {key: "theirs", "other": "x"}})
    created = await api_with_rule.submit(kind, body, options)
    assert created["metadata"]["labels"] == {"other": "x"}
    assert options.warnings == [f"metadata.labels[{key}] is set by the server only; it was dropped"]

    resource, namespace = api_with_rule.resource(kind), created["metadata"].get("namespace", "")
    for value in ("theirs", "", "service-p-x", "y"):
        edit = add_label(key, value)
        after = orjson.loads(await resource.modify(namespace, "a", edit, WriteOptions(user, is_patch=True)))
        assert after["metadata"]["labels"] == {"other": "x"}
    applied = api_with_rule.build_object(kind, "a", "service-p-x", metadata={"labels": {key: "theirs"}})
    config = {**applied, "metadata": {"name": "a", "labels": {key: "theirs"}}}
    text, _ = await resource.apply(config, namespace, "a", WriteOptions(user, "x", is_apply=True, force=True))
    assert key not in orjson.loads(text)["metadata"]["labels"]


def add_label(key: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def edit(obj: dict[str, Any]) -> dict[str, Any]:
        labels = {**(obj["metadata"].get("labels") or {}), key: value}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}}

    return edit


async def test_t11_labels_with_the_project_and_the_uid_of_the_object_itself_are_accepted(
    api_with_rule: RegistryFixture,
) -> None:
    await api_with_rule.create("Namespace", "service-p-x")
    body = api_with_rule.build_object(
        "DevPodWorkspaceInstance", "a", "service-p-x", metadata={"labels": {PROJECT: "x"}}
    )
    created = await api_with_rule.submit("DevPodWorkspaceInstance", body, WriteOptions(ADA))
    assert created["metadata"]["labels"] == {PROJECT: "x"}
    uid, resource = created["metadata"]["uid"], api_with_rule.resource("DevPodWorkspaceInstance")
    edit = add_label(WORKSPACE_UID, uid)
    after = orjson.loads(await resource.modify("service-p-x", "a", edit, WriteOptions(ADA, is_patch=True)))
    assert after["metadata"]["labels"] == {PROJECT: "x", WORKSPACE_UID: uid}


async def test_t11_only_administrators_label_the_namespace_of_a_project(api_with_rule: RegistryFixture) -> None:
    await api_with_rule.submit(
        "Namespace", api_with_rule.build_object("Namespace", "service-p-x"), WriteOptions(CONTROLLER_USER)
    )
    await api_with_rule.create("Namespace", "free")
    for field in ("labels", "annotations"):
        with pytest.raises(Forbidden):
            await api_with_rule.patch("Namespace", "service-p-x", set_metadata(field, a="b"), WriteOptions(ADA))
        await api_with_rule.patch("Namespace", "service-p-x", set_metadata(field, a="b"), WriteOptions(ADMIN))
        await api_with_rule.patch("Namespace", "free", set_metadata(field, a="b"), WriteOptions(ADA))


@pytest.mark.parametrize("labels", ["x", 5, [1]])
async def test_labels_that_are_not_a_map_are_rejected(api_with_rule: RegistryFixture, labels: Any) -> None:
    await api_with_rule.create("Gadget", "a", metadata={"labels": {"b": "c"}})
    with pytest.raises(Exception) as error:
        await api_with_rule.patch("Gadget", "a", lambda obj: obj["metadata"].update(labels=labels), WriteOptions(ADA))
    assert not isinstance(error.value, AttributeError | TypeError)


@pytest.mark.parametrize(("field", "key"), SERVER_ONLY_KEYS)
@pytest.mark.parametrize("user", [ADA, SCOPED])
async def test_t11_server_only_labels_are_dropped_with_a_warning(
    api_with_rule: RegistryFixture, field: str, key: str, user: User
) -> None:
    options = WriteOptions(user)
    body = api_with_rule.build_object("Gadget", "a", metadata={field: {key: "mine", "other": "x"}})
    assert (await api_with_rule.submit("Gadget", body, options))["metadata"][field] == {"other": "x"}
    assert options.warnings == [f"metadata.{field}[{key}] is set by the server only; it was dropped"]
    after = await api_with_rule.patch(
        "Gadget", "a", set_metadata(field, **{key: "mine", "other": "y"}), WriteOptions(user)
    )
    assert after["metadata"][field] == {"other": "y"}
    after = await api_with_rule.patch("Gadget", "a", set_metadata(field, **{key: "mine"}), WriteOptions(user))
    assert field not in after["metadata"]
    await api_with_rule.patch("Gadget", "a", set_metadata(field, **{key: "mine"}), WriteOptions(ADMIN))
    after = await api_with_rule.patch(
        "Gadget", "a", set_metadata(field, **{key: "mine", "other": "z"}), WriteOptions(user)
    )
    assert after["metadata"][field] == {key: "mine", "other": "z"}


async def test_t11_a_new_namespace_cannot_carry_the_project_label(api_with_rule: RegistryFixture) -> None:
    body = api_with_rule.build_object("Namespace", "free", metadata={"labels": {"service.sh/project": "theirs"}})
    created = await api_with_rule.submit("Namespace", body, WriteOptions(ADA))
    assert "service.sh/project" not in created["metadata"]["labels"]
