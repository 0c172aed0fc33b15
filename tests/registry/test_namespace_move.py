"""Moving objects to another namespace: all or nothing, with what depends on them, whoever comes in between."""

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
from tests.harness.registry import ADA, RegistryFixture, as_ada, open_registry

HERE, THERE = "demo", "default"


def allowed(parts: Sequence[MovedObject]) -> None:
    return None


async def moved(
    api: RegistryFixture, name: str = "a", *, writing: WriteOptions | None = None, **fields: Any
) -> MoveResult:
    what = {"required_active": (), "check_access": allowed, "source": HERE, "target": THERE, **fields}
    return await move(api.registry, MoveRequest(api.of("ConfigMap"), name, **what), writing or as_ada())


def owner(obj: Object, **more: Any) -> Object:
    meta = metadata(obj)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"], **more}


async def owned(api: RegistryFixture, name: str, *owners: Object, kind: str = "ConfigMap") -> Object:
    return await api.create(kind, name, metadata={"ownerReferences": [owner(each) for each in owners]})


def at(api: RegistryFixture, namespace: str, kind: str = "ConfigMap") -> dict[str, Object]:
    """The objects in a namespace by name, as the view has them."""
    declared = api.of(kind).kind
    found = api.view.entries(declared.group, declared.plural, namespace)
    return {entry.key[3]: decode(entry) for entry in found}


async def everything(api: RegistryFixture) -> list[Record]:
    return list((await api.store.scan(())).records)


async def test_it_is_there_and_no_longer_here(api: RegistryFixture) -> None:
    made = await api.create(
        "ConfigMap",
        "a",
        data={"k": "v"},
        metadata={"labels": {"l": "1"}, "finalizers": ["x/y"], "annotations": {"n": "2"}},
    )
    await asyncio.sleep(60)
    answer = await moved(api)
    (there,) = at(api, THERE).values()
    assert at(api, HERE) == {}
    assert (there["data"], there["metadata"]["labels"]) == ({"k": "v"}, {"l": "1"})
    assert (there["metadata"]["finalizers"], there["metadata"]["annotations"]) == (["x/y"], {"n": "2"})
    assert there["metadata"]["managedFields"] == made["metadata"]["managedFields"]
    for new in ("uid", "resourceVersion", "creationTimestamp"):
        assert there["metadata"][new] != made["metadata"][new]
    assert (answer.old, answer.new, answer.dependents) == (made, there, 0)


async def test_status_and_generation_stay(api: RegistryFixture) -> None:
    body = api.body("DevPodWorkspaceInstance", "w", spec={"displayName": "w"})
    await api.submit("DevPodWorkspaceInstance", body)
    await api.patch("DevPodWorkspaceInstance", "w", lambda obj: obj["spec"].update(displayName="v"))
    status = {"phase": "Ready"}
    await api.patch("DevPodWorkspaceInstance", "w", lambda obj: obj.update(status=status), as_ada(subresource="status"))
    what = MoveRequest(api.of("DevPodWorkspaceInstance"), "w", HERE, THERE, (), allowed)
    answer = await move(api.registry, what, as_ada())
    assert (answer.new["status"]["phase"], answer.new["metadata"]["generation"]) == ("Ready", 2)


