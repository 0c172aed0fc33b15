"""AccessKeyAuthenticator: a valid key authenticates its owner, and every change applies to the next request."""

import base64
import hmac
import re
from typing import Any

import pytest

from fairlead.authn import access_keys
from fairlead.authn.access_keys import ACCESS_KEYS, KEY_PREFIX, TEAMS, USERS, Pepper, generate_key
from fairlead.core.errors import Unauthorized
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import User
from tests.harness.access_keys import GROUP, PEPPER, KeyDirectory
from tests.harness.calls import call

KEY = generate_key()
AUTHENTICATED = {"system:authenticated", "service:authenticated"}
TERMINATING = {"deletionTimestamp": "2026-01-02T03:04:05Z"}


def owner_references(kind: str, name: str, uid: str) -> Object:
    return {"ownerReferences": [{"apiVersion": f"{GROUP}/v1", "kind": kind, "name": name, "uid": uid}]}


@pytest.fixture(autouse=True)
async def create_alice(directory: KeyDirectory) -> None:
    """Creates user alice with one key."""
    await directory.add_user("alice", groups=["devs"])
    await directory.add_key("alices-key", KEY, "alice")


# --- the user of a key


async def test_a_key_authenticates_its_user(directory: KeyDirectory) -> None:
    user = directory.use_key(KEY)
    assert (user.name, user.uid, user.key, user.scope) == ("alice", "uid-of-alice", "alices-key", None)
    assert set(user.groups) == {"devs", *AUTHENTICATED, "service:user:alice", "service:user:*"}


async def test_a_request_without_the_header_gets_no_decision(directory: KeyDirectory) -> None:
    assert directory.authenticate() is None


async def test_a_team_key_authenticates_the_team_with_its_group_only(directory: KeyDirectory) -> None:
    await directory.add_team("core", users=["alice"])
    await directory.add_key("core-key", "the-key-of-core", team="core")
    user = directory.use_key("the-key-of-core")
    assert (user.name, user.uid, user.key) == ("service:team:core", "uid-of-core", "core-key")
    assert set(user.groups) == {"service:team:core", *AUTHENTICATED}


async def test_a_key_authenticates_a_subject_without_an_object(directory: KeyDirectory) -> None:
    await directory.add_key("robot-key", "the-key-of-robot", subject="robot:ci", groups=["ci"])
    user = directory.use_key("the-key-of-robot")
    assert (user.name, user.uid, user.key) == ("robot:ci", "", "robot-key")
    assert set(user.groups) == {"ci", *AUTHENTICATED}


async def test_a_key_adds_its_groups_to_those_of_its_owner(directory: KeyDirectory) -> None:
    await directory.add_team("core", users=["alice"])
    await directory.add_key("with-groups", "key-with-groups", "alice", groups=["ci", "devs"])
    user = directory.use_key("key-with-groups")
    assert {"devs", "ci", "service:team:core"} <= set(user.groups)
    assert len(user.groups) == len(set(user.groups))


async def test_a_key_carries_its_scope(directory: KeyDirectory) -> None:
    await directory.add_key("scoped", "key-with-scope", "alice", scope={"projects": [{"project": "demo"}]})
    await directory.add_key("empty", "key-with-nothing", "alice", scope={})
    assert directory.use_key("key-with-scope").scope == Scope(projects=("demo",))
    assert directory.use_key("key-with-nothing").scope == Scope()


async def test_the_user_of_a_key_is_found_by_the_name_of_the_key(directory: KeyDirectory) -> None:
    assert directory.authenticator.user_of_key("alices-key") == directory.use_key(KEY)
    assert directory.authenticator.user_of_key("nobodys-key") is None
    await directory.add_key("alices-key", KEY, "alice", disabled=True)
    assert directory.authenticator.user_of_key("alices-key") is None


async def test_a_token_is_authenticated_without_a_request(directory: KeyDirectory) -> None:
    assert directory.authenticator.authenticate_token(KEY).name == "alice"
    with pytest.raises(Unauthorized):
        directory.authenticator.authenticate_token("another")


