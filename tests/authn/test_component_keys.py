"""Keys of runners: they come back, they are one and the same, and they end with their runner."""

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
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.auth import PEPPER, ROOT, AuthFixture, Permissions
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import open_registry
from tests.harness.virtual_time import on_virtual_time

SYSTEM = "service-system"
SERVER = WriteOptions(CONTROLLER_USER, "fairlead")


class House:
    """A runner called `r`, and the keys of runners."""

    def __init__(self, auth: AuthFixture) -> None:
        self.auth, self.api = auth, auth.api
        self.rotation = KeyRotator(auth.registry, GROUP, PEPPER, is_superset)
        self.keys = ComponentKeys(auth.registry, GROUP, RUNNER_COMPONENT, SYSTEM, PEPPER, self.rotation)

    def secret(self) -> Object | None:
        entry = self.api.of("Secret").get_cached(SYSTEM, "runner-r-key")
        return decode(entry) if entry is not None else None

    def key(self) -> Object:
        (name,) = self.api.names("OwnedAccessKey")
        found = self.api.see("OwnedAccessKey", name)
        assert found is not None
        return found

    async def rotate(self, overlap: int = 0) -> str:
        return await self.keys.rotate("r", {"spec": {"overlapSeconds": overlap}})


@asynccontextmanager
async def house() -> AsyncIterator[House]:
    mint = KeyIssuer(PEPPER, generate_key, is_superset, lambda: 3_600)
    async with open_registry(
        rules=(issue_access_key(mint, GROUP), store_component_key(GROUP, SYSTEM, (RUNNER_COMPONENT,)))
    ) as api:
        await api.create("Namespace", SYSTEM)
        await api.create("Runner", "r")
        yield House(AuthFixture(api, Permissions()))


@on_virtual_time
async def test_a_key_is_made_when_it_is_first_asked_for_and_comes_back() -> None:
    async with house() as here:
        assert here.api.names("OwnedAccessKey") == []
        value = await here.keys.get_or_create("r")
        assert value.startswith("fairlead_")
        assert await here.keys.get_or_create("r") == value
        assert len(here.api.names("OwnedAccessKey")) == 1


@on_virtual_time
async def test_the_key_is_the_runners_identity() -> None:
    async with house() as here:
        user = here.auth.authenticate.authenticate_token(await here.keys.get_or_create("r"))
        assert user.name == "service:runner:r"
        assert {"service:runners", "service:runner:r", "system:authenticated"} == set(user.groups) - {
            "service:authenticated"
        }
        key, runner = here.key(), here.api.see("Runner", "r") or {}
        assert key["metadata"]["labels"] == {"service.sh/runner": "r"}
        assert key["metadata"]["ownerReferences"][0]["uid"] == runner["metadata"]["uid"]
        assert key["spec"]["type"] == "Other"
        assert "ttl" not in key["spec"]


@on_virtual_time
async def test_two_who_ask_first_at_once_get_the_same_key() -> None:
    async with house() as here:
        values = await asyncio.gather(*(here.keys.get_or_create("r") for _ in range(20)))
        assert len(set(values)) == 1
        assert len(here.api.names("OwnedAccessKey")) == 1
        assert here.auth.opens(values[0])


@on_virtual_time
async def test_key_and_secret_come_in_one_commit() -> None:
    async with house() as here:
        commits = len(here.api.store.commits)
        await here.keys.get_or_create("r")
        (changes, _) = here.api.store.commits[commits]
        assert {change.key[1] for change in changes} == {"ownedaccesskeys", "secrets"}
        assert len(here.api.store.commits) == commits + 1


@on_virtual_time
async def test_who_loses_the_race_takes_the_others_key() -> None:
    async with house() as here:
        others: list[str] = []

        async def be_faster() -> None:
            others.append(await here.keys.get_or_create("r"))

        here.api.store.before = [be_faster]
        assert await here.keys.get_or_create("r") == others[0]
        assert len(here.api.names("OwnedAccessKey")) == 1


@on_virtual_time
async def test_a_runner_that_does_not_exist_has_no_key() -> None:
    async with house() as here:
        with pytest.raises(NotFound, match=r'runners\.management\.service\.sh "x" not found'):
            await here.keys.get_or_create("x")
        with pytest.raises(NotFound):
            await here.keys.rotate("x", {})


@on_virtual_time
async def test_a_runner_that_is_being_deleted_gets_no_key() -> None:
    async with house() as here:
        await here.api.patch("Runner", "r", lambda obj: obj["metadata"].update(finalizers=["x.io/a"]))
        await here.api.delete("Runner", "r")
        with pytest.raises(Conflict, match="being deleted"):
            await here.keys.get_or_create("r")


@on_virtual_time
async def test_t27_a_rotated_key_is_another_one_and_comes_back_from_then_on() -> None:
    async with house() as here:
        old = await here.keys.get_or_create("r")
        new = await here.rotate()
        assert new != old
        assert await here.keys.get_or_create("r") == new
        assert (here.auth.opens(old), here.auth.opens(new)) == (False, True)
        assert list((here.secret() or {})["data"]) == ["accessKey"]


@on_virtual_time
async def test_an_old_key_works_for_as_long_as_was_asked() -> None:
    async with house() as here:
        old = await here.keys.get_or_create("r")
        await here.rotate(overlap=60)
        assert here.auth.opens(old)
        await asyncio.sleep(61)
        assert not here.auth.opens(old)


