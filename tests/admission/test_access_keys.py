"""Creating access keys: the value is returned once, the owner, and no more permissions than the requester has."""

import asyncio
from functools import partial

import orjson
import pytest

from fairlead.core.errors import AlreadyExists, BadRequest, Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.auth import ADA, BOB, PEPPER, ROOT, AuthFixture, open_auth, problems_by_field, project_scope

CHOSEN = "a-key-of-my-own-choice"


# --- the value


async def test_a_new_key_has_a_generated_value_that_authenticates_its_owner(auth: AuthFixture) -> None:
    created = await auth.create_key("ci")
    value = created["spec"]["key"]
    assert value.startswith("fairlead_") and len(value) > 40
    assert auth.authenticator.authenticate_token(value).name == "ada"
    stored = auth.stored_key("ci")["spec"]["key"]
    assert stored == PEPPER.digest(value)


async def test_t26_the_store_has_the_digest_and_never_the_key_itself(auth: AuthFixture) -> None:
    created = await auth.create_key("ci")
    chosen = await auth.create_key("own", key=CHOSEN)
    stored = b"".join(record.value for record in (await auth.api.store.scan(())).records)
    for value in (created["spec"]["key"], chosen["spec"]["key"]):
        assert value.encode() not in stored
        assert PEPPER.digest(value).encode() in stored


async def test_no_later_reply_has_the_key_or_its_digest(auth: AuthFixture) -> None:
    created = await auth.create_key("ci")
    digest = PEPPER.digest(created["spec"]["key"])
    keys = auth.api.resource("OwnedAccessKey")
    entry = await keys.get("", "ci")
    changed = await auth.update_spec("OwnedAccessKey", "ci", ADA, displayName="CI")
    deleted = await keys.delete("", "ci", DeleteOptions(), WriteOptions(ADA))
    for reply in (entry.body, orjson.dumps(changed), deleted.body):
        assert b'"key"' not in reply and digest.encode() not in reply


async def test_a_user_can_choose_the_value(auth: AuthFixture) -> None:
    created = await auth.create_key("own", key=CHOSEN)
    assert created["spec"]["key"] == CHOSEN
    assert auth.authenticator.authenticate_token(CHOSEN).key == "own"


@pytest.mark.parametrize(
    "value", ["x" * 15, "x" * 513, "with a space in it", "ümlaut-ümlaut-ümlaut", "tab\tbetween-them"]
)
async def test_a_short_or_non_header_value_is_rejected_and_not_quoted(auth: AuthFixture, value: str) -> None:
    with pytest.raises(Invalid) as error:
        await auth.create_key("own", key=value)
    assert list(problems_by_field(error)) == ["spec.key"]
    assert value not in error.value.message
    assert auth.api.list_names("OwnedAccessKey") == []


async def test_a_value_of_sixteen_characters_is_accepted(auth: AuthFixture) -> None:
    assert (await auth.create_key("own", key="x" * 16))["spec"]["key"] == "x" * 16


async def test_a_value_in_use_is_rejected_without_naming_its_owner(auth: AuthFixture) -> None:
    await auth.create_key("adas", key=CHOSEN)
    with pytest.raises(Invalid) as error:
        await auth.create_key("bobs", BOB, key=CHOSEN)
    assert "spec.key" in problems_by_field(error)
    assert "ada" not in error.value.message and CHOSEN not in error.value.message


async def test_creating_the_same_key_twice_is_a_conflict_of_the_name(auth: AuthFixture) -> None:
    await auth.create_key("own", key=CHOSEN)
    with pytest.raises(AlreadyExists):
        await auth.create_key("own", key=CHOSEN)


async def test_a_dry_run_returns_no_value(auth: AuthFixture) -> None:
    body = auth.api.build_object("OwnedAccessKey", "ci", spec={})
    created = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests", dry_run=True))
    assert "key" not in created["spec"] and created["spec"]["user"] == "ada"


