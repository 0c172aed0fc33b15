"""Quotas: the number of instances per project and per owner, and concurrent writes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission import quotas
from fairlead.admission.quotas import enforce_quotas
from fairlead.core.errors import AlreadyExists, Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.quotas import FORCE_ANNOTATION, LAST_ACTIVITY_ANNOTATION, SLEEPING_SINCE_ANNOTATION
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.quota import write_locks
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import RegistryFixture, open_registry, write_options

KIND, PLURAL, PROJECT_NAMESPACE = "DevPodWorkspaceInstance", "devpodworkspaceinstances", "service-p-p"
LOCK_KEY = write_locks.lock_key(GROUP, "p")


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(enforce_quotas(GROUP, NAMESPACE_PREFIX),)) as fixture:
        yield fixture


async def create_project(api: RegistryFixture, **limits: dict[str, str]) -> None:
    await api.create("Project", "p", spec={"quotas": limits})


async def create_workspace(api: RegistryFixture, name: str, user: str = "", team: str = "", **fields: Any) -> Object:
    owner = {key: value for key, value in (("user", user), ("team", team)) if value}
    return await api.create(KIND, name, PROJECT_NAMESPACE, spec={"owner": owner} if owner else {}, **fields)


async def update_workspace(api: RegistryFixture, name: str, **fields: Any) -> None:
    def merge_fields(old: Object) -> Object:
        return {**old, **fields, "metadata": {**old["metadata"], **fields.get("metadata", {})}}

    await api.resource(KIND).modify(PROJECT_NAMESPACE, name, merge_fields, write_options())


async def test_an_instance_over_the_quota_gets_the_message_of_kubernetes(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "2"})
    await create_workspace(api, "a")
    await create_workspace(api, "b")
    with pytest.raises(Forbidden) as error:
        await create_workspace(api, "c")
    assert error.value.message == (
        f'{PLURAL}.{GROUP} "c" is forbidden: exceeded quota: project p, '
        f"requested: {PLURAL}=1, used: {PLURAL}=2, limited: {PLURAL}=2"
    )
    assert (error.value.details.name, error.value.details.kind) == ("c", PLURAL)
    assert api.list_names(KIND) == ["a", "b"]


async def test_fifty_concurrent_creates_stop_exactly_at_the_quota(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "10"})
    results = await asyncio.gather(*(create_workspace(api, f"w{each}") for each in range(50)), return_exceptions=True)
    assert sum(isinstance(each, Forbidden) for each in results) == 40
    assert len(api.list_names(KIND)) == 10


async def test_more_concurrent_creates_than_write_attempts_all_succeed_below_the_quota(
    api: RegistryFixture,
) -> None:
    await create_project(api, project={PLURAL: "1000"})
    results = await asyncio.gather(*(create_workspace(api, f"w{each}") for each in range(200)), return_exceptions=True)
    assert [each for each in results if isinstance(each, BaseException)] == []
    assert len(api.list_names(KIND)) == 200


async def test_fifty_concurrent_generated_names_stop_exactly_at_the_quota(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "10"})
    bodies = [
        api.build_object(KIND, "", PROJECT_NAMESPACE, metadata={"generateName": "w-"}, spec={}) for _ in range(50)
    ]
    results = await asyncio.gather(*(api.submit(KIND, body) for body in bodies), return_exceptions=True)
    assert sum(isinstance(each, Forbidden) for each in results) == 40
    assert len(api.list_names(KIND)) == 10


async def test_the_loser_of_a_race_counts_again(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "1"})
    api.store.before = [lambda: create_workspace(api, "quicker")]
    with pytest.raises(Forbidden, match="exceeded quota"):
        await create_workspace(api, "slower")
    assert api.list_names(KIND) == ["quicker"]


async def test_a_lost_race_for_a_new_write_lock_is_not_a_name_conflict(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "5"})
    assert api.view.get(LOCK_KEY) is None
    api.store.before = [lambda: create_workspace(api, "quicker")]
    assert (await create_workspace(api, "slower"))["metadata"]["name"] == "slower"
    assert api.list_names(KIND) == ["quicker", "slower"]


async def test_a_duplicate_name_is_reported_as_such(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "5"})
    await create_workspace(api, "a")
    with pytest.raises(AlreadyExists):
        await create_workspace(api, "a")


async def test_a_delete_makes_room(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "1"})
    await create_workspace(api, "a")
    await api.resource(KIND).delete(PROJECT_NAMESPACE, "a", DeleteOptions(), write_options())
    await create_workspace(api, "b")
    assert api.list_names(KIND) == ["b"]


async def test_a_lowered_quota_deletes_nothing_and_rejects_new_instances(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "3"})
    for name in ("a", "b", "c"):
        await create_workspace(api, name)
    await api.patch("Project", "p", lambda obj: obj["spec"].update(quotas={"project": {PLURAL: "1"}}))
    assert api.list_names(KIND) == ["a", "b", "c"]
    await update_workspace(api, "a", spec={"displayName": "still can be changed"})
    with pytest.raises(Forbidden, match=f"used: {PLURAL}=3, limited: {PLURAL}=1"):
        await create_workspace(api, "d")


async def test_each_owner_has_a_separate_quota_and_teams_do_not_count_for_members(api: RegistryFixture) -> None:
    await create_project(api, user={PLURAL: "1"})
    await create_workspace(api, "a", user="ada")
    await create_workspace(api, "b", user="bob")
    await create_workspace(api, "c", team="core")
    await create_workspace(api, "nobodys")
    await create_workspace(api, "nobodys-either")
    with pytest.raises(Forbidden, match=f"project p, user ada, requested: {PLURAL}=1, used: {PLURAL}=1"):
        await create_workspace(api, "d", user="ada")
    with pytest.raises(Forbidden, match="project p, team core"):
        await create_workspace(api, "e", team="core")


async def test_an_instance_cannot_move_to_an_owner_at_the_quota(api: RegistryFixture) -> None:
    await create_project(api, user={PLURAL: "1"})
    await create_workspace(api, "a", user="ada")
    await create_workspace(api, "b", user="bob")
    with pytest.raises(Forbidden, match="user ada"):
        await update_workspace(api, "b", spec={"owner": {"user": "ada"}})
    await update_workspace(api, "b", spec={"owner": {"user": "cleo"}})


async def put_to_sleep(api: RegistryFixture, name: str) -> None:
    """Puts an instance to sleep, as its controller does."""
    options = WriteOptions(CONTROLLER_USER, "fairlead", subresource="status")
    await api.resource(KIND).modify(
        PROJECT_NAMESPACE, name, lambda old: {**old, "status": {"phase": "Sleeping"}}, options
    )


AWAKE = {"annotations": {LAST_ACTIVITY_ANNOTATION: "5"}}


async def test_sleeping_instances_are_not_active_and_waking_one_needs_quota(api: RegistryFixture) -> None:
    await create_project(api, project={f"{PLURAL}.active": "1"})
    await create_workspace(api, "a")
    await put_to_sleep(api, "a")
    await create_workspace(api, "b")
    with pytest.raises(Forbidden, match=rf"requested: {PLURAL}\.active=1"):
        await create_workspace(api, "c")
    with pytest.raises(Forbidden, match=rf"requested: {PLURAL}\.active=1, used: {PLURAL}\.active=1"):
        await update_workspace(api, "a", metadata=AWAKE)
    await put_to_sleep(api, "b")
    await update_workspace(api, "a", metadata=AWAKE)


async def test_annotations_alone_do_not_make_an_instance_inactive(api: RegistryFixture) -> None:
    await create_project(api, project={f"{PLURAL}.active": "1"})
    asleep = {"annotations": {FORCE_ANNOTATION: "true", SLEEPING_SINCE_ANNOTATION: "5"}}
    await create_workspace(api, "a", metadata=asleep)
    await update_workspace(api, "a", metadata=asleep)
    for metadata in ({}, asleep):
        with pytest.raises(Forbidden, match=rf"requested: {PLURAL}\.active=1"):
            await create_workspace(api, "b", metadata=metadata)


async def test_of_two_concurrent_wake_ups_one_exceeds_the_quota(api: RegistryFixture) -> None:
    await create_project(api, project={f"{PLURAL}.active": "1"})
    for name in ("a", "b"):
        await create_workspace(api, name)
        await put_to_sleep(api, name)
    wake_ups = (update_workspace(api, name, metadata=AWAKE) for name in ("a", "b"))
    results = await asyncio.gather(*wake_ups, return_exceptions=True)
    assert [type(each) for each in results].count(Forbidden) == 1


async def test_a_status_update_is_never_rejected(api: RegistryFixture) -> None:
    await create_project(api, project={f"{PLURAL}.active": "1"})
    await create_workspace(api, "a")
    await put_to_sleep(api, "a")
    await create_workspace(api, "b")
    options = WriteOptions(CONTROLLER_USER, "fairlead", subresource="status")
    await api.resource(KIND).modify(PROJECT_NAMESPACE, "a", lambda old: {**old, "status": {"phase": "Ready"}}, options)


async def test_a_dry_run_is_checked_and_uses_no_quota(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "1"})
    body = api.build_object(KIND, "a", PROJECT_NAMESPACE, spec={})
    await api.submit(KIND, body, write_options(dry_run=True))
    assert api.view.get(LOCK_KEY) is None
    await create_workspace(api, "a")
    with pytest.raises(Forbidden, match="exceeded quota"):
        await api.submit(KIND, api.build_object(KIND, "b", PROJECT_NAMESPACE, spec={}), write_options(dry_run=True))


async def test_without_a_quota_no_write_lock_is_taken(api: RegistryFixture) -> None:
    await create_project(api, project={"spaceinstances": "0", "limits.cpu": "1"})
    await create_workspace(api, "a")
    await api.create(KIND, "elsewhere", "demo")
    assert api.view.get(LOCK_KEY) is None


async def test_the_write_lock_is_deleted_with_the_project(api: RegistryFixture) -> None:
    await create_project(api, project={PLURAL: "5"})
    await create_workspace(api, "a")
    assert api.view.get(LOCK_KEY) is not None
    await api.resource(KIND).delete(PROJECT_NAMESPACE, "a", DeleteOptions(), write_options())
    await api.delete("Project", "p")
    assert api.view.get(LOCK_KEY) is not None

    def without_finalizers(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    await api.resource("Project").modify("", "p", without_finalizers, WriteOptions(CONTROLLER_USER, "fairlead"))
    assert api.list_names("Project") == []
    assert api.view.get(LOCK_KEY) is None


async def test_existing_instances_are_not_decoded_again_for_each_create(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_project(api, user={PLURAL: "1000", f"{PLURAL}.active": "1000"}, project={f"{PLURAL}.active": "1000"})
    decoded: list[object] = []

    def count_and_decode(entry: Any) -> Object:
        if entry.key[1] == PLURAL:
            decoded.append(entry)
        return decode(entry)

    monkeypatch.setattr(quotas, "decode", count_and_decode)
    for index in range(20):
        await create_workspace(api, f"w{index}", user="ada")
    assert len(decoded) <= 20
    await change_quota(api, "20")
    with pytest.raises(Forbidden, match=r"used: .*=20, limited: .*=20"):
        await create_workspace(api, "more", user="ada")


async def change_quota(api: RegistryFixture, limit: str) -> None:
    await api.patch("Project", "p", lambda project: project["spec"].update(quotas={"user": {PLURAL: limit}}))
