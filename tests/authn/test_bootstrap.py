"""The first start: one administrator with one key, once, and a pepper that nobody else can read."""

import asyncio
import base64
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from fairlead.authn.access_keys import ACCESS_KEYS, AccessKeyAuthenticator, Pepper
from fairlead.authn.bootstrap import ensure_admin, load_pepper, verify_pepper
from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.authz.authorizer import administrators, first_decision
from fairlead.core.call import RequestInfo
from fairlead.core.clock import SystemClock
from fairlead.core.files import FileProblem
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.users import USER
from fairlead.registry.codec import entry_builder
from fairlead.registry.informer import Informer
from fairlead.registry.kind import Catalog
from fairlead.registry.validate import Validator
from fairlead.storage.contract import Write
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view.view import View
from tests.harness.calls import call

GROUP = "management.service.sh"
PEPPER = Pepper(bytes(range(32)))


@asynccontextmanager
async def view_of(store: MemoryStore) -> AsyncIterator[View]:
    view = View(store, entry_builder(Catalog(())))
    await view.start()
    yield view
    await view.stop()


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.close()


async def ensure(store: MemoryStore, view: View) -> str | None:
    return await ensure_admin(store, view, PEPPER, GROUP, SystemClock())


async def test_the_first_key_opens_everything(store: MemoryStore) -> None:
    async with view_of(store) as view:
        key = await ensure(store, view)
        people = PrincipalDirectory(Informer(view, GROUP, USERS), Informer(view, GROUP, TEAMS))
        keys = AccessKeyAuthenticator(
            Informer(view, GROUP, ACCESS_KEYS), people, PEPPER, SystemClock(), lambda key: None
        )
        user = keys(call(headers={"authorization": f"Bearer {key}"}))
    assert user is not None and user.name == "admin"
    assert first_decision([administrators], user, RequestInfo("delete", "/")).allowed


async def test_the_first_key_belongs_to_the_first_user_and_fits_its_kind(store: MemoryStore) -> None:
    async with view_of(store) as view:
        await ensure(store, view)
    made = {record.key[1]: orjson.loads(record.value) for record in (await store.scan(())).records}
    user, key = made[USERS], made[ACCESS_KEYS]
    owner = {"apiVersion": f"{GROUP}/v1", "kind": "User", "name": "admin", "uid": user["metadata"]["uid"]}
    assert key["metadata"]["ownerReferences"] == [owner]
    for kind, obj in ((USER, user), (OWNED_ACCESS_KEY, key)):
        findings = Validator(kind.schema()).validate(obj)
        assert (findings.unknown_fields, findings.problems) == ([], [])


async def test_there_is_one_first_key_and_no_second(store: MemoryStore) -> None:
    async with view_of(store) as view:
        assert await ensure(store, view)
        revision = await store.revision()
        assert await ensure(store, view) is None
        assert await store.revision() == revision


async def test_a_later_start_makes_none(store: MemoryStore) -> None:
    async with view_of(store) as view:
        assert await ensure(store, view)
    async with view_of(store) as view:
        assert await ensure(store, view) is None


async def test_where_somebody_is_already_nothing_is_made(store: MemoryStore) -> None:
    value = orjson.dumps({"apiVersion": "v1", "kind": "User", "metadata": {"name": "eve"}, "spec": {}})
    await store.commit([Write((GROUP, USERS, "", "eve"), value, 0)])
    async with view_of(store) as view:
        assert await ensure(store, view) is None
        assert view.count(GROUP, ACCESS_KEYS) == 0


async def test_of_two_servers_that_start_at_once_one_makes_the_key(store: MemoryStore) -> None:
    async with view_of(store) as one, view_of(store) as other:
        made = await asyncio.gather(ensure(store, one), ensure(store, other))
        assert [view.count(GROUP, USERS) for view in (one, other)] == [1, 1]
    assert sorted(key is None for key in made) == [False, True]


async def test_the_store_has_a_digest_and_never_the_key(store: MemoryStore) -> None:
    async with view_of(store) as view:
        key = await ensure(store, view)
    assert key is not None
    records = (await store.scan(())).records
    assert len(records) == 2
    everything = b"".join(record.value for record in records)
    assert PEPPER.digest(key).encode() in everything
    assert key.encode() not in everything and key.removeprefix("fairlead_").encode() not in everything


def test_a_pepper_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "pepper.key"
    made = load_pepper(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(made.secret) == 32 and path.read_bytes() == made.secret
    assert load_pepper(path) == made


def test_two_installations_have_different_peppers(tmp_path: Path) -> None:
    assert load_pepper(tmp_path / "one") != load_pepper(tmp_path / "other")


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_pepper_that_is_too_short_is_refused_and_left_as_it_is(tmp_path: Path, length: int) -> None:
    path = tmp_path / "pepper.key"
    path.write_bytes(b"x" * length)
    with pytest.raises(FileProblem, match=r"too short .* restore it from a backup") as caught:
        load_pepper(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b"x" * length


def test_a_longer_pepper_of_ones_own_is_taken_whole(tmp_path: Path) -> None:
    path = tmp_path / "pepper.key"
    path.write_bytes(b"y" * 64)
    assert load_pepper(path) == Pepper(b"y" * 64)


def test_a_pepper_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "pepper.key").mkdir()
    with pytest.raises(FileProblem, match=r"pepper\.key"):
        load_pepper(tmp_path / "pepper.key")


def test_a_missing_pepper_is_not_replaced_where_keys_depend_on_it(tmp_path: Path) -> None:
    """A new one would let the server start, and lock everybody out."""
    path = tmp_path / "pepper.key"
    with pytest.raises(FileProblem, match="restore it from a backup"):
        load_pepper(path, keys_exist=True)
    assert not path.exists()


@pytest.mark.parametrize("length", [32, 64])
def test_a_pepper_in_the_environment_is_taken_and_no_file_made(tmp_path: Path, length: int) -> None:
    given = base64.b64encode(b"z" * length).decode()
    assert load_pepper(tmp_path / "pepper.key", keys_exist=True, variable=f" {given}\n") == Pepper(b"z" * length)
    assert not (tmp_path / "pepper.key").exists()


@pytest.mark.parametrize("given", ["short", "c2hvcnQ=", "not base64 at all but long enough to look like it"])
def test_a_pepper_in_the_environment_that_is_none_is_refused_and_not_shown(tmp_path: Path, given: str) -> None:
    with pytest.raises(FileProblem, match="FAIRLEAD_PEPPER") as caught:
        load_pepper(tmp_path / "pepper.key", variable=given)
    assert given not in str(caught.value)


async def test_the_first_servers_pepper_counts_for_all(store: MemoryStore, tmp_path: Path) -> None:
    await verify_pepper(store, PEPPER, tmp_path / "pepper.key")
    await verify_pepper(store, PEPPER, tmp_path / "pepper.key")
    with pytest.raises(FileProblem, match="copy theirs over it"):
        await verify_pepper(store, Pepper(b"x" * 32), tmp_path / "pepper.key")
    (record,) = (await store.scan(())).records
    assert PEPPER.secret not in record.value and PEPPER.secret.hex().encode() not in record.value


async def test_of_two_servers_that_start_at_once_one_has_the_pepper(store: MemoryStore, tmp_path: Path) -> None:
    peppers = [PEPPER, Pepper(b"x" * 32)]
    ends = await asyncio.gather(*(verify_pepper(store, p, tmp_path) for p in peppers), return_exceptions=True)
    assert [type(end) for end in ends if end is not None] == [FileProblem]
