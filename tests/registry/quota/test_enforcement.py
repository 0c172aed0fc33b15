"""The quotas on what is stored: per namespace and per user, for every kind and verb, with concurrent writers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from fairlead.admission.quotas import release_storage_locks
from fairlead.core.errors import ApiError, Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.codec import entry_builder
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.quota.charged_user import CHARGED_USER
from fairlead.registry.quota.enforcement import FREE_BYTES, StorageLimits, StorageQuota, storage_lock_key
from fairlead.registry.quota.usage import NO_USAGE, StorageUsage, StoredUsage, stored_size
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, open_registry

BOB, ROOT = User("bob"), User("root", ("system:masters",))
RUNNER = User("service:runner:r1", ("service:runners", "service:runner:r1"))
PLENTY = StoredUsage(10**6, 10**9)


@asynccontextmanager
async def open_limited(user: StoredUsage = PLENTY, namespace: StoredUsage = PLENTY) -> AsyncIterator[RegistryFixture]:
    async with open_registry() as api:
        yield api.with_quota(StorageLimits(namespace, user), release_storage_locks(GROUP, (RUNNER_COMPONENT,)))


def usage(api: RegistryFixture) -> StorageUsage:
    assert api.registry.quota is not None
    return api.registry.quota.usage


async def create(
    api: RegistryFixture, name: str, size: int = 10, user: User = ADA, kind: str = "ConfigMap", namespace: str = ""
) -> Object:
    body = api.build_object(kind, name, namespace, metadata={"annotations": {"text": "x" * size}})
    if kind == "Event":
        body["involvedObject"] = {"namespace": namespace or NAMESPACE}
    return await api.submit(kind, body, WriteOptions(user, "tests"))


async def annotate(api: RegistryFixture, name: str, size: int, user: User = ADA, **options: Any) -> Object:
    def edit(obj: Object) -> None:
        obj["metadata"].setdefault("annotations", {})["text"] = "x" * size

    return await api.patch("ConfigMap", name, edit, WriteOptions(user, "tests", **options))


def counted(api: RegistryFixture) -> dict[str, StoredUsage]:
    """What the objects in the view have, by user and by namespace, counted one by one."""
    found: dict[str, StoredUsage] = {}
    for kind in api.registry.catalog.kinds:
        for entry in api.view.entries(kind.group, kind.plural) if kind.conversion is None else ():
            user = (orjson.loads(entry.body)["metadata"].get("annotations") or {}).get(CHARGED_USER)
            is_counted_in_namespace = entry.key[2] and (user or kind.plural != "events")
            for subject in ((entry.key[2],) if is_counted_in_namespace else ()) + ((f"user {user}",) if user else ()):
                before = found.get(subject, NO_USAGE)
                found[subject] = StoredUsage(before.objects + 1, before.bytes + stored_size(entry))
    return found


async def test_the_object_over_the_limit_of_a_user_is_rejected_with_advice() -> None:
    async with open_limited(user=StoredUsage(2, 10**6)) as api:
        await create(api, "a")
        await create(api, "b")
        with pytest.raises(Forbidden) as error:
            await create(api, "c")
        assert error.value.message == (
            'configmaps "c" is forbidden: exceeded quota: storage of the user ada, requested: objects=1, '
            "used: objects=2, limited: objects=2; delete objects or make them smaller, or have an administrator raise "
            "the setting stored_objects_per_user"
        )
        await create(api, "bobs", user=BOB)
        await api.delete("ConfigMap", "a")
        await create(api, "c")


async def test_the_bytes_of_all_users_in_a_namespace_are_limited() -> None:
    async with open_limited(namespace=StoredUsage(1000, 60_000)) as api:
        await create(api, "a", 30_000)
        with pytest.raises(Forbidden, match=r"storage of the namespace demo, requested: bytes=.* limited: bytes=60000"):
            await create(api, "b", 30_000, BOB)
        await create(api, "b", 20_000, BOB)
        await create(api, "elsewhere", 50_000, BOB, namespace="default")


async def test_a_user_cannot_spread_over_kinds_and_namespaces() -> None:
    async with open_limited(user=StoredUsage(4, 10**6)) as api:
        await create(api, "a")
        await create(api, "a", kind="Secret", namespace="default")
        await create(api, "a", kind="Lease")
        await create(api, "a", kind="Team")
        for kind in ("ConfigMap", "Event", "SharedSecret", "Team", "ServiceAccount"):
            with pytest.raises(Forbidden, match="storage of the user ada"):
                await create(api, "b", kind=kind)


async def test_the_service_accounts_of_a_namespace_count_together() -> None:
    accounts = [User(f"system:serviceaccount:demo:{name}") for name in ("one", "two")]
    async with open_limited(user=StoredUsage(1, 10**6)) as api:
        await create(api, "a", user=accounts[0])
        with pytest.raises(Forbidden, match="storage of the user system:serviceaccount:demo,"):
            await create(api, "b", user=accounts[1])


async def test_an_impersonator_does_not_get_the_quotas_of_others() -> None:
    async with open_limited(user=StoredUsage(1, 10**6)) as api:
        await create(api, "a", user=replace(BOB, impersonator=ADA))
        with pytest.raises(Forbidden, match="storage of the user ada"):
            await create(api, "b", user=replace(User("eve"), impersonator=ADA))
        await create(api, "c", user=replace(BOB, impersonator=ROOT))
        with pytest.raises(Forbidden, match="storage of the user bob"):
            await create(api, "d", user=BOB)


async def test_growth_by_any_verb_is_limited_and_shrinking_never_is() -> None:
    async with open_limited(user=StoredUsage(10, 40_000)) as api:
        await create(api, "a", 20_000)
        await create(api, "b", 5_000)
        with pytest.raises(Forbidden, match="requested: bytes"):
            await annotate(api, "a", 60_000)
        body = api.build_object("ConfigMap", "b", data={"text": "x" * 60_000})
        with pytest.raises(Forbidden, match="requested: bytes"):
            await api.replace("ConfigMap", body, WriteOptions(ADA, "tests"))
        with pytest.raises(Forbidden, match="requested: bytes"):
            await api.resource("ConfigMap").apply(body, NAMESPACE, "b", WriteOptions(ADA, "tests", is_apply=True))
        with pytest.raises(Forbidden, match="requested: bytes"):
            applied = api.build_object("ConfigMap", "new", data={"text": "x" * 60_000})
            await api.resource("ConfigMap").apply(applied, NAMESPACE, "new", WriteOptions(ADA, "tests", is_apply=True))
        await annotate(api, "a", 19_000)


async def test_growth_of_the_status_is_limited() -> None:
    async with open_limited(user=StoredUsage(10, 40_000)) as api:
        await api.submit("Gadget", api.build_object("Gadget", "g", spec={"color": "red"}), WriteOptions(ADA, "tests"))

        def grow(obj: Object) -> None:
            obj["status"] = {"phase": "x" * 1_000}

        await api.patch("Gadget", "g", grow, WriteOptions(ADA, "tests", subresource="status"))
        await create(api, "filler", 30_000)

        def fill(obj: Object) -> None:
            obj["metadata"]["annotations"] = {"text": "x" * 20_000}

        with pytest.raises(Forbidden):
            await api.patch("Gadget", "g", fill, WriteOptions(ADA, "tests"))


async def test_existing_objects_above_the_limit_can_be_read_shrunk_and_deleted() -> None:
    async with open_registry() as api:
        unlimited = api.with_quota(StorageLimits(PLENTY, PLENTY))
        for name in ("a", "b", "c"):
            await create(unlimited, name, 30_000)
        limited = api.with_quota(StorageLimits(StoredUsage(1, 10_000), StoredUsage(1, 10_000)))
        assert limited.get("ConfigMap", "a")
        await annotate(limited, "a", 30_000 - 1)
        await annotate(limited, "a", 29_000)
        with pytest.raises(Forbidden):
            await annotate(limited, "a", 29_001)
        await limited.delete("ConfigMap", "b")
        with pytest.raises(Forbidden):
            await create(limited, "d")


async def test_an_update_that_leaves_an_object_small_is_always_accepted() -> None:
    async with open_limited(user=StoredUsage(10, 2_000), namespace=StoredUsage(10, 2_000)) as api:
        await create(api, "a", 1_000)
        await annotate(api, "a", FREE_BYTES - 1_000)
        with pytest.raises(Forbidden):
            await annotate(api, "a", FREE_BYTES)


async def test_administrators_and_the_server_are_never_rejected_and_fill_no_users_quota() -> None:
    nothing = StoredUsage(0, 0)
    async with open_limited(nothing, nothing) as api:
        for user in (ROOT, CONTROLLER_USER):
            created = await create(api, f"of-{len(user.name)}", 30_000, user)
            assert CHARGED_USER not in created["metadata"]["annotations"]
            await annotate(api, f"of-{len(user.name)}", 60_000, user)
        assert usage(api).of_user("root") == NO_USAGE
        assert usage(api).of_namespace(NAMESPACE).objects == 2


async def test_reports_of_runners_are_accepted_in_a_full_namespace_and_do_not_take_objects_over() -> None:
    async with open_limited(namespace=StoredUsage(1, 3_000)) as api:
        await create(api, "a", 2_000)
        await annotate(api, "a", 40_000, RUNNER)
        assert (api.get("ConfigMap", "a") or {})["metadata"]["annotations"][CHARGED_USER] == "ada"
        with pytest.raises(Forbidden):
            await annotate(api, "a", 100_000, RUNNER)
        await create(api, "report", kind="Event", user=RUNNER)
        assert usage(api).of_user(RUNNER.name).objects == 1


async def test_an_object_counts_for_the_user_who_last_made_it_large() -> None:
    async with open_limited(user=StoredUsage(10, 50_000)) as api:
        await create(api, "a", 20_000)
        await create(api, "b", 20_000)
        assert (await annotate(api, "a", 19_000, BOB))["metadata"]["annotations"][CHARGED_USER] == "ada"
        assert (await annotate(api, "a", 21_000, BOB))["metadata"]["annotations"][CHARGED_USER] == "bob"
        assert (usage(api).of_user("ada").objects, usage(api).of_user("bob").objects) == (1, 1)
        with pytest.raises(Forbidden, match="storage of the user bob, requested: bytes"):
            await annotate(api, "b", 31_000, BOB)


async def test_clients_cannot_say_whom_an_object_counts_for() -> None:
    async with open_limited() as api:
        body = api.build_object("ConfigMap", "a", metadata={"annotations": {CHARGED_USER: "bob", "x": "y"}})
        created = await api.submit("ConfigMap", body, WriteOptions(ADA, "tests"))
        assert created["metadata"]["annotations"] == {CHARGED_USER: "ada", "x": "y"}
        for annotations in (None, {}, {CHARGED_USER: "bob"}, {CHARGED_USER: "bob", "z": "z"}):
            for user in (ADA, BOB, ROOT):
                body["metadata"]["annotations"] = annotations
                replaced = await api.replace("ConfigMap", body, WriteOptions(user, "tests"))
                assert replaced["metadata"]["annotations"][CHARGED_USER] == "ada"
        body = api.build_object("ConfigMap", "of-root", metadata={"annotations": {CHARGED_USER: "bob"}})
        assert "annotations" not in (await api.submit("ConfigMap", body, WriteOptions(ROOT, "tests")))["metadata"]
        fake = {"annotations": {CHARGED_USER: "bob"}, "text": '"annotations":{"quota.service.sh/user":"bob"'}
        await api.submit("Gadget", api.build_object("Gadget", "b", spec={"free": fake}), WriteOptions(ADA, "tests"))
        assert usage(api).of_user("bob") == NO_USAGE
        assert usage(api).of_user("ada").objects == 2


async def test_an_apply_without_the_annotation_keeps_it_and_no_manager_owns_it() -> None:
    async with open_limited() as api:
        configs = api.resource("ConfigMap")
        for text in ("1", "2"):
            body = api.build_object("ConfigMap", "a", metadata={"annotations": {"text": text}})
            answer, _ = await configs.apply(body, NAMESPACE, "a", WriteOptions(ADA, "tests", is_apply=True))
        assert orjson.loads(answer)["metadata"]["annotations"] == {CHARGED_USER: "ada", "text": "2"}
        assert CHARGED_USER not in orjson.dumps(orjson.loads(answer)["metadata"]["managedFields"]).decode()


async def test_annotations_up_to_their_own_limit_can_be_sent_back() -> None:
    async with open_limited() as api:
        created = await create(api, "a", 256 * 1024 - 4)
        created["data"] = {"changed": "yes"}
        assert (await api.replace("ConfigMap", created, WriteOptions(ADA, "tests")))["data"]


async def test_the_counts_are_those_of_the_objects_after_any_change_and_after_a_restart() -> None:
    store = MemoryStore()
    async with open_registry(store) as plain:
        await plain.submit("Namespace", plain.build_object("Namespace", NAMESPACE), WriteOptions(ROOT))
        api = plain.with_quota()
        for number, user in enumerate((ADA, BOB, ROOT, User('strange "\\ \u00fc'), RUNNER)):
            for kind in ("ConfigMap", "Secret", "Event", "Team"):
                await create(api, f"{kind.lower()}-{number}", 100 * number, user, kind)
        await annotate(api, "configmap-0", 9_000, BOB)
        await annotate(api, "configmap-1", 5)
        await api.delete("ConfigMap", "configmap-2")
        await api.delete("Team", "team-1")
        expected = counted(api)
        again = StorageUsage()
        api.view.observe(again)
        for each in (usage(api), again):
            found = {subject: each.of_namespace(subject) for subject in expected if not subject.startswith("user ")}
            found |= {f"user {name}": each.of_user(name) for name in ("ada", "bob", 'strange "\\ \u00fc', RUNNER.name)}
            assert found == expected
        users = dict(usage(api).users_of_namespace(NAMESPACE))
        assert users["ada"].objects == 2
        assert sum(each.objects for each in users.values()) == expected[NAMESPACE].objects - 1


async def test_a_dry_run_is_checked_as_well() -> None:
    async with open_limited(user=StoredUsage(1, 10**6)) as api:
        await create(api, "a")
        with pytest.raises(Forbidden, match="exceeded quota"):
            await api.submit("ConfigMap", api.build_object("ConfigMap", "b"), WriteOptions(ADA, "tests", dry_run=True))


async def create_many(writers: list[RegistryFixture], count: int, size: int) -> int:
    """Creates objects at the same time, through each of the registries in turn. Returns how many were accepted."""
    tasks = [create(writers[number % len(writers)], f"c{number}", size) for number in range(count)]
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [each for each in answers if isinstance(each, BaseException)]
    assert all(isinstance(each, Forbidden) and "exceeded quota" in each.message for each in errors), errors[0]
    return count - len(errors)


@pytest.mark.parametrize("subject", ["user", "namespace"])
async def test_concurrent_creates_stop_exactly_at_the_limit(subject: str) -> None:
    seven = StoredUsage(7, 10**6)
    limits = (seven, PLENTY) if subject == "user" else (PLENTY, seven)
    async with open_limited(*limits) as api:
        assert await create_many([api], 50, 10) == 7


@asynccontextmanager
async def other_process(api: RegistryFixture, limits: StorageLimits) -> AsyncIterator[RegistryFixture]:
    """Another process on the same store, with a view of its own."""
    view, counts = View(api.store, entry_builder(api.registry.catalog)), StorageUsage()
    view.observe(counts)
    await view.start()
    quota = StorageQuota(view, counts, GROUP, limits)

    async def admit(change: object) -> None:
        return None

    registry = Registry(api.registry.catalog, api.store, view, admit, api.clock, quota)
    try:
        yield RegistryFixture(api.store, view, registry, api.clock)
    finally:
        await view.stop()


async def test_writers_in_several_processes_stop_exactly_at_the_limit() -> None:
    limits = StorageLimits(PLENTY, StoredUsage(9, 10**6))
    async with open_limited(limits.user) as api, other_process(api, limits) as two, other_process(api, limits) as three:
        assert await create_many([api, two, three], 60, 10) == 9


async def test_large_writers_in_several_processes_stop_at_the_limit_of_bytes() -> None:
    limits = StorageLimits(PLENTY, StoredUsage(10**6, 16 * 1024 * 1024))
    async with open_limited(limits.user) as api, other_process(api, limits) as two:
        accepted = await create_many([api, two], 90, 250_000)
        used = usage(api).of_user("ada")
        assert used.bytes <= limits.user.bytes < used.bytes + 260_000
        assert accepted == used.objects


async def test_concurrent_growth_stops_at_the_limit() -> None:
    async with open_limited(user=StoredUsage(100, 200_000)) as api:
        for number in range(10):
            await create(api, f"g{number}", 10)
        answers = await asyncio.gather(
            *(annotate(api, f"g{number}", 40_000) for number in range(10)), return_exceptions=True
        )
        assert sum(isinstance(each, dict) for each in answers) == 4
        assert all(isinstance(each, dict | ApiError) for each in answers)
        assert usage(api).of_user("ada").bytes <= 200_000


async def test_far_from_the_limit_no_lock_is_written() -> None:
    async with open_limited(StoredUsage(1_000, 10**8), StoredUsage(1_000, 10**8)) as api:
        await create(api, "a")
        assert [len(writes) for writes, _ in api.store.commits[-1:]] == [1]
        await create(api, "b", 100_000)
        assert [len(writes) for writes, _ in api.store.commits[-1:]] == [3]


async def test_the_locks_are_deleted_with_their_namespace_user_and_runner() -> None:
    async with open_limited(StoredUsage(50, 10**6), StoredUsage(50, 10**6)) as api:
        account = User("system:serviceaccount:spare:one")
        await api.submit("Namespace", api.build_object("Namespace", "spare"), WriteOptions(ROOT))
        for user in (ADA, account, RUNNER):
            await create(api, f"by-{len(user.name)}", user=user, namespace="spare", kind="ConfigMap")
        await api.submit("User", api.build_object("User", "ada", spec={"username": "ada"}), WriteOptions(ROOT))
        await api.submit("Runner", api.build_object("Runner", "r1"), WriteOptions(ROOT))
        subjects = [
            *(("namespace", "spare"), ("user", "ada"), ("user", "system:serviceaccount:spare"), ("user", RUNNER.name)),
        ]
        keys = [storage_lock_key(GROUP, *each) for each in subjects]
        assert all(api.view.get(key) is not None for key in keys)

        def drop(obj: Object) -> None:
            obj["spec"]["finalizers"] = []

        await api.delete("User", "ada", user=ROOT)
        await api.delete("Runner", "r1", user=ROOT)
        await api.delete("Namespace", "spare", user=ROOT)
        await api.patch("Namespace", "spare", drop, WriteOptions(CONTROLLER_USER, "tests", subresource="finalize"))
        assert [api.view.get(key) for key in keys] == [None] * 4