async def test_all_invalid_credentials_get_the_same_message(directory: KeyDirectory) -> None:
    await directory.add_key("off", "disabled", "alice", disabled=True)
    await directory.add_key("over", "has-expired", "alice", status={"expired": "2026-01-02T03:04:05Z"})
    messages = set()
    for header in ["Bearer unknown", "Bearer disabled", "Bearer has-expired", "Bearer", "Basic x"]:
        with pytest.raises(Unauthorized) as error:
            directory.authenticate(header)
        messages.add(error.value.message)
    assert len(messages) == 1


# --- changes that invalidate a key with the next request


async def test_t15_a_deleted_key_is_invalid(directory: KeyDirectory) -> None:
    assert directory.accepts(KEY)
    await directory.remove(ACCESS_KEYS, "alices-key")
    assert directory.rejects(f"Bearer {KEY}")


async def test_t15_a_terminating_key_is_invalid(directory: KeyDirectory) -> None:
    assert directory.accepts(KEY)
    await directory.add_key("alices-key", KEY, "alice", meta=TERMINATING)
    assert directory.rejects(f"Bearer {KEY}")


async def test_t15_a_disabled_key_is_invalid_until_it_is_enabled(directory: KeyDirectory) -> None:
    assert directory.accepts(KEY)
    await directory.add_key("alices-key", KEY, "alice", disabled=True)
    assert directory.rejects(f"Bearer {KEY}")
    await directory.add_key("alices-key", KEY, "alice", disabled=False)
    assert directory.accepts(KEY)


@pytest.mark.parametrize("change", [{"disabled": True}, {"meta": TERMINATING}])
async def test_t15_all_keys_of_a_disabled_or_terminating_user_are_invalid(
    directory: KeyDirectory, change: Object
) -> None:
    await directory.add_key("second", "another-key-of-alice", "alice")
    assert directory.accepts("another-key-of-alice")
    await directory.add_user("alice", **change)
    assert directory.rejects(f"Bearer {KEY}")
    assert directory.rejects("Bearer another-key-of-alice")


async def test_t15_all_keys_of_a_deleted_user_are_invalid(directory: KeyDirectory) -> None:
    assert directory.accepts(KEY)
    await directory.remove(USERS, "alice")
    assert directory.rejects(f"Bearer {KEY}")


@pytest.mark.parametrize("change", [{"disabled": True}, {"meta": TERMINATING}, None])
async def test_t15_all_keys_of_a_disabled_terminating_or_deleted_team_are_invalid(
    directory: KeyDirectory, change: Object | None
) -> None:
    await directory.add_team("core")
    await directory.add_key("core-key", "the-key-of-core", team="core")
    assert directory.accepts("the-key-of-core")
    await (directory.remove(TEAMS, "core") if change is None else directory.add_team("core", **change))
    assert directory.rejects("Bearer the-key-of-core")


async def test_t15_a_user_of_the_same_name_does_not_inherit_keys(directory: KeyDirectory) -> None:
    await directory.add_key("owned", "key-with-owner", "alice", meta=owner_references("User", "alice", "uid-of-alice"))
    assert directory.accepts("key-with-owner")
    await directory.remove(USERS, "alice")
    await directory.add_user("alice", uid="another-uid")
    assert directory.rejects("Bearer key-with-owner")


async def test_t15_a_team_of_the_same_name_does_not_inherit_keys(directory: KeyDirectory) -> None:
    await directory.add_team("core", uid="one")
    await directory.add_key("core-key", "the-key-of-core", team="core", meta=owner_references("Team", "core", "one"))
    assert directory.accepts("the-key-of-core")
    await directory.add_team("core", uid="two")
    assert directory.rejects("Bearer the-key-of-core")


async def test_t15_a_user_of_the_same_name_does_not_inherit_keys_without_owner_reference(
    directory: KeyDirectory,
) -> None:
    """Deleting a user with `--cascade=orphan` removes the owner reference."""
    assert directory.accepts(KEY)
    await directory.remove(USERS, "alice")
    directory.clock.tick(5)
    await directory.add_user("alice", uid="another-uid")
    assert directory.rejects(f"Bearer {KEY}")


