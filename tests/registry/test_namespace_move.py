"""registry/namespace_move.py: moves objects with their dependents to another namespace, all or nothing."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from fairlead.core.objects import Object, metadata
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.namespace_move import MovedObject, MoveRequest, MoveResult, move
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.storage.contract import Record
from tests.harness.registry import ADA, RegistryFixture, open_registry, write_options

SOURCE, TARGET = "demo", "default"


def allow_access(parts: Sequence[MovedObject]) -> None:
    return None


async def move_object(
    api: RegistryFixture, name: str = "a", *, writing: WriteOptions | None = None, **fields: Any
) -> MoveResult:
    request = {"required_active": (), "check_access": allow_access, "source": SOURCE, "target": TARGET, **fields}
    return await move(api.registry, MoveRequest(api.resource("ConfigMap"), name, **request), writing or write_options())


def owner_reference(obj: Object, **more: Any) -> Object:
    meta = metadata(obj)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"], **more}


async def create_dependent(api: RegistryFixture, name: str, *owners: Object, kind: str = "ConfigMap") -> Object:
    return await api.create(kind, name, metadata={"ownerReferences": [owner_reference(each) for each in owners]})


def objects_in(api: RegistryFixture, namespace: str, kind: str = "ConfigMap") -> dict[str, Object]:
    """Returns the cached objects of a namespace by name."""
    declared = api.resource(kind).kind
    found = api.view.entries(declared.group, declared.plural, namespace)
    return {entry.key[3]: decode(entry) for entry in found}


async def scan_all(api: RegistryFixture) -> list[Record]:
    return list((await api.store.scan(())).records)


async def test_the_object_is_in_the_target_and_no_longer_in_the_source_namespace(api: RegistryFixture) -> None:
    created = await api.create(
        "ConfigMap",
        "a",
        data={"k": "v"},
        metadata={"labels": {"l": "1"}, "finalizers": ["x/y"], "annotations": {"n": "2"}},
    )
    await asyncio.sleep(60)
    result = await move_object(api)
    (moved,) = objects_in(api, TARGET).values()
    assert objects_in(api, SOURCE) == {}
    assert (moved["data"], moved["metadata"]["labels"]) == ({"k": "v"}, {"l": "1"})
    assert (moved["metadata"]["finalizers"], moved["metadata"]["annotations"]) == (["x/y"], {"n": "2"})
    assert moved["metadata"]["managedFields"] == created["metadata"]["managedFields"]
    for new in ("uid", "resourceVersion", "creationTimestamp"):
        assert moved["metadata"][new] != created["metadata"][new]
    assert (result.old, result.new, result.others) == (created, moved, [])


async def test_status_and_generation_are_kept(api: RegistryFixture) -> None:
    body = api.build_object("DevPodWorkspaceInstance", "w", spec={"displayName": "w"})
    await api.submit("DevPodWorkspaceInstance", body)
    await api.patch("DevPodWorkspaceInstance", "w", lambda obj: obj["spec"].update(displayName="v"))
    status = {"phase": "Ready"}
    await api.patch(
        "DevPodWorkspaceInstance", "w", lambda obj: obj.update(status=status), write_options(subresource="status")
    )
    request = MoveRequest(api.resource("DevPodWorkspaceInstance"), "w", SOURCE, TARGET, (), allow_access)
    result = await move(api.registry, request, write_options())
    assert (result.new["status"]["phase"], result.new["metadata"]["generation"]) == ("Ready", 2)


async def test_dependents_move_too_and_their_owner_references_follow(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    second = await create_dependent(api, "b", first, kind="Secret")
    await create_dependent(api, "c", second, first)
    await api.create("ConfigMap", "stays")
    result = await move_object(api)
    moved, secrets = objects_in(api, TARGET), objects_in(api, TARGET, "Secret")
    assert (set(moved), set(secrets), len(result.others)) == ({"a", "c"}, {"b"}, 2)
    assert (set(objects_in(api, SOURCE)), objects_in(api, SOURCE, "Secret")) == ({"stays"}, {})
    assert secrets["b"]["metadata"]["ownerReferences"] == [owner_reference(moved["a"])]
    assert moved["c"]["metadata"]["ownerReferences"] == [owner_reference(secrets["b"]), owner_reference(moved["a"])]
    assert secrets["b"]["metadata"]["uid"] != second["metadata"]["uid"]


async def test_objects_that_own_each_other_move_together(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    second = await create_dependent(api, "b", first)
    await api.patch("ConfigMap", "a", lambda obj: metadata(obj).update(ownerReferences=[owner_reference(second)]))
    await move_object(api)
    moved = objects_in(api, TARGET)
    assert moved["a"]["metadata"]["ownerReferences"] == [owner_reference(moved["b"])]
    assert moved["b"]["metadata"]["ownerReferences"] == [owner_reference(moved["a"])]
    assert objects_in(api, SOURCE) == {}


async def test_only_objects_that_refer_to_the_exact_owner_depend_on_it(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    for name, wrong in (("b", {"uid": "another"}), ("c", {"name": "z"}), ("d", {"kind": "Secret"})):
        await api.create("ConfigMap", name, metadata={"ownerReferences": [{**owner_reference(first), **wrong}]})
    await move_object(api)
    assert set(objects_in(api, SOURCE)) == {"b", "c", "d"}


async def test_an_owner_reference_to_an_object_that_stays_is_dropped_with_a_warning(api: RegistryFixture) -> None:
    first, other = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "o")
    gadget = await api.create("Gadget", "g", spec={})
    await create_dependent(api, "b", first, other, gadget)
    writing = write_options()
    await move_object(api, writing=writing)
    moved = objects_in(api, TARGET)
    assert moved["b"]["metadata"]["ownerReferences"] == [owner_reference(moved["a"]), owner_reference(gadget)]
    assert writing.warnings == ['ConfigMap "b" loses its ownerReference to ConfigMap "o", which does not move']


async def test_a_dependent_being_deleted_stays_so_after_the_move(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await api.create("ConfigMap", "b", metadata={"ownerReferences": [owner_reference(first)], "finalizers": ["x/y"]})
    await api.delete("ConfigMap", "b")
    await move_object(api)
    moved = objects_in(api, TARGET)["b"]["metadata"]
    assert moved["deletionTimestamp"]
    assert moved["finalizers"] == ["x/y"]


async def test_a_move_is_one_commit_with_the_deletions_first(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await create_dependent(api, "b", first)
    since = api.view.revision
    watcher = api.view.watch("", "configmaps", "", since, 100)
    await move_object(api)
    changes = [(each.key[2], each.key[3], each.current is None, each.revision) for each in watcher.drain()]
    expected = [(SOURCE, "a", True), (SOURCE, "b", True), (TARGET, "a", False), (TARGET, "b", False)]
    assert [each[:3] for each in changes] == expected
    assert {each[3] for each in changes} == {since + 1}


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_name_that_exists_in_the_target_rejects_the_move(api: RegistryFixture, name: str) -> None:
    first = await api.create("ConfigMap", "a")
    await create_dependent(api, "b", first)
    await api.create("ConfigMap", name, TARGET)
    before = await scan_all(api)
    for dry_run in (True, False):
        with pytest.raises(
            AlreadyExists, match=f'configmaps "{name}" already exists in the namespace default'
        ) as caught:
            await move_object(api, writing=write_options(dry_run=dry_run))
        assert ("has the same name" in caught.value.message) == (name == "b")
    assert await scan_all(api) == before


async def test_a_name_created_right_before_the_commit_rejects_the_move(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")

    async def create_same_name() -> None:
        api.store.before.clear()
        await api.create("ConfigMap", "a", TARGET)

    api.store.before.append(create_same_name)
    with pytest.raises(AlreadyExists):
        await move_object(api)
    assert set(objects_in(api, SOURCE)) == {"a"}


async def test_an_object_being_deleted_cannot_be_moved(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a", metadata={"finalizers": ["x/y"]})
    await api.delete("ConfigMap", "a")
    with pytest.raises(Conflict, match="it is being deleted"):
        await move_object(api)


async def test_a_missing_object_cannot_be_moved(api: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await move_object(api)


async def test_a_missing_target_namespace_rejects_the_move(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await move_object(api, target="nowhere")
    assert set(objects_in(api, SOURCE)) == {"a"}


async def test_a_terminating_target_namespace_rejects_the_move(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")
    await api.create("Namespace", "ending")
    await api.delete("Namespace", "ending")
    with pytest.raises(Forbidden, match="being terminated"):
        await move_object(api, target="ending")


async def test_required_objects_must_be_active_until_the_commit(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")
    gadgets = api.resource("Gadget")
    with pytest.raises(NotFound, match="gadgets"):
        await move_object(api, required_active=((gadgets, "g"),))
    await api.create("Gadget", "g", spec={}, metadata={"finalizers": ["x/y"]})

    async def delete_gadget() -> None:
        api.store.before.clear()
        await api.delete("Gadget", "g")

    api.store.before.append(delete_gadget)
    with pytest.raises(Conflict, match='"g": it is being deleted'):
        await move_object(api, required_active=((gadgets, "g"),))
    assert set(objects_in(api, SOURCE)) == {"a"}


async def test_a_change_right_before_the_commit_is_moved(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await create_dependent(api, "b", first)

    async def patch_dependent() -> None:
        api.store.before.clear()
        await api.patch("ConfigMap", "b", lambda obj: obj.update(data={"late": "yes"}))

    api.store.before.append(patch_dependent)
    await move_object(api)
    assert objects_in(api, TARGET)["b"]["data"] == {"late": "yes"}


async def test_access_is_checked_on_every_attempt(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    checked: list[list[str]] = []

    async def add_dependent() -> None:
        api.store.before.clear()
        await create_dependent(api, "b", first)
        await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"touched": "yes"}))

    def check_access(parts: Sequence[MovedObject]) -> None:
        checked.append([f"{part.kind.plural}/{part.name}" for part in parts])
        if len(parts) > 1:
            raise Forbidden("not that one")

    api.store.before.append(add_dependent)
    with pytest.raises(Forbidden, match="not that one"):
        await move_object(api, check_access=check_access)
    assert checked == [["configmaps/a"], ["configmaps/a", "configmaps/b"]]


async def test_every_object_is_admitted_as_deleted_and_created_by_the_requesting_user() -> None:
    admitted: list[tuple[str, str, str, str]] = []

    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        admitted.append(
            (change.verb, meta["namespace"] if change.kind.namespaced else "", meta["name"], change.user.name)
        )

    async with open_registry(rules=(rule,)) as api:
        first = await api.create("ConfigMap", "a")
        await create_dependent(api, "b", first)
        admitted.clear()
        await move_object(api)
    deletions = [("delete", SOURCE, "a", ADA.name), ("delete", SOURCE, "b", ADA.name)]
    assert admitted == [*deletions, ("create", TARGET, "a", ADA.name), ("create", TARGET, "b", ADA.name)]


async def test_an_admission_rule_that_rejects_one_object_rejects_the_move() -> None:
    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        if (change.verb, meta.get("name"), meta.get("namespace")) == ("create", "b", TARGET):
            raise Forbidden("exceeded quota")

    async with open_registry(rules=(rule,)) as api:
        first = await api.create("ConfigMap", "a")
        await create_dependent(api, "b", first)
        before = await scan_all(api)
        with pytest.raises(Forbidden, match="exceeded quota"):
            await move_object(api)
        assert await scan_all(api) == before


async def test_a_dry_run_changes_nothing(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await create_dependent(api, "b", first)
    before = await scan_all(api)
    result = await move_object(api, writing=write_options(dry_run=True))
    assert (result.new["metadata"]["namespace"], len(result.others)) == (TARGET, 1)
    assert await scan_all(api) == before


async def test_of_many_concurrent_moves_of_an_object_exactly_one_succeeds(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await create_dependent(api, "b", first)
    targets = [f"place-{number}" for number in range(5)]
    for namespace in targets:
        await api.create("Namespace", namespace)
    races = (move_object(api, target=targets[number % 5]) for number in range(50))
    results = await asyncio.gather(*races, return_exceptions=True)
    (winner,) = [result for result in results if isinstance(result, MoveResult)]
    assert {type(result) for result in results if result is not winner} <= {NotFound, AlreadyExists}
    holding = [namespace for namespace in (SOURCE, *targets) if objects_in(api, namespace)]
    assert holding == [winner.new["metadata"]["namespace"]]
    assert set(objects_in(api, holding[0])) == {"a", "b"}


async def test_of_a_concurrent_move_and_delete_exactly_one_succeeds(api: RegistryFixture) -> None:
    for _ in range(10):
        await api.create("ConfigMap", "a")

        async def delete_source() -> object:
            return await api.resource("ConfigMap").delete(SOURCE, "a", DeleteOptions(), write_options())

        results = await asyncio.gather(move_object(api), delete_source(), return_exceptions=True)
        assert sum(isinstance(result, ApiError) for result in results) == 1
        assert objects_in(api, SOURCE) == {}
        if "a" in objects_in(api, TARGET):
            await api.resource("ConfigMap").delete(TARGET, "a", DeleteOptions(), write_options())
