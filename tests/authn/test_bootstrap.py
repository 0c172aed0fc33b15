"""The first start: the initial administrator with one key, and the pepper."""

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
async def open_view(store: MemoryStore) -> AsyncIterator[View]:
    view = View(store, entry_builder(Catalog(())))
    await view.start()
    yield view
    await view.stop()


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    memory_store = MemoryStore()
    yield memory_store
    await memory_store.close()


async def ensure_admin_key(store: MemoryStore, view: View) -> str | None:
    return await ensure_admin(store, view, PEPPER, GROUP, SystemClock())


async def test_the_first_key_may_do_everything(store: MemoryStore) -> None:
    async with open_view(store) as view:
        key = await ensure_admin_key(store, view)
        principals = PrincipalDirectory(Informer(view, GROUP, USERS), Informer(view, GROUP, TEAMS))
        authenticator = AccessKeyAuthenticator(
            Informer(view, GROUP, ACCESS_KEYS), principals, PEPPER, SystemClock(), lambda key: None
        )
        user = authenticator(call(headers={"authorization": f"Bearer {key}"}))
    assert user is not None and user.name == "admin"
    assert first_decision([administrators], user, RequestInfo("delete", "/")).allowed


async def test_the_first_key_belongs_to_the_first_user_and_is_valid(store: MemoryStore) -> None:
    async with open_view(store) as view:
        await ensure_admin_key(store, view)
    objects = {record.key[1]: orjson.loads(record.value) for record in (await store.scan(())).records}
    user, key = objects[USERS], objects[ACCESS_KEYS]
    owner = {"apiVersion": f"{GROUP}/v1", "kind": "User", "name": "admin", "uid": user["metadata"]["uid"]}
    assert key["metadata"]["ownerReferences"] == [owner]
    for kind, obj in ((USER, user), (OWNED_ACCESS_KEY, key)):
        findings = Validator(kind.schema()).validate(obj)
        assert (findings.unknown_fields, findings.problems) == ([], [])


async def test_a_second_call_creates_nothing(store: MemoryStore) -> None:
    async with open_view(store) as view:
        assert await ensure_admin_key(store, view)
        revision = await store.revision()
        assert await ensure_admin_key(store, view) is None
        assert await store.revision() == revision


async def test_a_later_start_creates_no_key(store: MemoryStore) -> None:
    async with open_view(store) as view:
        assert await ensure_admin_key(store, view)
    async with open_view(store) as view:
        assert await ensure_admin_key(store, view) is None


async def test_nothing_is_created_where_a_user_exists(store: MemoryStore) -> None:
    value = orjson.dumps({"apiVersion": "v1", "kind": "User", "metadata": {"name": "eve"}, "spec": {}})
    await store.commit([Write((GROUP, USERS, "", "eve"), value, 0)])
    async with open_view(store) as view:
        assert await ensure_admin_key(store, view) is None
        assert view.count(GROUP, ACCESS_KEYS) == 0


async def test_of_two_concurrent_starts_one_creates_the_key(store: MemoryStore) -> None:
    async with open_view(store) as one, open_view(store) as other:
        keys = await asyncio.gather(ensure_admin_key(store, one), ensure_admin_key(store, other))
        assert [view.count(GROUP, USERS) for view in (one, other)] == [1, 1]
    assert sorted(key is None for key in keys) == [False, True]


async def test_the_store_has_a_digest_and_never_the_key(store: MemoryStore) -> None:
    async with open_view(store) as view:
        key = await ensure_admin_key(store, view)
    assert key is not None
    records = (await store.scan(())).records
    assert len(records) == 2
    stored = b"".join(record.value for record in records)
    assert PEPPER.digest(key).encode() in stored
    assert key.encode() not in stored and key.removeprefix("fairlead_").encode() not in stored


def test_a_pepper_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "pepper.key"
    pepper = load_pepper(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(pepper.secret) == 32 and path.read_bytes() == pepper.secret
    assert load_pepper(path) == pepper


def test_two_installations_have_different_peppers(tmp_path: Path) -> None:
    assert load_pepper(tmp_path / "one") != load_pepper(tmp_path / "other")


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_short_pepper_is_rejected_and_not_changed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "pepper.key"
    path.write_bytes(b"x" * length)
    with pytest.raises(FileProblem, match=r"too short .* restore it from a backup") as error:
        load_pepper(path)
    assert str(path) in str(error.value)
    assert path.read_bytes() == b"x" * length


def test_a_longer_pepper_is_used_completely(tmp_path: Path) -> None:
    path = tmp_path / "pepper.key"
    path.write_bytes(b"y" * 64)
    assert load_pepper(path) == Pepper(b"y" * 64)


def test_an_unreadable_pepper_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "pepper.key").mkdir()
    with pytest.raises(FileProblem, match=r"pepper\.key"):
        load_pepper(tmp_path / "pepper.key")


def test_a_missing_pepper_is_not_replaced_if_keys_exist(tmp_path: Path) -> None:
    """With a new one the server would start, but reject every existing key."""
    path = tmp_path / "pepper.key"
    with pytest.raises(FileProblem, match="restore it from a backup"):
        load_pepper(path, keys_exist=True)
    assert not path.exists()


@pytest.mark.parametrize("length", [32, 64])
def test_a_pepper_in_the_environment_is_used_and_no_file_is_created(tmp_path: Path, length: int) -> None:
    encoded = base64.b64encode(b"z" * length).decode()
    assert load_pepper(tmp_path / "pepper.key", keys_exist=True, variable=f" {encoded}\n") == Pepper(b"z" * length)
    assert not (tmp_path / "pepper.key").exists()


@pytest.mark.parametrize("encoded", ["short", "c2hvcnQ=", "not base64 at all but long enough to look like it"])
def test_an_invalid_pepper_in_the_environment_is_rejected_and_not_quoted(tmp_path: Path, encoded: str) -> None:
    with pytest.raises(FileProblem, match="FAIRLEAD_PEPPER") as error:
        load_pepper(tmp_path / "pepper.key", variable=encoded)
    assert encoded not in str(error.value)


async def test_all_servers_must_have_the_pepper_of_the_first(store: MemoryStore, tmp_path: Path) -> None:
    await verify_pepper(store, PEPPER, tmp_path / "pepper.key")
    await verify_pepper(store, PEPPER, tmp_path / "pepper.key")
    with pytest.raises(FileProblem, match="copy theirs over it"):
        await verify_pepper(store, Pepper(b"x" * 32), tmp_path / "pepper.key")
    with pytest.raises(FileProblem, match=r"^the variable FAIRLEAD_PEPPER: not the secret .* set it to theirs$"):
        await verify_pepper(store, Pepper(b"x" * 32), tmp_path / "pepper.key", variable="eHh4")
    (record,) = (await store.scan(())).records
    assert PEPPER.secret not in record.value and PEPPER.secret.hex().encode() not in record.value


async def test_of_two_concurrent_starts_with_different_peppers_one_fails(store: MemoryStore, tmp_path: Path) -> None:
    peppers = [PEPPER, Pepper(b"x" * 32)]
    results = await asyncio.gather(
        *(verify_pepper(store, pepper, tmp_path) for pepper in peppers), return_exceptions=True
    )
    assert [type(result) for result in results if result is not None] == [FileProblem]
