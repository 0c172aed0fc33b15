"""Access keys: who holds a valid one is its user, from the next request on and not a request longer."""

import base64
import re
from collections.abc import AsyncIterator

import orjson
import pytest

from fairlead.authn.accesskeys import ACCESS_KEYS, KEY_PREFIX, USERS, AccessKeys, Pepper, new_key
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.catalog import Catalog
from fairlead.registry.following import Following
from fairlead.registry.record import finisher
from fairlead.storage.contract import Change, Key
from fairlead.storage.memory import MemoryStore
from fairlead.storage.view import View
from tests.authn.calls import call

GROUP = "management.service.sh"
PEPPER = Pepper(bytes(range(32)))
KEY = new_key()


class Directory:
    """Users and keys in a store, and the authenticator that follows them."""

    def __init__(self, store: MemoryStore, view: View) -> None:
        self._store = store
        self._view = view
        self._revisions: dict[Key, int] = {}
        self.authenticate = AccessKeys(Following(view, GROUP, ACCESS_KEYS), Following(view, GROUP, USERS), PEPPER)

    async def user(self, name: str, **spec: object) -> None:
        await self._put(USERS, name, {"username": name, **spec})

    async def key(self, name: str, user: str, key: str, **spec: object) -> None:
        await self._put(ACCESS_KEYS, name, {"user": user, "key": PEPPER.digest(key), **spec})

    async def remove(self, plural: str, name: str) -> None:
        await self._commit((GROUP, plural, "", name), None)

    async def _put(self, plural: str, name: str, spec: Object) -> None:
        obj = {
            "apiVersion": f"{GROUP}/v1",
            "kind": plural,
            "metadata": {"name": name, "uid": f"uid-of-{name}"},
            "spec": spec,
        }
        await self._commit((GROUP, plural, "", name), orjson.dumps(obj))

    async def _commit(self, key: Key, value: bytes | None) -> None:
        revision = await self._store.commit([Change(key, value, self._revisions.get(key, 0))])
        self._revisions[key] = 0 if value is None else revision
        await self._view.reached(revision)

    def ask(self, *authorization: str) -> User | None:
        return self.authenticate(call(headers={"authorization": authorization} if authorization else {}))

    def refuses(self, *authorization: str) -> bool:
        with pytest.raises(Unauthorized, match="invalid bearer token"):
            self.ask(*authorization)
        return True


@pytest.fixture
async def directory() -> AsyncIterator[Directory]:
    """Alice with one key."""
    store = MemoryStore()
    view = View(store, finisher(Catalog(())))
    await view.start()
    made = Directory(store, view)
    await made.user("alice", groups=["devs"])
    await made.key("alices-key", "alice", KEY)
    yield made
    await view.stop()
    await store.close()


# --- the credential


async def test_a_key_stands_for_its_user(directory: Directory) -> None:
    user = directory.ask(f"Bearer {KEY}")
    assert user is not None
    assert (user.name, user.uid, user.key) == ("alice", "uid-of-alice", "alices-key")
    everybody = {"system:authenticated", "service:authenticated", "service:user:alice", "service:user:*"}
    assert set(user.groups) == {"devs", *everybody}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
async def test_the_scheme_may_be_written_in_any_case(directory: Directory, scheme: str) -> None:
    assert directory.ask(f"{scheme} {KEY}")


async def test_spaces_around_the_key_do_not_matter(directory: Directory) -> None:
    assert directory.ask(f"Bearer   {KEY} ")


async def test_a_call_without_the_header_is_not_ours_to_judge(directory: Directory) -> None:
    assert directory.ask() is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "\t",
        "Bearer",
        "Bearer ",
        "Bearer    ",
        "Bearer \t",
        "bearer",
        KEY,
        f"Bearer{KEY}",
        f"Bearer\t{KEY}",
        f" Bearer {KEY}",
        f"Basic {KEY}",
        f"Token {KEY}",
        f"Bearer Bearer {KEY}",
        f"Bearer {KEY} {KEY}",
        f"Bearer {KEY},{KEY}",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY}x",
        f"Bearer {KEY.upper()}",
        f"Bearer {KEY.removeprefix(KEY_PREFIX)}",
        f"Bearer {KEY}\x00",
        f'Bearer "{KEY}"',
        "Bearer null",
        "Bearer None",
        "Bearer ü",
        f"Bearer {'x' * 65_000}",
        f"Bearer {PEPPER.digest(KEY)}",
    ],
)
async def test_anything_else_in_the_header_is_invalid(directory: Directory, header: str) -> None:
    assert directory.refuses(header)


async def test_two_headers_are_invalid_whatever_they_hold(directory: Directory) -> None:
    for pair in [(f"Bearer {KEY}", f"Bearer {KEY}"), (f"Bearer {KEY}", ""), ("", f"Bearer {KEY}"), ("", "")]:
        assert directory.refuses(*pair)


async def test_a_basic_credential_with_the_key_as_password_is_invalid(directory: Directory) -> None:
    assert directory.refuses("Basic " + base64.b64encode(f"alice:{KEY}".encode()).decode())


