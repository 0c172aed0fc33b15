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
from tests.harness.registry import ADA, World, as_ada, new_world

HERE, THERE = "demo", "default"


def allowed(parts: Sequence[MovedObject]) -> None:
    return None


async def moved(world: World, name: str = "a", *, writing: WriteOptions | None = None, **fields: Any) -> MoveResult:
    what = {"required_active": (), "check_access": allowed, "source": HERE, "target": THERE, **fields}
    return await move(world.registry, MoveRequest(world.of("ConfigMap"), name, **what), writing or as_ada())


def owner(obj: Object, **more: Any) -> Object:
    meta = metadata(obj)
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"], **more}


async def owned(world: World, name: str, *owners: Object, kind: str = "ConfigMap") -> Object:
    return await world.create(kind, name, metadata={"ownerReferences": [owner(each) for each in owners]})


def at(world: World, namespace: str, kind: str = "ConfigMap") -> dict[str, Object]:
    """The objects in a namespace by name, as the view has them."""
    declared = world.of(kind).kind
    found = world.view.entries(declared.group, declared.plural, namespace)
    return {entry.key[3]: decode(entry) for entry in found}


async def everything(world: World) -> list[Record]:
    return list((await world.store.scan(())).records)


async def test_it_is_there_and_no_longer_here(world: World) -> None:
    made = await world.create(
        "ConfigMap",
        "a",
        data={"k": "v"},
        metadata={"labels": {"l": "1"}, "finalizers": ["x/y"], "annotations": {"n": "2"}},
    )
    await asyncio.sleep(60)
    answer = await moved(world)
    (there,) = at(world, THERE).values()
    assert at(world, HERE) == {}
    assert (there["data"], there["metadata"]["labels"]) == ({"k": "v"}, {"l": "1"})
    assert (there["metadata"]["finalizers"], there["metadata"]["annotations"]) == (["x/y"], {"n": "2"})
    assert there["metadata"]["managedFields"] == made["metadata"]["managedFields"]
    for new in ("uid", "resourceVersion", "creationTimestamp"):
        assert there["metadata"][new] != made["metadata"][new]
    assert (answer.old, answer.new, answer.dependents) == (made, there, 0)


async def test_status_and_generation_stay(world: World) -> None:
    body = world.body("DevPodWorkspaceInstance", "w", spec={"displayName": "w"})
    await world.submit("DevPodWorkspaceInstance", body)
    await world.patch("DevPodWorkspaceInstance", "w", lambda obj: obj["spec"].update(displayName="v"))
    status = {"phase": "Ready"}
    await world.patch(
        "DevPodWorkspaceInstance", "w", lambda obj: obj.update(status=status), as_ada(subresource="status")
    )
    what = MoveRequest(world.of("DevPodWorkspaceInstance"), "w", HERE, THERE, (), allowed)
    answer = await move(world.registry, what, as_ada())
    assert (answer.new["status"]["phase"], answer.new["metadata"]["generation"]) == ("Ready", 2)