async def test_a_new_value_replaces_the_old_one(directory: KeyDirectory) -> None:
    assert directory.accepts(KEY)
    await directory.add_key("alices-key", "rotated", "alice")
    assert directory.rejects(f"Bearer {KEY}")
    assert directory.accepts("rotated")


async def test_t2_a_group_removed_from_the_owner_is_removed_from_its_keys(directory: KeyDirectory) -> None:
    await directory.add_key("scoped", "scoped-key", "alice", scope={"projects": [{"project": "demo"}]})
    for key in (KEY, "scoped-key"):
        await directory.add_user("alice", groups=["system:masters"])
        assert directory.use_key(key).is_admin
        await directory.add_user("alice", groups=[])
        assert not directory.use_key(key).is_admin


async def test_t2_a_removed_team_membership_is_removed_from_the_keys(directory: KeyDirectory) -> None:
    await directory.add_team("core", users=["alice"])
    assert "service:team:core" in directory.use_key(KEY).groups
    await directory.add_team("core", users=[])
    assert "service:team:core" not in directory.use_key(KEY).groups


async def test_a_new_key_is_valid_immediately(directory: KeyDirectory) -> None:
    assert directory.rejects("Bearer fresh")
    await directory.add_key("fresh", "fresh", "alice")
    assert directory.accepts("fresh")


@pytest.mark.parametrize("user", ["nobody", "", "Alice", "alice "])
async def test_a_key_of_an_unknown_user_is_invalid(directory: KeyDirectory, user: str) -> None:
    await directory.add_key("stray", "stray", user)
    assert directory.rejects("Bearer stray")


async def test_a_key_without_a_digest_is_invalid(directory: KeyDirectory) -> None:
    await directory.put(ACCESS_KEYS, "empty", {"user": "alice", "key": ""}, {})
    await directory.put(ACCESS_KEYS, "missing", {"user": "alice"}, {})
    for header in ("Bearer ", "Bearer None", "Bearer"):
        assert directory.rejects(header)


async def test_t15_a_cached_key_is_checked_again_after_every_change(directory: KeyDirectory) -> None:
    for _ in range(2):
        assert directory.accepts(KEY) and directory.accepts(KEY)
        await directory.add_key("alices-key", KEY, "alice", disabled=True)
        assert directory.rejects(f"Bearer {KEY}")
        await directory.add_key("alices-key", KEY, "alice")
        assert directory.accepts(KEY) and directory.accepts(KEY)
        await directory.add_user("alice", disabled=True)
        assert directory.rejects(f"Bearer {KEY}")
        await directory.add_user("alice")


async def test_the_token_cache_is_bounded(directory: KeyDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_keys, "TOKEN_CACHE_SIZE", 2)
    keys = [generate_key() for _ in range(5)]
    for number, key in enumerate(keys):
        await directory.add_key(f"key-{number}", key, "alice")
    for key in (*keys, *keys):
        assert directory.accepts(key)
        assert len(directory.authenticator._token_cache.get()) <= 2


async def test_the_keys_of_other_users_stay_valid(directory: KeyDirectory) -> None:
    await directory.add_user("bob")
    await directory.add_key("bobs-key", "bobs", "bob")
    await directory.remove(USERS, "alice")
    assert directory.use_key("bobs").name == "bob"


async def test_of_two_keys_with_the_same_value_the_older_one_counts(
    directory: KeyDirectory,
) -> None:
    await directory.add_user("bob")
    directory.clock.tick(5)
    await directory.add_key("a-copy", KEY, "bob")
    assert directory.use_key(KEY).name == "alice"
    await directory.remove(ACCESS_KEYS, "alices-key")
    assert directory.use_key(KEY).name == "bob"


# --- the steps of an authentication


