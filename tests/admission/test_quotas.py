"""Quotas: how many instances there may be, for the project and for each owner, and that races change nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission import quotas as module
from fairlead.admission.quotas import enforce_quotas
from fairlead.core.errors import AlreadyExists, Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.quotas import FORCE_ANNOTATION, LAST_ACTIVITY_ANNOTATION, SLEEPING_SINCE_ANNOTATION
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry import write_locks
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import RegistryFixture, as_ada, open_registry

KIND, PLURAL, HOME = "DevPodWorkspaceInstance", "devpodworkspaceinstances", "service-p-p"
TICKET = write_locks.lock_key(GROUP, "p")


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(enforce_quotas(GROUP, NAMESPACE_PREFIX),)) as made:
        yield made


async def project(api: RegistryFixture, **limits: dict[str, str]) -> None:
    await api.create("Project", "p", spec={"quotas": limits})


async def made(api: RegistryFixture, name: str, user: str = "", team: str = "", **fields: Any) -> Object:
    owner = {key: value for key, value in (("user", user), ("team", team)) if value}
    return await api.create(KIND, name, HOME, spec={"owner": owner} if owner else {}, **fields)


async def change(api: RegistryFixture, name: str, **fields: Any) -> None:
    def edit(old: Object) -> Object:
        return {**old, **fields, "metadata": {**old["metadata"], **fields.get("metadata", {})}}

    await api.of(KIND).modify(HOME, name, edit, as_ada())


async def test_the_last_one_that_fits_is_made_and_the_next_is_refused_in_kubernetes_words(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "2"})
    await made(api, "a")
    await made(api, "b")
    with pytest.raises(Forbidden) as caught:
        await made(api, "c")
    assert caught.value.message == (
        f'{PLURAL}.{GROUP} "c" is forbidden: exceeded quota: project p, '
        f"requested: {PLURAL}=1, used: {PLURAL}=2, limited: {PLURAL}=2"
    )
    assert (caught.value.details.name, caught.value.details.kind) == ("c", PLURAL)
    assert api.names(KIND) == ["a", "b"]


async def test_fifty_at_once_make_exactly_as_many_as_the_quota_allows(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "10"})
    answers = await asyncio.gather(*(made(api, f"w{each}") for each in range(50)), return_exceptions=True)
    assert sum(isinstance(each, Forbidden) for each in answers) == 40
    assert len(api.names(KIND)) == 10


async def test_many_more_at_once_than_a_write_is_tried_all_get_through_where_there_is_room(
    api: RegistryFixture,
) -> None:
    await project(api, project={PLURAL: "1000"})
    answers = await asyncio.gather(*(made(api, f"w{each}") for each in range(200)), return_exceptions=True)
    assert [each for each in answers if isinstance(each, BaseException)] == []
    assert len(api.names(KIND)) == 200


async def test_fifty_generated_names_at_once_are_counted_as_well(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "10"})
    bodies = [api.body(KIND, "", HOME, metadata={"generateName": "w-"}, spec={}) for _ in range(50)]
    answers = await asyncio.gather(*(api.submit(KIND, body) for body in bodies), return_exceptions=True)
    assert sum(isinstance(each, Forbidden) for each in answers) == 40
    assert len(api.names(KIND)) == 10


async def test_whoever_loses_the_race_for_the_last_place_counts_again(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "1"})
    api.store.before = [lambda: made(api, "quicker")]
    with pytest.raises(Forbidden, match="exceeded quota"):
        await made(api, "slower")
    assert api.names(KIND) == ["quicker"]


async def test_a_lost_race_for_a_new_ticket_is_not_taken_for_a_taken_name(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "5"})
    assert api.view.get(TICKET) is None
    api.store.before = [lambda: made(api, "quicker")]
    assert (await made(api, "slower"))["metadata"]["name"] == "slower"
    assert api.names(KIND) == ["quicker", "slower"]


async def test_a_taken_name_is_still_told_as_that(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "5"})
    await made(api, "a")
    with pytest.raises(AlreadyExists):
        await made(api, "a")


async def test_room_that_a_delete_makes_can_be_used(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "1"})
    await made(api, "a")
    await api.of(KIND).delete(HOME, "a", DeleteOptions(), as_ada())
    await made(api, "b")
    assert api.names(KIND) == ["b"]


async def test_a_lowered_quota_deletes_nothing_and_lets_nothing_in(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "3"})
    for name in ("a", "b", "c"):
        await made(api, name)
    await api.patch("Project", "p", lambda obj: obj["spec"].update(quotas={"project": {PLURAL: "1"}}))
    assert api.names(KIND) == ["a", "b", "c"]
    await change(api, "a", spec={"displayName": "still can be changed"})
    with pytest.raises(Forbidden, match=f"used: {PLURAL}=3, limited: {PLURAL}=1"):
        await made(api, "d")


async def test_each_owner_has_a_quota_of_its_own_and_teams_do_not_use_up_that_of_members(api: RegistryFixture) -> None:
    await project(api, user={PLURAL: "1"})
    await made(api, "a", user="ada")
    await made(api, "b", user="bob")
    await made(api, "c", team="core")
    await made(api, "nobodys")
    await made(api, "nobodys-either")
    with pytest.raises(Forbidden, match=f"project p, user ada, requested: {PLURAL}=1, used: {PLURAL}=1"):
        await made(api, "d", user="ada")
    with pytest.raises(Forbidden, match="project p, team core"):
        await made(api, "e", team="core")


async def test_an_instance_cannot_be_given_to_somebody_whose_quota_is_used_up(api: RegistryFixture) -> None:
    await project(api, user={PLURAL: "1"})
    await made(api, "a", user="ada")
    await made(api, "b", user="bob")
    with pytest.raises(Forbidden, match="user ada"):
        await change(api, "b", spec={"owner": {"user": "ada"}})
    await change(api, "b", spec={"owner": {"user": "cleo"}})


async def sleeping(api: RegistryFixture, name: str) -> None:
    """One that whoever runs it has put to sleep."""
    writing = WriteOptions(CONTROLLER_USER, "fairlead", subresource="status")
    await api.of(KIND).modify(HOME, name, lambda old: {**old, "status": {"phase": "Sleeping"}}, writing)


WOKEN = {"annotations": {LAST_ACTIVITY_ANNOTATION: "5"}}


async def test_those_asleep_are_not_active_and_waking_one_up_needs_room(api: RegistryFixture) -> None:
    await project(api, project={f"{PLURAL}.active": "1"})
    await made(api, "a")
    await sleeping(api, "a")
    await made(api, "b")
    with pytest.raises(Forbidden, match=rf"requested: {PLURAL}\.active=1"):
        await made(api, "c")
    with pytest.raises(Forbidden, match=rf"requested: {PLURAL}\.active=1, used: {PLURAL}\.active=1"):
        await change(api, "a", metadata=WOKEN)
    await sleeping(api, "b")
    await change(api, "a", metadata=WOKEN)


async def test_who_only_says_that_something_sleeps_gets_no_room(api: RegistryFixture) -> None:
    await project(api, project={f"{PLURAL}.active": "1"})
    says = {"annotations": {FORCE_ANNOTATION: "true", SLEEPING_SINCE_ANNOTATION: "5"}}
    await made(api, "a", metadata=says)
    await change(api, "a", metadata=says)
    for metadata in ({}, says):
        with pytest.raises(Forbidden, match=rf"requested: {PLURAL}\.active=1"):
            await made(api, "b", metadata=metadata)


async def test_two_who_wake_something_up_at_once_do_not_both_get_the_last_place(api: RegistryFixture) -> None:
    await project(api, project={f"{PLURAL}.active": "1"})
    for name in ("a", "b"):
        await made(api, name)
        await sleeping(api, name)
    waking = (change(api, name, metadata=WOKEN) for name in ("a", "b"))
    answers = await asyncio.gather(*waking, return_exceptions=True)
    assert [type(each) for each in answers].count(Forbidden) == 1


async def test_a_status_is_never_refused(api: RegistryFixture) -> None:
    await project(api, project={f"{PLURAL}.active": "1"})
    await made(api, "a")
    await sleeping(api, "a")
    await made(api, "b")
    writing = WriteOptions(CONTROLLER_USER, "fairlead", subresource="status")
    await api.of(KIND).modify(HOME, "a", lambda old: {**old, "status": {"phase": "Ready"}}, writing)


async def test_a_rehearsal_is_refused_alike_and_uses_nothing_up(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "1"})
    body = api.body(KIND, "a", HOME, spec={})
    await api.submit(KIND, body, as_ada(dry_run=True))
    assert api.view.get(TICKET) is None
    await made(api, "a")
    with pytest.raises(Forbidden, match="exceeded quota"):
        await api.submit(KIND, api.body(KIND, "b", HOME, spec={}), as_ada(dry_run=True))


async def test_without_a_quota_nothing_is_counted_and_no_ticket_taken(api: RegistryFixture) -> None:
    await project(api, project={"spaceinstances": "0", "limits.cpu": "1"})
    await made(api, "a")
    await api.create(KIND, "elsewhere", "demo")
    assert api.view.get(TICKET) is None


async def test_the_ticket_goes_with_the_project(api: RegistryFixture) -> None:
    await project(api, project={PLURAL: "5"})
    await made(api, "a")
    assert api.view.get(TICKET) is not None
    await api.of(KIND).delete(HOME, "a", DeleteOptions(), as_ada())
    await api.delete("Project", "p")
    assert api.view.get(TICKET) is not None

    def released(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    await api.of("Project").modify("", "p", released, WriteOptions(CONTROLLER_USER, "fairlead"))
    assert api.names("Project") == []
    assert api.view.get(TICKET) is None


async def test_what_is_there_is_counted_as_it_changes_and_not_for_each_that_is_made(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await project(api, user={PLURAL: "1000", f"{PLURAL}.active": "1000"}, project={f"{PLURAL}.active": "1000"})
    read: list[object] = []

    def counted(entry: Any) -> Object:
        if entry.key[1] == PLURAL:
            read.append(entry)
        return decode(entry)

    monkeypatch.setattr(module, "decode", counted)
    for index in range(20):
        await made(api, f"w{index}", user="ada")
    assert len(read) <= 20
    await change_quota(api, "20")
    with pytest.raises(Forbidden, match=r"used: .*=20, limited: .*=20"):
        await made(api, "more", user="ada")


async def change_quota(api: RegistryFixture, most: str) -> None:
    await api.patch("Project", "p", lambda found: found["spec"].update(quotas={"user": {PLURAL: most}}))