@on_virtual_time
async def test_a_rotation_may_be_the_first_that_is_asked_for() -> None:
    async with house() as here:
        value = await here.rotate()
        assert await here.keys.get_or_create("r") == value


@on_virtual_time
async def test_rotations_at_once_leave_one_key_that_works_and_comes_back() -> None:
    async with house() as here:
        values = await asyncio.gather(*(here.rotate() for _ in range(8)))
        value = await here.keys.get_or_create("r")
        assert value in values
        assert [each for each in values if here.auth.opens(each)] == [value]
        assert list((here.secret() or {})["data"]) == ["accessKey"]


@on_virtual_time
async def test_wherever_a_rotation_breaks_off_the_key_that_holds_comes_back() -> None:
    for commits in range(4):
        async with house() as here:
            await here.keys.get_or_create("r")

            async def nothing() -> None:
                return None

            async def broken() -> None:
                raise Unavailable("the power is out")

            here.api.store.before = [*[nothing] * commits, broken]
            with suppress(Unavailable):
                await here.rotate(overlap=60)
            here.api.store.before = []
            assert here.auth.opens(await here.keys.get_or_create("r"))
            await here.rotate()
            assert here.auth.opens(await here.keys.get_or_create("r"))


@on_virtual_time
async def test_a_refused_rotation_leaves_everything_as_it_was() -> None:
    async with house() as here:
        value = await here.keys.get_or_create("r")
        with pytest.raises(Invalid, match="overlapSeconds"):
            await here.rotate(overlap=MAX_OVERLAP_SECONDS + 1)
        assert await here.keys.get_or_create("r") == value
        assert list((here.secret() or {})["data"]) == ["accessKey"]


@on_virtual_time
async def test_a_disabled_key_comes_back_as_it_is() -> None:
    async with house() as here:
        value = await here.keys.get_or_create("r")
        await here.auth.set("OwnedAccessKey", here.key()["metadata"]["name"], ROOT, disabled=True)
        assert await here.keys.get_or_create("r") == value
        assert not here.auth.opens(value)


@on_virtual_time
async def test_an_expired_key_comes_back_as_it_is_and_is_not_rotated() -> None:
    async with house() as here:
        value = await here.keys.get_or_create("r")
        await here.auth.set_status(here.key()["metadata"]["name"], expired="2026-01-02T03:04:05Z")
        assert await here.keys.get_or_create("r") == value
        with pytest.raises(Conflict, match="expired"):
            await here.rotate()


@on_virtual_time
async def test_a_deleted_key_is_gone_for_good_and_another_takes_its_place() -> None:
    async with house() as here:
        old = await here.keys.get_or_create("r")
        await here.api.delete("OwnedAccessKey", here.key()["metadata"]["name"])
        values = await asyncio.gather(*(here.keys.get_or_create("r") for _ in range(5)))
        assert len(set(values)) == 1
        assert (here.auth.opens(old), here.auth.opens(values[0])) == (False, True)


@on_virtual_time
async def test_without_its_secret_a_key_ends_when_another_is_made() -> None:
    async with house() as here:
        old = await here.keys.get_or_create("r")
        await here.api.of("Secret").delete(SYSTEM, "runner-r-key", DeleteOptions(), SERVER)
        new = await here.keys.get_or_create("r")
        assert (here.auth.opens(old), here.auth.opens(new)) == (False, True)
        assert len(here.api.names("OwnedAccessKey")) == 1


@on_virtual_time
async def test_a_key_that_was_rotated_by_itself_is_told_about() -> None:
    async with house() as here:
        await here.keys.get_or_create("r")
        await here.rotation.rotate(CONTROLLER_USER, here.key()["metadata"]["name"], {})
        with pytest.raises(Conflict, match="delete the access key"):
            await here.keys.get_or_create("r")
        value = await here.rotate()
        assert await here.keys.get_or_create("r") == value


@on_virtual_time
async def test_nobody_is_in_the_way_of_a_runners_key() -> None:
    async with house() as here:
        body = here.api.body("Secret", "runner-r-key", SYSTEM, stringData={"accessKey": "planted-by-somebody"})
        await here.api.submit("Secret", body)
        value = await here.keys.get_or_create("r")
        assert value != "planted-by-somebody"
        assert here.auth.opens(value)


@on_virtual_time
async def test_key_and_secret_go_with_their_runner_and_a_namesake_gets_its_own() -> None:
    async with house() as here:
        old = await here.keys.get_or_create("r")
        await here.api.delete("Runner", "r")
        await here.api.create("Runner", "r")
        new = await here.keys.get_or_create("r")
        assert new != old
        async with running_controllers(here.api, GarbageCollector(here.auth.registry)):
            await eventually(lambda: len(here.api.names("OwnedAccessKey")) == 1)
            assert (here.auth.opens(old), here.auth.opens(new)) == (False, True)
            await here.api.delete("Runner", "r")
            await eventually(lambda: here.api.names("OwnedAccessKey") == [] and here.secret() is None)


@on_virtual_time
async def test_the_value_stands_in_the_secret_and_nowhere_else() -> None:
    async with house() as here:
        value = await here.keys.get_or_create("r")
        secret = here.secret() or {}
        assert b64decode(secret["data"]["accessKey"]).decode() == value
        assert get_path(here.key(), "spec.key") == PEPPER.digest(value)
        holding = [entry.key for entry in here.api.view.entries("", "secrets") if b"accessKey" in entry.body]
        assert holding == [("", "secrets", SYSTEM, "runner-r-key")]