async def test_dependants_move_along_and_refer_to_whom_they_followed(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    second = await owned(api, "b", first, kind="Secret")
    await owned(api, "c", second, first)
    await api.create("ConfigMap", "stays")
    answer = await moved(api)
    there, secrets = at(api, THERE), at(api, THERE, "Secret")
    assert (set(there), set(secrets), answer.dependents) == ({"a", "c"}, {"b"}, 2)
    assert (set(at(api, HERE)), at(api, HERE, "Secret")) == ({"stays"}, {})
    assert secrets["b"]["metadata"]["ownerReferences"] == [owner(there["a"])]
    assert there["c"]["metadata"]["ownerReferences"] == [owner(secrets["b"]), owner(there["a"])]
    assert secrets["b"]["metadata"]["uid"] != second["metadata"]["uid"]


async def test_owners_in_a_circle_move_together(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    second = await owned(api, "b", first)
    await api.patch("ConfigMap", "a", lambda obj: metadata(obj).update(ownerReferences=[owner(second)]))
    await moved(api)
    there = at(api, THERE)
    assert there["a"]["metadata"]["ownerReferences"] == [owner(there["b"])]
    assert there["b"]["metadata"]["ownerReferences"] == [owner(there["a"])]
    assert at(api, HERE) == {}


async def test_only_who_means_this_very_object_depends_on_it(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    for name, wrong in (("b", {"uid": "another"}), ("c", {"name": "z"}), ("d", {"kind": "Secret"})):
        await api.create("ConfigMap", name, metadata={"ownerReferences": [{**owner(first), **wrong}]})
    await moved(api)
    assert set(at(api, HERE)) == {"b", "c", "d"}


async def test_an_owner_that_stays_is_no_owner_any_more_and_the_mover_is_told(api: RegistryFixture) -> None:
    first, other = await api.create("ConfigMap", "a"), await api.create("ConfigMap", "o")
    gadget = await api.create("Gadget", "g", spec={})
    await owned(api, "b", first, other, gadget)
    writing = as_ada()
    await moved(api, writing=writing)
    there = at(api, THERE)
    assert there["b"]["metadata"]["ownerReferences"] == [owner(there["a"]), owner(gadget)]
    assert writing.warnings == ['ConfigMap "b" loses its ownerReference to ConfigMap "o", which does not move']


async def test_what_is_being_deleted_goes_on_being_deleted_where_it_has_moved_to(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await api.create("ConfigMap", "b", metadata={"ownerReferences": [owner(first)], "finalizers": ["x/y"]})
    await api.delete("ConfigMap", "b")
    await moved(api)
    there = at(api, THERE)["b"]["metadata"]
    assert there["deletionTimestamp"]
    assert there["finalizers"] == ["x/y"]


async def test_it_is_one_commit_and_its_ends_come_first(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await owned(api, "b", first)
    since = api.view.revision
    watcher = api.view.watch("", "configmaps", "", since, 100)
    await moved(api)
    seen = [(each.key[2], each.key[3], each.current is None, each.revision) for each in watcher.drain()]
    expected = [(HERE, "a", True), (HERE, "b", True), (THERE, "a", False), (THERE, "b", False)]
    assert [each[:3] for each in seen] == expected
    assert {each[3] for each in seen} == {since + 1}


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_name_that_is_taken_stops_all_of_it(api: RegistryFixture, name: str) -> None:
    first = await api.create("ConfigMap", "a")
    await owned(api, "b", first)
    await api.create("ConfigMap", name, THERE)
    before = await everything(api)
    for dry in (True, False):
        with pytest.raises(AlreadyExists, match=f'configmaps "{name}" already exists in the namespace default') as told:
            await moved(api, writing=as_ada(dry_run=dry))
        assert ("has the same name" in told.value.message) == (name == "b")
    assert await everything(api) == before


async def test_a_name_that_is_taken_at_the_last_moment_stops_it_too(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")

    async def taken() -> None:
        api.store.before.clear()
        await api.create("ConfigMap", "a", THERE)

    api.store.before.append(taken)
    with pytest.raises(AlreadyExists):
        await moved(api)
    assert set(at(api, HERE)) == {"a"}


async def test_what_is_being_deleted_does_not_move(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a", metadata={"finalizers": ["x/y"]})
    await api.delete("ConfigMap", "a")
    with pytest.raises(Conflict, match="it is being deleted"):
        await moved(api)


async def test_what_is_not_there_does_not_move(api: RegistryFixture) -> None:
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await moved(api)


async def test_it_goes_into_no_namespace_that_is_missing(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await moved(api, target="nowhere")
    assert set(at(api, HERE)) == {"a"}


async def test_it_goes_into_no_namespace_that_is_about_to_go(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")
    await api.create("Namespace", "ending")
    await api.delete("Namespace", "ending")
    with pytest.raises(Forbidden, match="being terminated"):
        await moved(api, target="ending")


async def test_what_must_live_is_looked_at_and_must_still_live_at_the_commit(api: RegistryFixture) -> None:
    await api.create("ConfigMap", "a")
    gadgets = api.of("Gadget")
    with pytest.raises(NotFound, match="gadgets"):
        await moved(api, required_active=((gadgets, "g"),))
    await api.create("Gadget", "g", spec={}, metadata={"finalizers": ["x/y"]})

    async def ending() -> None:
        api.store.before.clear()
        await api.delete("Gadget", "g")

    api.store.before.append(ending)
    with pytest.raises(Conflict, match='"g": it is being deleted'):
        await moved(api, required_active=((gadgets, "g"),))
    assert set(at(api, HERE)) == {"a"}


async def test_a_change_at_the_last_moment_moves_along(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await owned(api, "b", first)

    async def changed() -> None:
        api.store.before.clear()
        await api.patch("ConfigMap", "b", lambda obj: obj.update(data={"late": "yes"}))

    api.store.before.append(changed)
    await moved(api)
    assert at(api, THERE)["b"]["data"] == {"late": "yes"}


async def test_who_may_not_is_asked_on_every_attempt(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    asked: list[list[str]] = []

    async def one_more() -> None:
        api.store.before.clear()
        await owned(api, "b", first)
        await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"touched": "yes"}))

    def allow(parts: Sequence[MovedObject]) -> None:
        asked.append([f"{part.kind.plural}/{part.name}" for part in parts])
        if len(parts) > 1:
            raise Forbidden("not that one")

    api.store.before.append(one_more)
    with pytest.raises(Forbidden, match="not that one"):
        await moved(api, check_access=allow)
    assert asked == [["configmaps/a"], ["configmaps/a", "configmaps/b"]]


async def test_every_object_is_admitted_as_deleted_here_and_created_there_by_whoever_moves_it() -> None:
    seen: list[tuple[str, str, str, str]] = []

    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        seen.append((change.verb, meta["namespace"] if change.kind.namespaced else "", meta["name"], change.user.name))

    async with open_registry(rules=(rule,)) as api:
        first = await api.create("ConfigMap", "a")
        await owned(api, "b", first)
        seen.clear()
        await moved(api)
    ends = [("delete", HERE, "a", ADA.name), ("delete", HERE, "b", ADA.name)]
    assert seen == [*ends, ("create", THERE, "a", ADA.name), ("create", THERE, "b", ADA.name)]


async def test_a_rule_that_refuses_stops_all_of_it() -> None:
    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        if (change.verb, meta.get("name"), meta.get("namespace")) == ("create", "b", THERE):
            raise Forbidden("exceeded quota")

    async with open_registry(rules=(rule,)) as api:
        first = await api.create("ConfigMap", "a")
        await owned(api, "b", first)
        before = await everything(api)
        with pytest.raises(Forbidden, match="exceeded quota"):
            await moved(api)
        assert await everything(api) == before


async def test_a_dry_run_leaves_everything_as_it_is(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await owned(api, "b", first)
    before = await everything(api)
    answer = await moved(api, writing=as_ada(dry_run=True))
    assert (answer.new["metadata"]["namespace"], answer.dependents) == (THERE, 1)
    assert await everything(api) == before


async def test_of_many_who_move_one_object_exactly_one_does(api: RegistryFixture) -> None:
    first = await api.create("ConfigMap", "a")
    await owned(api, "b", first)
    places = [f"place-{number}" for number in range(5)]
    for place in places:
        await api.create("Namespace", place)
    races = (moved(api, target=places[number % 5]) for number in range(50))
    answers = await asyncio.gather(*races, return_exceptions=True)
    (winner,) = [answer for answer in answers if isinstance(answer, MoveResult)]
    assert {type(answer) for answer in answers if answer is not winner} <= {NotFound, AlreadyExists}
    homes = [place for place in (HERE, *places) if at(api, place)]
    assert homes == [winner.new["metadata"]["namespace"]]
    assert set(at(api, homes[0])) == {"a", "b"}


async def test_moving_and_deleting_at_once_ends_in_one_of_the_two(api: RegistryFixture) -> None:
    for _ in range(10):
        await api.create("ConfigMap", "a")

        async def deleted() -> object:
            return await api.of("ConfigMap").delete(HERE, "a", DeleteOptions(), as_ada())

        answers = await asyncio.gather(moved(api), deleted(), return_exceptions=True)
        assert sum(isinstance(answer, ApiError) for answer in answers) == 1
        assert at(api, HERE) == {}
        if "a" in at(api, THERE):
            await api.of("ConfigMap").delete(THERE, "a", DeleteOptions(), as_ada())
