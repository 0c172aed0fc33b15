"""ComponentKeys: the access key of a runner is created on demand, returned again, rotated and deleted with it."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from fairlead.admission.access_keys import KeyIssuer, issue_access_key, store_component_key
from fairlead.authn.access_keys import generate_key
from fairlead.authn.component_keys import ComponentKeys
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authz.scope import is_superset
from fairlead.controllers.core.garbage_collector import GarbageCollector
from fairlead.core.errors import Conflict, Invalid, NotFound, Unavailable
from fairlead.core.objects import Object, get_path
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.access.access_key import MAX_OVERLAP_SECONDS
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions, server_write_options
from tests.harness.auth import PEPPER, ROOT, AuthFixture, Permissions
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import open_registry
from tests.harness.virtual_time import on_virtual_time

SYSTEM = "service-system"
SERVER = WriteOptions(CONTROLLER_USER, "fairlead")


class ComponentKeysFixture:
    """A registry with a runner `r`, and the keys of runners."""

    def __init__(self, auth: AuthFixture) -> None:
        self.auth, self.api = auth, auth.api
        self.rotator = KeyRotator(auth.registry, GROUP, PEPPER, is_superset)
        self.keys = ComponentKeys(auth.registry, GROUP, RUNNER_COMPONENT, SYSTEM, PEPPER, self.rotator)

    def stored_secret(self) -> Object | None:
        entry = self.api.resource("Secret").get_cached(SYSTEM, "runner-r-key")
        return decode(entry) if entry is not None else None

    def stored_key(self) -> Object:
        (name,) = self.api.list_names("OwnedAccessKey")
        key = self.api.get("OwnedAccessKey", name)
        assert key is not None
        return key

    async def rotate(self, overlap: int = 0) -> str:
        return await self.keys.rotate("r", {"spec": {"overlapSeconds": overlap}})


@asynccontextmanager
async def open_component_keys() -> AsyncIterator[ComponentKeysFixture]:
    issuer = KeyIssuer(PEPPER, generate_key, is_superset, lambda: 3_600)
    async with open_registry(
        rules=(issue_access_key(issuer, GROUP), store_component_key(GROUP, SYSTEM, (RUNNER_COMPONENT,)))
    ) as api:
        await api.create("Namespace", SYSTEM)
        await api.create("Runner", "r")
        yield ComponentKeysFixture(AuthFixture(api, Permissions()))


@on_virtual_time
async def test_a_key_is_created_on_the_first_request_and_returned_again() -> None:
    async with open_component_keys() as fixture:
        assert fixture.api.list_names("OwnedAccessKey") == []
        value = await fixture.keys.get_or_create("r")
        assert value.startswith("fairlead_")
        assert await fixture.keys.get_or_create("r") == value
        assert len(fixture.api.list_names("OwnedAccessKey")) == 1


@on_virtual_time
async def test_the_key_is_the_runners_identity() -> None:
    async with open_component_keys() as fixture:
        user = fixture.auth.authenticator.authenticate_token(await fixture.keys.get_or_create("r"))
        assert user.name == "service:runner:r"
        assert {"service:runners", "service:runner:r", "system:authenticated"} == set(user.groups) - {
            "service:authenticated"
        }
        key, runner = fixture.stored_key(), fixture.api.get("Runner", "r") or {}
        assert key["metadata"]["labels"] == {"service.sh/runner": "r"}
        assert key["metadata"]["ownerReferences"][0]["uid"] == runner["metadata"]["uid"]
        assert key["spec"]["type"] == "Other"
        assert "ttl" not in key["spec"]


@on_virtual_time
async def test_concurrent_first_requests_get_the_same_key() -> None:
    async with open_component_keys() as fixture:
        values = await asyncio.gather(*(fixture.keys.get_or_create("r") for _ in range(20)))
        assert len(set(values)) == 1
        assert len(fixture.api.list_names("OwnedAccessKey")) == 1
        assert fixture.auth.accepts(values[0])


@on_virtual_time
async def test_the_key_and_the_secret_are_created_in_one_commit() -> None:
    async with open_component_keys() as fixture:
        commits = len(fixture.api.store.commits)
        await fixture.keys.get_or_create("r")
        (changes, _) = fixture.api.store.commits[commits]
        assert {change.key[1] for change in changes} == {"ownedaccesskeys", "secrets"}
        assert len(fixture.api.store.commits) == commits + 1


@on_virtual_time
async def test_the_loser_of_a_race_returns_the_key_of_the_winner() -> None:
    async with open_component_keys() as fixture:
        other_values: list[str] = []

        async def create_first() -> None:
            other_values.append(await fixture.keys.get_or_create("r"))

        fixture.api.store.before = [create_first]
        assert await fixture.keys.get_or_create("r") == other_values[0]
        assert len(fixture.api.list_names("OwnedAccessKey")) == 1


@on_virtual_time
async def test_an_unknown_runner_has_no_key() -> None:
    async with open_component_keys() as fixture:
        with pytest.raises(NotFound, match=r'runners\.management\.service\.sh "x" not found'):
            await fixture.keys.get_or_create("x")
        with pytest.raises(NotFound):
            await fixture.keys.rotate("x", {})


@on_virtual_time
async def test_a_runner_that_is_being_deleted_gets_no_key() -> None:
    async with open_component_keys() as fixture:
        await fixture.api.patch("Runner", "r", lambda obj: obj["metadata"].update(finalizers=["x.io/a"]))
        await fixture.api.delete("Runner", "r")
        with pytest.raises(Conflict, match="being deleted"):
            await fixture.keys.get_or_create("r")


@on_virtual_time
async def test_t27_a_rotation_replaces_the_key_that_is_returned() -> None:
    async with open_component_keys() as fixture:
        old = await fixture.keys.get_or_create("r")
        new = await fixture.rotate()
        assert new != old
        assert await fixture.keys.get_or_create("r") == new
        assert (fixture.auth.accepts(old), fixture.auth.accepts(new)) == (False, True)
        assert list((fixture.stored_secret() or {})["data"]) == ["accessKey"]


@on_virtual_time
async def test_an_old_key_is_valid_for_the_overlap() -> None:
    async with open_component_keys() as fixture:
        old = await fixture.keys.get_or_create("r")
        await fixture.rotate(overlap=60)
        assert fixture.auth.accepts(old)
        await asyncio.sleep(61)
        assert not fixture.auth.accepts(old)


@on_virtual_time
async def test_a_rotation_creates_the_first_key() -> None:
    async with open_component_keys() as fixture:
        value = await fixture.rotate()
        assert await fixture.keys.get_or_create("r") == value


@on_virtual_time
async def test_concurrent_rotations_leave_one_valid_key() -> None:
    async with open_component_keys() as fixture:
        values = await asyncio.gather(*(fixture.rotate() for _ in range(8)))
        value = await fixture.keys.get_or_create("r")
        assert value in values
        assert [each for each in values if fixture.auth.accepts(each)] == [value]
        assert list((fixture.stored_secret() or {})["data"]) == ["accessKey"]


@on_virtual_time
async def test_an_interrupted_rotation_leaves_a_valid_key() -> None:
    for commits in range(4):
        async with open_component_keys() as fixture:
            await fixture.keys.get_or_create("r")

            async def continue_normally() -> None:
                return None

            async def fail_commit() -> None:
                raise Unavailable("the store is unavailable")

            fixture.api.store.before = [*[continue_normally] * commits, fail_commit]
            with suppress(Unavailable):
                await fixture.rotate(overlap=60)
            fixture.api.store.before = []
            assert fixture.auth.accepts(await fixture.keys.get_or_create("r"))
            await fixture.rotate()
            assert fixture.auth.accepts(await fixture.keys.get_or_create("r"))


@on_virtual_time
async def test_a_rejected_rotation_changes_nothing() -> None:
    async with open_component_keys() as fixture:
        value = await fixture.keys.get_or_create("r")
        with pytest.raises(Invalid, match="overlapSeconds"):
            await fixture.rotate(overlap=MAX_OVERLAP_SECONDS + 1)
        assert await fixture.keys.get_or_create("r") == value
        assert list((fixture.stored_secret() or {})["data"]) == ["accessKey"]


@on_virtual_time
async def test_a_disabled_key_is_returned_unchanged() -> None:
    async with open_component_keys() as fixture:
        value = await fixture.keys.get_or_create("r")
        await fixture.auth.update_spec("OwnedAccessKey", fixture.stored_key()["metadata"]["name"], ROOT, disabled=True)
        assert await fixture.keys.get_or_create("r") == value
        assert not fixture.auth.accepts(value)


@on_virtual_time
async def test_an_expired_key_is_returned_unchanged_and_not_rotated() -> None:
    async with open_component_keys() as fixture:
        value = await fixture.keys.get_or_create("r")
        await fixture.auth.update_key_status(fixture.stored_key()["metadata"]["name"], expired="2026-01-02T03:04:05Z")
        assert await fixture.keys.get_or_create("r") == value
        with pytest.raises(Conflict, match="expired"):
            await fixture.rotate()


@on_virtual_time
async def test_a_deleted_key_is_replaced_by_a_new_one() -> None:
    async with open_component_keys() as fixture:
        old = await fixture.keys.get_or_create("r")
        await fixture.api.delete("OwnedAccessKey", fixture.stored_key()["metadata"]["name"])
        values = await asyncio.gather(*(fixture.keys.get_or_create("r") for _ in range(5)))
        assert len(set(values)) == 1
        assert (fixture.auth.accepts(old), fixture.auth.accepts(values[0])) == (False, True)


@on_virtual_time
async def test_a_key_without_its_secret_is_replaced() -> None:
    async with open_component_keys() as fixture:
        old = await fixture.keys.get_or_create("r")
        await fixture.api.resource("Secret").delete(SYSTEM, "runner-r-key", DeleteOptions(), SERVER)
        new = await fixture.keys.get_or_create("r")
        assert (fixture.auth.accepts(old), fixture.auth.accepts(new)) == (False, True)
        assert len(fixture.api.list_names("OwnedAccessKey")) == 1


@on_virtual_time
async def test_a_key_that_was_rotated_directly_is_a_conflict() -> None:
    async with open_component_keys() as fixture:
        await fixture.keys.get_or_create("r")
        await fixture.rotator.rotate(CONTROLLER_USER, fixture.stored_key()["metadata"]["name"], {})
        with pytest.raises(Conflict, match="delete the access key"):
            await fixture.keys.get_or_create("r")
        value = await fixture.rotate()
        assert await fixture.keys.get_or_create("r") == value


@on_virtual_time
async def test_an_existing_secret_of_that_name_is_not_used() -> None:
    async with open_component_keys() as fixture:
        body = fixture.api.build_object(
            "Secret", "runner-r-key", SYSTEM, stringData={"accessKey": "planted-by-another-user"}
        )
        await fixture.api.submit("Secret", body)
        value = await fixture.keys.get_or_create("r")
        assert value != "planted-by-another-user"
        assert fixture.auth.accepts(value)


@on_virtual_time
async def test_t45_a_copy_of_the_secret_with_another_type_is_not_used() -> None:
    async with open_component_keys() as fixture:
        value = await fixture.keys.get_or_create("r")
        secrets = fixture.api.resource("Secret")
        entry = secrets.get_cached(SYSTEM, "runner-r-key")
        assert entry is not None
        real = decode(entry)
        await secrets.delete(SYSTEM, "runner-r-key", DeleteOptions(), server_write_options())
        kept = {name: real["metadata"][name] for name in ("name", "namespace", "annotations", "ownerReferences")}
        await secrets.create({**real, "metadata": kept, "type": "Opaque"}, SYSTEM, server_write_options())
        assert await fixture.keys.get_or_create("r") != value


@on_virtual_time
async def test_the_key_and_the_secret_are_deleted_with_their_runner() -> None:
    async with open_component_keys() as fixture:
        old = await fixture.keys.get_or_create("r")
        await fixture.api.delete("Runner", "r")
        await fixture.api.create("Runner", "r")
        new = await fixture.keys.get_or_create("r")
        assert new != old
        async with running_controllers(fixture.api, GarbageCollector(fixture.auth.registry)):
            await eventually(lambda: len(fixture.api.list_names("OwnedAccessKey")) == 1)
            assert (fixture.auth.accepts(old), fixture.auth.accepts(new)) == (False, True)
            await fixture.api.delete("Runner", "r")
            await eventually(lambda: fixture.api.list_names("OwnedAccessKey") == [] and fixture.stored_secret() is None)


@on_virtual_time
async def test_the_value_is_stored_only_in_the_secret() -> None:
    async with open_component_keys() as fixture:
        value = await fixture.keys.get_or_create("r")
        secret = fixture.stored_secret() or {}
        assert b64decode(secret["data"]["accessKey"]).decode() == value
        assert get_path(fixture.stored_key(), "spec.key") == PEPPER.digest(value)
        secret_keys = [entry.key for entry in fixture.api.view.entries("", "secrets") if b"accessKey" in entry.body]
        assert secret_keys == [("", "secrets", SYSTEM, "runner-r-key")]