async def test_a_retried_write_keeps_the_value_that_it_returns(
    auth: AuthFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.registry import object_metadata as meta

    await auth.create_key("k-a")
    generated = iter(["k-a", "k-b"])
    monkeypatch.setattr(meta, "generate_name", lambda prefix: next(generated))
    body = auth.api.build_object("OwnedAccessKey", metadata={"generateName": "k-"}, spec={})
    created = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    assert created["metadata"]["name"] == "k-b"
    assert auth.authenticator.authenticate_token(created["spec"]["key"]).key == "k-b"


# --- the owner


async def test_a_key_belongs_to_its_creator_by_default(auth: AuthFixture) -> None:
    created = await auth.create_key("ci")
    assert (created["spec"]["user"], created["spec"]["type"]) == ("ada", "User")
    assert (await auth.create_key("other", type=""))["spec"]["type"] == ""


async def test_a_key_created_with_a_team_key_belongs_to_the_team(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"])
    first = await auth.create_key("first", ROOT, team="core")
    user = auth.authenticator.authenticate_token(first["spec"]["key"])
    created = await auth.create_key("second", user)
    assert created["spec"]["team"] == "core" and "user" not in created["spec"]


async def test_t4_members_of_a_team_cannot_create_its_keys(auth: AuthFixture) -> None:
    await auth.create_team("core", users=["ada"])
    ada = await auth.sign_in("ada")
    assert "service:team:core" in ada.groups
    with pytest.raises(Forbidden, match="only administrators can create keys for others"):
        await auth.create_key("k", ada, team="core")


@pytest.mark.parametrize(
    "spec", [{"user": "bob"}, {"team": "core"}, {"subject": "robot"}, {"groups": ["x"]}, {"groups": ["system:masters"]}]
)
async def test_t4_only_administrators_set_another_owner_a_subject_or_groups(auth: AuthFixture, spec: Object) -> None:
    await auth.create_team("core")
    with pytest.raises(Forbidden, match="only administrators"):
        await auth.create_key("k", ADA, **spec)
    scoped = User("root", ("system:masters",), scope=Scope(projects=("a",)))
    with pytest.raises(Forbidden, match="only administrators"):
        await auth.create_key("k", scoped, scope=project_scope("a"), **spec)
    assert auth.api.list_names("OwnedAccessKey") == []
    assert await auth.create_key("k", ROOT, **spec)


@pytest.mark.parametrize(
    "spec", [{"user": "ada", "team": "core"}, {"user": "ada", "subject": "s"}, {"team": "core", "subject": "s"}]
)
async def test_a_key_has_one_owner(auth: AuthFixture, spec: Object) -> None:
    await auth.create_team("core")
    with pytest.raises(Invalid):
        await auth.create_key("k", ROOT, **spec)


@pytest.mark.parametrize("spec", [{"user": "nobody"}, {"team": "nothing"}])
async def test_a_key_for_an_unknown_owner_is_rejected(auth: AuthFixture, spec: Object) -> None:
    with pytest.raises(Invalid, match="there is no") as error:
        await auth.create_key("k", ROOT, **spec)
    assert list(problems_by_field(error)) == [f"spec.{next(iter(spec))}"]


async def test_a_key_has_an_owner_reference_that_does_not_block_deletion(auth: AuthFixture) -> None:
    ada = auth.api.get("User", "ada")
    assert ada is not None
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "User", "name": "ada", "uid": ada["metadata"]["uid"]}
    assert (await auth.create_key("k"))["metadata"]["ownerReferences"] == [reference]
    assert "ownerReferences" not in (await auth.create_key("s", ROOT, subject="robot"))["metadata"]


async def test_clients_cannot_change_the_owner_reference_to_the_owner(auth: AuthFixture) -> None:
    bob = auth.api.get("User", "bob")
    assert bob is not None
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}
    wrong = {"apiVersion": f"{GROUP}/v1", "kind": "User", "name": "bob", "uid": bob["metadata"]["uid"]}
    body = auth.api.build_object("OwnedAccessKey", "k", metadata={"ownerReferences": [wrong, other]}, spec={})
    created = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    assert [each["name"] for each in created["metadata"]["ownerReferences"]] == ["c", "ada"]
    for references in ([], [wrong]):
        meta = {"ownerReferences": references}
        changed = await auth.api.patch("OwnedAccessKey", "k", partial(_update_meta, meta), WriteOptions(ADA, "tests"))
        assert [each["name"] for each in changed["metadata"]["ownerReferences"]] == ["ada"]


def _update_meta(meta: Object, obj: Object) -> None:
    obj["metadata"].update(meta)


# --- no more permissions than the requester


async def test_t4_a_scoped_key_creates_only_keys_within_its_scope(auth: AuthFixture) -> None:
    ada = await auth.sign_in("ada", scope=project_scope("a", "b"))
    assert await auth.create_key("part", ada, scope=project_scope("a"))
    for scope in (project_scope("a", "c"), None):
        with pytest.raises(Forbidden, match="exceeds the scope"):
            await auth.create_key("more", ada, **({"scope": scope} if scope else {}))


async def test_t4_an_expiring_key_creates_none_that_outlives_it(auth: AuthFixture) -> None:
    ada = await auth.sign_in("ada", ttl=100)
    await asyncio.sleep(40)
    assert await auth.create_key("within", ada, ttl=60)
    for ttl in (61, 0, None):
        with pytest.raises(Forbidden, match=r"set spec\.ttl to at most 60"):
            await auth.create_key("beyond", ada, **({} if ttl is None else {"ttl": ttl}))