async def test_dependants_move_along_and_refer_to_whom_they_followed(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    second = await owned(world, "b", first, kind="Secret")
    await owned(world, "c", second, first)
    await world.create("ConfigMap", "stays")
    answer = await moved(world)
    there, secrets = at(world, THERE), at(world, THERE, "Secret")
    assert (set(there), set(secrets), answer.dependents) == ({"a", "c"}, {"b"}, 2)
    assert (set(at(world, HERE)), at(world, HERE, "Secret")) == ({"stays"}, {})
    assert secrets["b"]["metadata"]["ownerReferences"] == [owner(there["a"])]
    assert there["c"]["metadata"]["ownerReferences"] == [owner(secrets["b"]), owner(there["a"])]
    assert secrets["b"]["metadata"]["uid"] != second["metadata"]["uid"]


async def test_owners_in_a_circle_move_together(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    second = await owned(world, "b", first)
    await world.patch("ConfigMap", "a", lambda obj: metadata(obj).update(ownerReferences=[owner(second)]))
    await moved(world)
    there = at(world, THERE)
    assert there["a"]["metadata"]["ownerReferences"] == [owner(there["b"])]
    assert there["b"]["metadata"]["ownerReferences"] == [owner(there["a"])]
    assert at(world, HERE) == {}


async def test_only_who_means_this_very_object_depends_on_it(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    for name, wrong in (("b", {"uid": "another"}), ("c", {"name": "z"}), ("d", {"kind": "Secret"})):
        await world.create("ConfigMap", name, metadata={"ownerReferences": [{**owner(first), **wrong}]})
    await moved(world)
    assert set(at(world, HERE)) == {"b", "c", "d"}


async def test_an_owner_that_stays_is_no_owner_any_more_and_the_mover_is_told(world: World) -> None:
    first, other = await world.create("ConfigMap", "a"), await world.create("ConfigMap", "o")
    gadget = await world.create("Gadget", "g", spec={})
    await owned(world, "b", first, other, gadget)
    writing = as_ada()
    await moved(world, writing=writing)
    there = at(world, THERE)
    assert there["b"]["metadata"]["ownerReferences"] == [owner(there["a"]), owner(gadget)]
    assert writing.warnings == ['ConfigMap "b" loses its ownerReference to ConfigMap "o", which does not move']


async def test_what_is_being_deleted_goes_on_being_deleted_where_it_has_moved_to(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    await world.create("ConfigMap", "b", metadata={"ownerReferences": [owner(first)], "finalizers": ["x/y"]})
    await world.delete("ConfigMap", "b")
    await moved(world)
    there = at(world, THERE)["b"]["metadata"]
    assert there["deletionTimestamp"]
    assert there["finalizers"] == ["x/y"]


async def test_it_is_one_commit_and_its_ends_come_first(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    await owned(world, "b", first)
    since = world.view.revision
    watcher = world.view.watch("", "configmaps", "", since, 100)
    await moved(world)
    seen = [(each.key[2], each.key[3], each.current is None, each.revision) for each in watcher.drain()]
    expected = [(HERE, "a", True), (HERE, "b", True), (THERE, "a", False), (THERE, "b", False)]
    assert [each[:3] for each in seen] == expected
    assert {each[3] for each in seen} == {since + 1}


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_name_that_is_taken_stops_all_of_it(world: World, name: str) -> None:
    first = await world.create("ConfigMap", "a")
    await owned(world, "b", first)
    await world.create("ConfigMap", name, THERE)
    before = await everything(world)
    for dry in (True, False):
        with pytest.raises(AlreadyExists, match=f'configmaps "{name}" already exists in the namespace default') as told:
            await moved(world, writing=as_ada(dry_run=dry))
        assert ("has the same name" in told.value.message) == (name == "b")
    assert await everything(world) == before


async def test_a_name_that_is_taken_at_the_last_moment_stops_it_too(world: World) -> None:
    await world.create("ConfigMap", "a")

    async def taken() -> None:
        world.store.before.clear()
        await world.create("ConfigMap", "a", THERE)

    world.store.before.append(taken)
    with pytest.raises(AlreadyExists):
        await moved(world)
    assert set(at(world, HERE)) == {"a"}


async def test_what_is_being_deleted_does_not_move(world: World) -> None:
    await world.create("ConfigMap", "a", metadata={"finalizers": ["x/y"]})
    await world.delete("ConfigMap", "a")
    with pytest.raises(Conflict, match="it is being deleted"):
        await moved(world)


async def test_what_is_not_there_does_not_move(world: World) -> None:
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await moved(world)


async def test_it_goes_into_no_namespace_that_is_missing(world: World) -> None:
    await world.create("ConfigMap", "a")
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await moved(world, target="nowhere")
    assert set(at(world, HERE)) == {"a"}


async def test_it_goes_into_no_namespace_that_is_about_to_go(world: World) -> None:
    await world.create("ConfigMap", "a")
    await world.create("Namespace", "ending")
    await world.delete("Namespace", "ending")
    with pytest.raises(Forbidden, match="being terminated"):
        await moved(world, target="ending")


async def test_what_must_live_is_looked_at_and_must_still_live_at_the_commit(world: World) -> None:
    await world.create("ConfigMap", "a")
    gadgets = world.of("Gadget")
    with pytest.raises(NotFound, match="gadgets"):
        await moved(world, required_active=((gadgets, "g"),))
    await world.create("Gadget", "g", spec={}, metadata={"finalizers": ["x/y"]})

    async def ending() -> None:
        world.store.before.clear()
        await world.delete("Gadget", "g")

    world.store.before.append(ending)
    with pytest.raises(Conflict, match='"g": it is being deleted'):
        await moved(world, required_active=((gadgets, "g"),))
    assert set(at(world, HERE)) == {"a"}


async def test_a_change_at_the_last_moment_moves_along(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    await owned(world, "b", first)

    async def changed() -> None:
        world.store.before.clear()
        await world.patch("ConfigMap", "b", lambda obj: obj.update(data={"late": "yes"}))

    world.store.before.append(changed)
    await moved(world)
    assert at(world, THERE)["b"]["data"] == {"late": "yes"}


async def test_who_may_not_is_asked_on_every_attempt(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    asked: list[list[str]] = []

    async def one_more() -> None:
        world.store.before.clear()
        await owned(world, "b", first)
        await world.patch("ConfigMap", "a", lambda obj: obj.update(data={"touched": "yes"}))

    def allow(parts: Sequence[MovedObject]) -> None:
        asked.append([f"{part.kind.plural}/{part.name}" for part in parts])
        if len(parts) > 1:
            raise Forbidden("not that one")

    world.store.before.append(one_more)
    with pytest.raises(Forbidden, match="not that one"):
        await moved(world, check_access=allow)
    assert asked == [["configmaps/a"], ["configmaps/a", "configmaps/b"]]


async def test_every_object_is_admitted_as_deleted_here_and_created_there_by_whoever_moves_it() -> None:
    seen: list[tuple[str, str, str, str]] = []

    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        seen.append((change.verb, meta["namespace"] if change.kind.namespaced else "", meta["name"], change.user.name))

    async with new_world(rules=(rule,)) as world:
        first = await world.create("ConfigMap", "a")
        await owned(world, "b", first)
        seen.clear()
        await moved(world)
    ends = [("delete", HERE, "a", ADA.name), ("delete", HERE, "b", ADA.name)]
    assert seen == [*ends, ("create", THERE, "a", ADA.name), ("create", THERE, "b", ADA.name)]


async def test_a_rule_that_refuses_stops_all_of_it() -> None:
    async def rule(change: Change, registry: Registry) -> None:
        meta = metadata(change.obj)
        if (change.verb, meta.get("name"), meta.get("namespace")) == ("create", "b", THERE):
            raise Forbidden("exceeded quota")

    async with new_world(rules=(rule,)) as world:
        first = await world.create("ConfigMap", "a")
        await owned(world, "b", first)
        before = await everything(world)
        with pytest.raises(Forbidden, match="exceeded quota"):
            await moved(world)
        assert await everything(world) == before


async def test_a_dry_run_leaves_everything_as_it_is(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    await owned(world, "b", first)
    before = await everything(world)
    answer = await moved(world, writing=as_ada(dry_run=True))
    assert (answer.new["metadata"]["namespace"], answer.dependents) == (THERE, 1)
    assert await everything(world) == before


async def test_of_many_who_move_one_object_exactly_one_does(world: World) -> None:
    first = await world.create("ConfigMap", "a")
    await owned(world, "b", first)
    places = [f"place-{number}" for number in range(5)]
    for place in places:
        await world.create("Namespace", place)
    races = (moved(world, target=places[number % 5]) for number in range(50))
    answers = await asyncio.gather(*races, return_exceptions=True)
    (winner,) = [answer for answer in answers if isinstance(answer, MoveResult)]
    assert {type(answer) for answer in answers if answer is not winner} <= {NotFound, AlreadyExists}
    homes = [place for place in (HERE, *places) if at(world, place)]
    assert homes == [winner.new["metadata"]["namespace"]]
    assert set(at(world, homes[0])) == {"a", "b"}


async def test_moving_and_deleting_at_once_ends_in_one_of_the_two(world: World) -> None:
    for _ in range(10):
        await world.create("ConfigMap", "a")

        async def deleted() -> object:
            return await world.of("ConfigMap").delete(HERE, "a", DeleteOptions(), as_ada())

        answers = await asyncio.gather(moved(world), deleted(), return_exceptions=True)
        assert sum(isinstance(answer, ApiError) for answer in answers) == 1
        assert at(world, HERE) == {}
        if "a" in at(world, THERE):
            await world.of("ConfigMap").delete(THERE, "a", DeleteOptions(), as_ada())
