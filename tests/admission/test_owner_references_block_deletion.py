"""Nobody holds up the deletion of what they may not delete."""

from typing import Any

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.owners_and_finalizers import check_block_owner_deletion
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture, as_ada

BOB = User("bob")


class Ward:
    """Ada may do everything, Bob what he is told here. Remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[RequestInfo] = []
        self.allows: tuple[str, ...] = ()

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        self.asked.append(target)
        return Decision(user == ADA or target.resource in self.allows, "" if user == ADA else "not on his list")


@pytest.fixture
def ward(api: RegistryFixture) -> Ward:
    """Puts the rule, and nothing else, before the writes of this world."""
    made = Ward()
    chain = AdmissionChain((check_block_owner_deletion(made),))
    api.registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(api.registry)
    return made


def reference(blocking: bool | None = True, **changed: Any) -> Object:
    found = {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "p", **changed}
    return found if blocking is None else {**found, "blockOwnerDeletion": blocking}


async def create(api: RegistryFixture, user: User, *references: Object, dry_run: bool = False) -> Object:
    body = api.body("ConfigMap", "a", metadata={"ownerReferences": list(references)})
    return await api.submit("ConfigMap", body, WriteOptions(user, "tests", dry_run=dry_run))


async def change(api: RegistryFixture, user: User, *references: Object) -> Object:
    new = list(references)
    return await api.patch(
        "ConfigMap", "a", lambda obj: obj["metadata"].update(ownerReferences=new), WriteOptions(user)
    )


async def test_whoever_may_not_delete_the_owner_may_not_block_its_deletion(api: RegistryFixture, ward: Ward) -> None:
    with pytest.raises(Invalid) as caught:
        await create(api, BOB, reference(name="other", blocking=None), reference())
    (problem,) = caught.value.details.problems
    assert caught.value.code == 422
    assert (problem.field, problem.reason) == ("metadata.ownerReferences", "FieldValueForbidden")
    assert 'ConfigMap "parent"' in problem.message
    assert '"bob" may not delete that owner (not on his list); leave blockOwnerDeletion out' in problem.message
    assert api.see("ConfigMap", "a") is None
    assert ward.asked == [RequestInfo("delete", "", "", "", "v1", "configmaps", "", "demo", "parent")]


async def test_a_dry_run_says_the_same(api: RegistryFixture, ward: Ward) -> None:
    with pytest.raises(Invalid):
        await create(api, BOB, reference(), dry_run=True)


async def test_every_owner_that_may_not_be_deleted_is_named(api: RegistryFixture, ward: Ward) -> None:
    with pytest.raises(Invalid) as caught:
        await create(api, BOB, reference(), reference(kind="Secret", uid="s"))
    assert len(caught.value.details.problems) == 2


async def test_whoever_may_delete_the_owner_may_block_its_deletion(api: RegistryFixture, ward: Ward) -> None:
    ward.allows = ("configmaps",)
    made = await create(api, BOB, reference())
    assert made["metadata"]["ownerReferences"] == [reference()]


@pytest.mark.parametrize("blocking", [False, None])
async def test_an_owner_that_is_not_blocked_takes_no_right(
    api: RegistryFixture, ward: Ward, blocking: bool | None
) -> None:
    await create(api, BOB, reference(blocking))
    assert ward.asked == []


async def test_an_update_that_begins_to_block_is_refused(api: RegistryFixture, ward: Ward) -> None:
    await create(api, BOB, reference(False))
    with pytest.raises(Invalid):
        await change(api, BOB, reference())
    with pytest.raises(Invalid):
        await change(api, BOB, reference(False), reference(uid="q"))


async def test_what_blocks_already_may_stay_and_may_be_taken_away(api: RegistryFixture, ward: Ward) -> None:
    await create(api, ADA, reference())
    ward.asked.clear()
    await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"x": "y"}), WriteOptions(BOB))
    await change(api, BOB, reference(), reference(False, uid="q"))
    await change(api, BOB, reference(False))
    await change(api, BOB)
    assert ward.asked == []


@pytest.mark.parametrize("changed", [{"name": "another"}, {"kind": "Secret"}, {"uid": "q"}])
async def test_what_blocks_already_cannot_be_turned_onto_another_owner(
    api: RegistryFixture, ward: Ward, changed: dict[str, Any]
) -> None:
    await create(api, ADA, reference())
    with pytest.raises(Invalid):
        await change(api, BOB, reference(**changed))


async def test_an_owner_without_namespace_is_asked_about_without_one(api: RegistryFixture, ward: Ward) -> None:
    await create(api, ADA, reference(apiVersion="management.service.sh/v1", kind="Gadget"))
    assert ward.asked == [RequestInfo("delete", "", "", "management.service.sh", "v1", "gadgets", "", "", "parent")]


async def test_a_namespace_is_asked_about_as_in_its_own_path(api: RegistryFixture, ward: Ward) -> None:
    await create(api, ADA, reference(kind="Namespace"))
    assert ward.asked == [RequestInfo("delete", "", "", "", "v1", "namespaces", "", "parent", "parent")]


async def test_for_an_owner_that_is_not_served_it_takes_the_right_to_delete_anything(
    api: RegistryFixture, ward: Ward
) -> None:
    ward.allows = ("nothings",)
    with pytest.raises(Invalid):
        await create(api, BOB, reference(apiVersion="x.io/v1", kind="Nothing"))
    assert ward.asked == [RequestInfo("delete", "", "", "x.io", "v1", "*", "", "", "*")]
    await create(api, ADA, reference(apiVersion="x.io/v1", kind="Nothing"))


async def test_a_reference_with_parts_missing_is_still_told_what_is_missing(api: RegistryFixture, ward: Ward) -> None:
    with pytest.raises(Invalid, match="uid: Required value"):
        await create(api, ADA, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "blockOwnerDeletion": True})


async def test_deleting_asks_nothing(api: RegistryFixture, ward: Ward) -> None:
    await api.submit("ConfigMap", api.body("ConfigMap", "a", metadata={"ownerReferences": [reference()]}), as_ada())
    ward.asked.clear()
    await api.delete("ConfigMap", "a", user=BOB)
    assert ward.asked == []