async def test_t33_unknown_and_known_keys_take_the_same_steps(
    directory: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    keys = directory.authenticator

    def record_calls(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def record_call(*arguments: Any) -> Any:
            steps.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, record_call)

    record_calls(type(keys._dummy_credential), "matches")
    record_calls(type(keys._dummy_credential), "is_active")
    record_calls(Pepper, "digest")
    record_calls(hmac, "compare_digest")
    directory.use_key(KEY)
    expected, steps[:] = list(steps), []
    directory.rejects("Bearer " + generate_key())
    assert steps == expected == ["digest", "matches", "compare_digest", "is_active"]


async def test_t33_keys_are_indexed_by_their_full_digest(directory: KeyDirectory) -> None:
    assert directory.accepts(KEY)
    for digest in directory.authenticator._by_digest:
        assert re.fullmatch(r"hmac-sha256:[0-9a-f]{8}:[0-9a-f]{64}", digest)


async def test_an_update_of_one_key_does_not_reload_the_others(directory: KeyDirectory) -> None:
    for number in range(50):
        await directory.add_key(f"k{number}", f"key-number-{number}", "alice")
    directory.use_key(KEY)
    before = dict(directory.authenticator._by_name)
    await directory.add_key("k7", "key-number-7", "alice", status={"lastActivity": directory.timestamp_after(0)})
    directory.use_key("key-number-7")
    after = directory.authenticator._by_name
    assert [name for name in after if after[name] is not before[name]] == ["k7"]


# --- digests


def test_a_digest_contains_no_part_of_the_key() -> None:
    for key in (KEY, "short", "a" * 16):
        digest = PEPPER.digest(key)
        encoded_key = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
        for part in (key, key.removeprefix(KEY_PREFIX), encoded_key, key.encode().hex()):
            assert part not in digest


@pytest.mark.parametrize(
    ("secret", "key", "expected"),
    [
        (b"\x0b" * 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (
            b"\xaa" * 131,
            "Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
    ],
)
def test_a_digest_is_the_hmac_of_the_key_as_in_rfc_4231(secret: bytes, key: str, expected: str) -> None:
    pepper = Pepper(secret)
    assert [pepper.digest(key).rpartition(":")[2] for _ in range(2)] == [expected, expected]


def test_a_digest_contains_no_part_of_the_pepper_but_its_id() -> None:
    digest = PEPPER.digest(KEY)
    assert re.fullmatch(r"hmac-sha256:[0-9a-f]{8}:[0-9a-f]{64}", digest)
    assert PEPPER.secret.hex()[:16] not in digest


def test_a_digest_is_the_same_for_the_same_key_and_pepper_only() -> None:
    assert PEPPER.digest(KEY) == PEPPER.digest(KEY)
    assert PEPPER.digest(KEY) != PEPPER.digest(KEY + " ")
    assert PEPPER.digest(KEY) != Pepper(bytes(32)).digest(KEY)


def test_a_digest_has_the_id_of_the_pepper_for_later_changes() -> None:
    name = PEPPER.digest("one").split(":")[1]
    assert PEPPER.digest("two").split(":")[1] == name
    assert Pepper(bytes(32)).digest("one").split(":")[1] != name


def test_t26_keys_are_long_random_and_recognizable_by_secret_scanners() -> None:
    keys = {generate_key() for _ in range(1_000)}
    assert len(keys) == 1_000
    for key in keys:
        assert re.fullmatch(r"fairlead_[A-Za-z0-9_-]{43}", key)


def test_the_representation_of_a_user_does_not_contain_the_key() -> None:
    assert KEY not in repr(User("alice", (), "uid", "alices-key"))


async def test_an_accepted_header_is_not_accepted_as_a_token(directory: KeyDirectory) -> None:
    assert directory.use_key(KEY).name == "alice"
    with pytest.raises(Unauthorized):
        directory.authenticator.authenticate_token(f"Bearer {KEY}")


async def test_a_repeated_header_is_rejected_after_an_accepted_one(directory: KeyDirectory) -> None:
    header = f"Bearer {KEY}"
    assert directory.use_key(KEY).name == "alice"
    for repeated in ([header, header], [header, "Bearer other"]):
        with pytest.raises(Unauthorized):
            directory.authenticator(call(headers={"authorization": repeated}))