async def test_t4_an_expiring_key_of_an_administrator_creates_none_that_outlives_it(auth: AuthFixture) -> None:
    root = await auth.sign_in("root", ttl=100)
    with pytest.raises(Forbidden, match="no key outlives"):
        await auth.create_key("k", root, user="bob")
    assert await auth.create_key("k", root, user="bob", ttl=100)


async def test_t4_a_deleted_key_creates_nothing(auth: AuthFixture) -> None:
    ada = await auth.sign_in("ada")
    await auth.api.delete("OwnedAccessKey", ada.key, user=CONTROLLER_USER)
    with pytest.raises(Forbidden, match="no longer exists; sign in again"):
        await auth.create_key("k", ada)


async def test_a_ttl_above_the_server_maximum_is_invalid() -> None:
    async with open_auth(max_ttl=3_600) as auth:
        assert await auth.create_key("fine", ttl=3_600)
        for spec in ({"ttl": 3_601}, {"ttl": 0}, {}):
            with pytest.raises(Invalid, match="between 1 and 3600") as error:
                await auth.create_key("long", ROOT, **spec)
            assert list(problems_by_field(error)) == ["spec.ttl"]
        with pytest.raises(Invalid, match="between 1 and 3600"):
            await auth.update_spec("OwnedAccessKey", "fine", ROOT, ttl=3_601)
        assert await auth.create_key("the-servers-own", CONTROLLER_USER, subject="robot")
        assert await auth.update_spec("OwnedAccessKey", "the-servers-own", ROOT, displayName="untouched otherwise")


# --- warnings, and malformed bodies


@pytest.mark.parametrize("scope", [{}, {"projects": []}, {"allowServiceCli": False}])
async def test_creating_a_key_with_an_empty_scope_warns(auth: AuthFixture, scope: Object) -> None:
    options = WriteOptions(ADA, "tests")
    await auth.api.submit(
        "OwnedAccessKey", auth.api.build_object("OwnedAccessKey", "k", spec={"scope": scope}), options
    )
    assert [each for each in options.warnings if "spec.scope is empty" in each]


async def test_emptying_the_scope_of_a_key_warns_once(auth: AuthFixture) -> None:
    await auth.create_key("k")
    warning_counts = []
    steps: list[Object] = [{"scope": {}}, {"displayName": "still nothing"}]
    for spec in steps:
        options = WriteOptions(ADA, "tests")
        await auth.api.patch("OwnedAccessKey", "k", partial(_update_spec, spec), options)
        warning_counts.append(len(options.warnings))
    assert warning_counts == [1, 0]


def _update_spec(spec: Object, obj: Object) -> None:
    obj["spec"].update(spec)


async def test_creating_any_other_key_does_not_warn(auth: AuthFixture) -> None:
    for number, spec in enumerate(({}, {"scope": project_scope("a")}, {"scope": {"allowServiceCli": True}})):
        options = WriteOptions(ADA, "tests")
        body = auth.api.build_object("OwnedAccessKey", f"k{number}", spec=spec)
        await auth.api.submit("OwnedAccessKey", body, options)
        assert options.warnings == []


@pytest.mark.parametrize(
    "spec",
    [
        [],
        "x",
        {"key": 1234567890123456},
        {"key": ["a"]},
        {"user": 5},
        {"groups": "system:masters"},
        {"groups": [1]},
        {"scope": "all"},
        {"scope": {"projects": "*"}},
        {"ttl": "1h"},
        {"type": "Admin"},
    ],
)
async def test_a_malformed_spec_is_invalid(auth: AuthFixture, spec: object) -> None:
    for user in (ADA, ROOT):
        with pytest.raises(Invalid):
            body = auth.api.build_object("OwnedAccessKey", "k", spec=spec)
            await auth.api.submit("OwnedAccessKey", body, WriteOptions(user, "tests"))
    await auth.create_key("k")
    with pytest.raises(Invalid):
        await auth.api.patch("OwnedAccessKey", "k", lambda obj: obj.update(spec=spec), WriteOptions(ADA, "tests"))


async def test_a_key_without_a_spec_belongs_to_its_creator(auth: AuthFixture) -> None:
    body = auth.api.build_object("OwnedAccessKey", "k")
    created = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    assert created["spec"]["user"] == "ada"


@pytest.mark.parametrize("labels", ["x", 5, [1], {"service.sh/service-account-uid": ["x"]}])
async def test_labels_that_are_not_a_string_map_are_a_bad_request(auth: AuthFixture, labels: object) -> None:
    body = auth.api.build_object("OwnedAccessKey", "k", metadata={"labels": labels}, spec={})
    with pytest.raises(BadRequest, match=r"metadata\.labels"):
        await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    await auth.create_key("k")
    with pytest.raises(BadRequest, match=r"metadata\.labels"):
        await auth.api.patch(
            "OwnedAccessKey", "k", lambda obj: obj["metadata"].update(labels=labels), WriteOptions(ADA)
        )