async def test_what_is_wrong_with_a_credential_is_not_told(directory: Directory) -> None:
    await directory.key("off", "alice", "switched-off", disabled=True)
    told = set()
    for header in ["Bearer never-heard-of", "Bearer switched-off", "Bearer", "Basic x"]:
        with pytest.raises(Unauthorized) as caught:
            directory.ask(header)
        told.add(caught.value.message)
    assert len(told) == 1


# --- what takes a key's force away, with the next request


async def test_a_key_that_is_deleted_opens_nothing_any_more(directory: Directory) -> None:
    assert directory.ask(f"Bearer {KEY}")
    await directory.remove(ACCESS_KEYS, "alices-key")
    assert directory.refuses(f"Bearer {KEY}")


async def test_a_key_that_is_disabled_opens_nothing_until_it_is_enabled_again(directory: Directory) -> None:
    assert directory.ask(f"Bearer {KEY}")
    await directory.key("alices-key", "alice", KEY, disabled=True)
    assert directory.refuses(f"Bearer {KEY}")
    await directory.key("alices-key", "alice", KEY, disabled=False)
    assert directory.ask(f"Bearer {KEY}")


async def test_a_user_who_is_disabled_is_out_with_every_key(directory: Directory) -> None:
    await directory.key("second", "alice", "another-key-of-alice")
    assert directory.ask("Bearer another-key-of-alice")
    await directory.user("alice", disabled=True)
    assert directory.refuses(f"Bearer {KEY}")
    assert directory.refuses("Bearer another-key-of-alice")


async def test_a_user_who_is_deleted_is_out_with_every_key(directory: Directory) -> None:
    assert directory.ask(f"Bearer {KEY}")
    await directory.remove(USERS, "alice")
    assert directory.refuses(f"Bearer {KEY}")


async def test_a_key_that_is_changed_is_another_key(directory: Directory) -> None:
    assert directory.ask(f"Bearer {KEY}")
    await directory.key("alices-key", "alice", "rotated")
    assert directory.refuses(f"Bearer {KEY}")
    assert directory.ask("Bearer rotated")


async def test_a_group_that_is_taken_away_is_gone(directory: Directory) -> None:
    await directory.user("alice", groups=["system:masters"])
    before = directory.ask(f"Bearer {KEY}")
    await directory.user("alice", groups=[])
    after = directory.ask(f"Bearer {KEY}")
    assert before is not None and "system:masters" in before.groups
    assert after is not None and "system:masters" not in after.groups


async def test_a_new_key_works_at_once(directory: Directory) -> None:
    assert directory.refuses("Bearer fresh")
    await directory.key("fresh", "alice", "fresh")
    assert directory.ask("Bearer fresh")


@pytest.mark.parametrize("user", ["nobody", "", "Alice", "alice "])
async def test_a_key_of_nobody_opens_nothing(directory: Directory, user: str) -> None:
    await directory.key("stray", user, "stray")
    assert directory.refuses("Bearer stray")


async def test_a_key_without_a_digest_opens_nothing(directory: Directory) -> None:
    await directory._put(ACCESS_KEYS, "empty", {"user": "alice", "key": ""})
    await directory._put(ACCESS_KEYS, "missing", {"user": "alice"})
    for header in ("Bearer ", "Bearer None", "Bearer"):
        assert directory.refuses(header)


async def test_others_keep_their_keys(directory: Directory) -> None:
    await directory.user("bob")
    await directory.key("bobs-key", "bob", "bobs")
    await directory.remove(USERS, "alice")
    user = directory.ask("Bearer bobs")
    assert user is not None and user.name == "bob"


# --- what is kept of a key


def test_a_digest_holds_nothing_of_the_key() -> None:
    for key in (KEY, "short", "a" * 16):
        digest = PEPPER.digest(key)
        encoded = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
        for part in (key, key.removeprefix(KEY_PREFIX), encoded, key.encode().hex()):
            assert part not in digest


def test_a_digest_holds_nothing_of_the_pepper_but_its_name() -> None:
    digest = PEPPER.digest(KEY)
    assert re.fullmatch(r"hmac-sha256:[0-9a-f]{8}:[0-9a-f]{64}", digest)
    assert PEPPER.secret.hex()[:16] not in digest


def test_a_digest_is_the_same_for_the_same_key_and_pepper_only() -> None:
    assert PEPPER.digest(KEY) == PEPPER.digest(KEY)
    assert PEPPER.digest(KEY) != PEPPER.digest(KEY + " ")
    assert PEPPER.digest(KEY) != Pepper(bytes(32)).digest(KEY)


def test_the_pepper_is_named_in_the_digest_so_that_it_can_be_changed_one_day() -> None:
    name = PEPPER.digest("one").split(":")[1]
    assert PEPPER.digest("two").split(":")[1] == name
    assert Pepper(bytes(32)).digest("one").split(":")[1] != name


def test_keys_are_long_random_and_easily_found_by_scanners() -> None:
    keys = {new_key() for _ in range(1_000)}
    assert len(keys) == 1_000
    for key in keys:
        assert re.fullmatch(r"fairlead_[A-Za-z0-9_-]{43}", key)


def test_the_user_object_knows_the_name_of_the_key_and_never_its_value() -> None:
    assert KEY not in repr(User("alice", (), "uid", "alices-key"))
