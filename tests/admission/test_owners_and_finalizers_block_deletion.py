"""blockOwnerDeletion requires permission to delete the owner."""

from typing import Any

import pytest

from fairlead.admission.owners_and_finalizers import check_block_owner_deletion
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture, write_options

BOB = User("bob")


class RecordingAuthorizer:
    """Allows Ada everything and Bob the listed resources. Records the requests."""

    def __init__(self) -> None:
        self.requests: list[RequestInfo] = []
        self.allowed_resources: tuple[str, ...] = ()

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        self.requests.append(target)
        return Decision(
            user == ADA or target.resource in self.allowed_resources, "" if user == ADA else "not in the list"
        )


@pytest.fixture
def authorizer(api: RegistryFixture) -> RecordingAuthorizer:
    """Replaces the admission rules of the registry by this one."""
    recorder = RecordingAuthorizer()
    api.registry = api.with_rules(check_block_owner_deletion(recorder)).registry
    return recorder


def owner_reference(blocking: bool | None = True, **changes: Any) -> Object:
    fields = {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": "p", **changes}
    return fields if blocking is None else {**fields, "blockOwnerDeletion": blocking}


async def create_child(api: RegistryFixture, user: User, *references: Object, dry_run: bool = False) -> Object:
    body = api.build_object("ConfigMap", "a", metadata={"ownerReferences": list(references)})
    return await api.submit("ConfigMap", body, WriteOptions(user, "tests", dry_run=dry_run))


async def update_owners(api: RegistryFixture, user: User, *references: Object) -> Object:
    new = list(references)
    return await api.patch(
        "ConfigMap", "a", lambda obj: obj["metadata"].update(ownerReferences=new), WriteOptions(user)
    )


async def test_blocking_deletion_requires_permission_to_delete_the_owner(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    with pytest.raises(Invalid) as error:
        await create_child(api, BOB, owner_reference(name="other", blocking=None), owner_reference())
    (problem,) = error.value.details.problems
    assert error.value.code == 422
    assert (problem.field, problem.reason) == ("metadata.ownerReferences", "FieldValueForbidden")
    assert 'ConfigMap "parent"' in problem.message
    assert '"bob" may not delete that owner (not in the list); leave blockOwnerDeletion out' in problem.message
    assert api.get("ConfigMap", "a") is None
    assert authorizer.requests == [RequestInfo("delete", "", "", "", "v1", "configmaps", "", "demo", "parent")]


async def test_a_dry_run_is_checked_too(api: RegistryFixture, authorizer: RecordingAuthorizer) -> None:
    with pytest.raises(Invalid):
        await create_child(api, BOB, owner_reference(), dry_run=True)


async def test_every_owner_without_permission_is_reported(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    with pytest.raises(Invalid) as error:
        await create_child(api, BOB, owner_reference(), owner_reference(kind="Secret", uid="s"))
    assert len(error.value.details.problems) == 2


async def test_permission_to_delete_the_owner_allows_blocking(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    authorizer.allowed_resources = ("configmaps",)
    created = await create_child(api, BOB, owner_reference())
    assert created["metadata"]["ownerReferences"] == [owner_reference()]


@pytest.mark.parametrize("blocking", [False, None])
async def test_an_owner_that_is_not_blocked_requires_no_permission(
    api: RegistryFixture, authorizer: RecordingAuthorizer, blocking: bool | None
) -> None:
    await create_child(api, BOB, owner_reference(blocking))
    assert authorizer.requests == []


async def test_an_update_that_starts_to_block_is_rejected(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    await create_child(api, BOB, owner_reference(False))
    with pytest.raises(Invalid):
        await update_owners(api, BOB, owner_reference())
    with pytest.raises(Invalid):
        await update_owners(api, BOB, owner_reference(False), owner_reference(uid="q"))


async def test_a_blocking_reference_may_stay_and_may_be_removed(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    await create_child(api, ADA, owner_reference())
    authorizer.requests.clear()
    await api.patch("ConfigMap", "a", lambda obj: obj.update(data={"x": "y"}), WriteOptions(BOB))
    await update_owners(api, BOB, owner_reference(), owner_reference(False, uid="q"))
    await update_owners(api, BOB, owner_reference(False))
    await update_owners(api, BOB)
    assert authorizer.requests == []


@pytest.mark.parametrize("changes", [{"name": "another"}, {"kind": "Secret"}, {"uid": "q"}])
async def test_a_blocking_reference_cannot_change_to_another_owner(
    api: RegistryFixture, authorizer: RecordingAuthorizer, changes: dict[str, Any]
) -> None:
    await create_child(api, ADA, owner_reference())
    with pytest.raises(Invalid):
        await update_owners(api, BOB, owner_reference(**changes))


async def test_a_cluster_scoped_owner_is_checked_without_a_namespace(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    await create_child(api, ADA, owner_reference(apiVersion="management.service.sh/v1", kind="Gadget"))
    assert authorizer.requests == [
        RequestInfo("delete", "", "", "management.service.sh", "v1", "gadgets", "", "", "parent")
    ]


async def test_a_namespace_as_owner_is_checked_with_its_own_name_as_namespace(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    await create_child(api, ADA, owner_reference(kind="Namespace"))
    assert authorizer.requests == [RequestInfo("delete", "", "", "", "v1", "namespaces", "", "parent", "parent")]


async def test_an_owner_of_an_unknown_kind_requires_permission_to_delete_anything(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    authorizer.allowed_resources = ("nothings",)
    with pytest.raises(Invalid):
        await create_child(api, BOB, owner_reference(apiVersion="x.io/v1", kind="Nothing"))
    assert authorizer.requests == [RequestInfo("delete", "", "", "x.io", "v1", "*", "", "", "*")]
    await create_child(api, ADA, owner_reference(apiVersion="x.io/v1", kind="Nothing"))


async def test_missing_fields_of_a_reference_are_reported(
    api: RegistryFixture, authorizer: RecordingAuthorizer
) -> None:
    with pytest.raises(Invalid, match="uid: Required value"):
        await create_child(api, ADA, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "blockOwnerDeletion": True})


async def test_a_delete_is_not_checked(api: RegistryFixture, authorizer: RecordingAuthorizer) -> None:
    await api.submit(
        "ConfigMap",
        api.build_object("ConfigMap", "a", metadata={"ownerReferences": [owner_reference()]}),
        write_options(),
    )
    authorizer.requests.clear()
    await api.delete("ConfigMap", "a", user=BOB)
    assert authorizer.requests == []
