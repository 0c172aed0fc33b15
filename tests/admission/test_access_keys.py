"""Making access keys: a value that is shown once, an owner, and never more than one's own."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import orjson
import pytest

from fairlead.core.errors import AlreadyExists, BadRequest, Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.auth import ADA, BOB, PEPPER, ROOT, AuthFixture, open_auth, projects

CHOSEN = "a-key-of-my-own-choice"


@pytest.fixture
async def auth() -> AsyncIterator[AuthFixture]:
    async with open_auth() as made:
        yield made


def told(caught: pytest.ExceptionInfo[Invalid]) -> dict[str, str]:
    return {problem.field: problem.message for problem in caught.value.details.problems}


# --- the value


async def test_a_key_is_made_and_shown_once(auth: AuthFixture) -> None:
    made = await auth.key("ci")
    value = made["spec"]["key"]
    assert value.startswith("fairlead_") and len(value) > 40
    assert auth.authenticate.authenticate_token(value).name == "ada"
    stored = auth.stored("ci")["spec"]["key"]
    assert stored == PEPPER.digest(value)


async def test_t26_the_store_has_the_digest_and_never_the_key(auth: AuthFixture) -> None:
    made = await auth.key("ci")
    chosen = await auth.key("own", key=CHOSEN)
    everything = b"".join(record.value for record in (await auth.api.store.scan(())).records)
    for value in (made["spec"]["key"], chosen["spec"]["key"]):
        assert value.encode() not in everything
        assert PEPPER.digest(value).encode() in everything


async def test_no_later_answer_has_the_key_or_its_digest(auth: AuthFixture) -> None:
    made = await auth.key("ci")
    digest = PEPPER.digest(made["spec"]["key"])
    keys = auth.api.of("OwnedAccessKey")
    entry = await keys.get("", "ci")
    changed = await auth.set("OwnedAccessKey", "ci", ADA, displayName="CI")
    deleted = await keys.delete("", "ci", DeleteOptions(), WriteOptions(ADA))
    for answer in (entry.body, orjson.dumps(changed), deleted.body):
        assert b'"key"' not in answer and digest.encode() not in answer


async def test_one_can_choose_the_value(auth: AuthFixture) -> None:
    made = await auth.key("own", key=CHOSEN)
    assert made["spec"]["key"] == CHOSEN
    assert auth.authenticate.authenticate_token(CHOSEN).key == "own"


@pytest.mark.parametrize(
    "value", ["x" * 15, "x" * 513, "with a space in it", "ümlaut-ümlaut-ümlaut", "tab\tbetween-them"]
)
async def test_a_value_that_is_short_or_does_not_fit_a_header_is_refused_unquoted(
    auth: AuthFixture, value: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await auth.key("own", key=value)
    assert list(told(caught)) == ["spec.key"]
    assert value not in caught.value.message
    assert auth.api.names("OwnedAccessKey") == []


async def test_a_value_of_sixteen_characters_will_do(auth: AuthFixture) -> None:
    assert (await auth.key("own", key="x" * 16))["spec"]["key"] == "x" * 16


async def test_a_value_that_is_in_use_is_refused_without_telling_whose(auth: AuthFixture) -> None:
    await auth.key("adas", key=CHOSEN)
    with pytest.raises(Invalid) as caught:
        await auth.key("bobs", BOB, key=CHOSEN)
    assert "spec.key" in told(caught)
    assert "ada" not in caught.value.message and CHOSEN not in caught.value.message


async def test_making_the_same_key_twice_is_told_of_the_name(auth: AuthFixture) -> None:
    await auth.key("own", key=CHOSEN)
    with pytest.raises(AlreadyExists):
        await auth.key("own", key=CHOSEN)


async def test_a_dry_run_shows_no_key_that_nobody_could_use(auth: AuthFixture) -> None:
    body = auth.api.body("OwnedAccessKey", "ci", spec={})
    made = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests", dry_run=True))
    assert "key" not in made["spec"] and made["spec"]["user"] == "ada"


async def test_a_write_that_has_to_be_tried_again_keeps_the_value_it_will_show(
    auth: AuthFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.registry import object_metadata as meta

    await auth.key("k-a")
    drawn = iter(["k-a", "k-b"])
    monkeypatch.setattr(meta, "generate_name", lambda prefix: next(drawn))
    body = auth.api.body("OwnedAccessKey", metadata={"generateName": "k-"}, spec={})
    made = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    assert made["metadata"]["name"] == "k-b"
    assert auth.authenticate.authenticate_token(made["spec"]["key"]).key == "k-b"


# --- the owner


async def test_a_key_is_its_makers_unless_it_says_otherwise(auth: AuthFixture) -> None:
    made = await auth.key("ci")
    assert (made["spec"]["user"], made["spec"]["type"]) == ("ada", "User")
    assert (await auth.key("other", type=""))["spec"]["type"] == ""


async def test_a_key_of_a_team_makes_keys_of_the_team(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"])
    first = await auth.key("first", ROOT, team="core")
    user = auth.authenticate.authenticate_token(first["spec"]["key"])
    made = await auth.key("second", user)
    assert made["spec"]["team"] == "core" and "user" not in made["spec"]


async def test_t4_members_of_a_team_do_not_make_its_keys(auth: AuthFixture) -> None:
    await auth.team("core", users=["ada"])
    ada = await auth.signed_in("ada")
    assert "service:team:core" in ada.groups
    with pytest.raises(Forbidden, match="only administrators can create keys for others"):
        await auth.key("k", ada, team="core")


@pytest.mark.parametrize(
    "spec", [{"user": "bob"}, {"team": "core"}, {"subject": "robot"}, {"groups": ["x"]}, {"groups": ["system:masters"]}]
)
async def test_t4_what_only_administrators_set(auth: AuthFixture, spec: Object) -> None:
    await auth.team("core")
    with pytest.raises(Forbidden, match="only administrators"):
        await auth.key("k", ADA, **spec)
    scoped = User("root", ("system:masters",), scope=Scope(projects=("a",)))
    with pytest.raises(Forbidden, match="only administrators"):
        await auth.key("k", scoped, scope=projects("a"), **spec)
    assert auth.api.names("OwnedAccessKey") == []
    assert await auth.key("k", ROOT, **spec)


@pytest.mark.parametrize(
    "spec", [{"user": "ada", "team": "core"}, {"user": "ada", "subject": "s"}, {"team": "core", "subject": "s"}]
)
async def test_a_key_has_one_owner(auth: AuthFixture, spec: Object) -> None:
    await auth.team("core")
    with pytest.raises(Invalid):
        await auth.key("k", ROOT, **spec)


@pytest.mark.parametrize("spec", [{"user": "nobody"}, {"team": "nothing"}])
async def test_a_key_for_somebody_who_is_not_there_is_refused(auth: AuthFixture, spec: Object) -> None:
    with pytest.raises(Invalid, match="there is no") as caught:
        await auth.key("k", ROOT, **spec)
    assert list(told(caught)) == [f"spec.{next(iter(spec))}"]


async def test_a_key_refers_to_its_owner_and_does_not_hold_it_up(auth: AuthFixture) -> None:
    ada = auth.api.see("User", "ada")
    assert ada is not None
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "User", "name": "ada", "uid": ada["metadata"]["uid"]}
    assert (await auth.key("k"))["metadata"]["ownerReferences"] == [reference]
    assert "ownerReferences" not in (await auth.key("s", ROOT, subject="robot"))["metadata"]


async def test_the_reference_to_the_owner_is_the_servers_to_set(auth: AuthFixture) -> None:
    bob = auth.api.see("User", "bob")
    assert bob is not None
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}
    wrong = {"apiVersion": f"{GROUP}/v1", "kind": "User", "name": "bob", "uid": bob["metadata"]["uid"]}
    body = auth.api.body("OwnedAccessKey", "k", metadata={"ownerReferences": [wrong, other]}, spec={})
    made = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    assert [each["name"] for each in made["metadata"]["ownerReferences"]] == ["c", "ada"]
    for references in ([], [wrong]):
        meta = {"ownerReferences": references}
        changed = await auth.api.patch("OwnedAccessKey", "k", partial(_update_meta, meta), WriteOptions(ADA, "tests"))
        assert [each["name"] for each in changed["metadata"]["ownerReferences"]] == ["ada"]


def _update_meta(meta: Object, obj: Object) -> None:
    obj["metadata"].update(meta)


# --- never more than one's own


async def test_t4_a_scoped_key_hands_on_a_part_of_its_scope_only(auth: AuthFixture) -> None:
    ada = await auth.signed_in("ada", scope=projects("a", "b"))
    assert await auth.key("part", ada, scope=projects("a"))
    for scope in (projects("a", "c"), None):
        with pytest.raises(Forbidden, match="exceeds the scope"):
            await auth.key("more", ada, **({"scope": scope} if scope else {}))


async def test_t4_a_key_that_expires_makes_none_that_outlives_it(auth: AuthFixture) -> None:
    ada = await auth.signed_in("ada", ttl=100)
    await asyncio.sleep(40)
    assert await auth.key("within", ada, ttl=60)
    for ttl in (61, 0, None):
        with pytest.raises(Forbidden, match=r"set spec\.ttl to at most 60"):
            await auth.key("beyond", ada, **({} if ttl is None else {"ttl": ttl}))


async def test_t4_an_administrators_key_that_expires_makes_none_that_outlives_it(auth: AuthFixture) -> None:
    root = await auth.signed_in("root", ttl=100)
    with pytest.raises(Forbidden, match="no key outlives"):
        await auth.key("k", root, user="bob")
    assert await auth.key("k", root, user="bob", ttl=100)


async def test_t4_with_a_key_that_is_gone_nothing_can_be_made(auth: AuthFixture) -> None:
    ada = await auth.signed_in("ada")
    await auth.api.delete("OwnedAccessKey", ada.key, user=CONTROLLER_USER)
    with pytest.raises(Forbidden, match="no longer exists; sign in again"):
        await auth.key("k", ada)


async def test_a_server_that_bounds_lives_refuses_longer_ones() -> None:
    async with open_auth(max_ttl=3_600) as auth:
        assert await auth.key("fine", ttl=3_600)
        for spec in ({"ttl": 3_601}, {"ttl": 0}, {}):
            with pytest.raises(Invalid, match="between 1 and 3600") as caught:
                await auth.key("long", ROOT, **spec)
            assert list(told(caught)) == ["spec.ttl"]
        with pytest.raises(Invalid, match="between 1 and 3600"):
            await auth.set("OwnedAccessKey", "fine", ROOT, ttl=3_601)
        assert await auth.key("the-servers-own", CONTROLLER_USER, subject="robot")
        assert await auth.set("OwnedAccessKey", "the-servers-own", ROOT, displayName="untouched otherwise")


# --- warnings, and bodies that are nothing like a key


@pytest.mark.parametrize("scope", [{}, {"projects": []}, {"allowServiceCli": False}])
async def test_who_makes_a_key_that_can_do_nothing_is_warned(auth: AuthFixture, scope: Object) -> None:
    writing = WriteOptions(ADA, "tests")
    await auth.api.submit("OwnedAccessKey", auth.api.body("OwnedAccessKey", "k", spec={"scope": scope}), writing)
    assert [each for each in writing.warnings if "spec.scope is empty" in each]


async def test_who_takes_everything_from_a_key_is_warned_once(auth: AuthFixture) -> None:
    await auth.key("k")
    told = []
    steps: list[Object] = [{"scope": {}}, {"displayName": "still nothing"}]
    for spec in steps:
        writing = WriteOptions(ADA, "tests")
        await auth.api.patch("OwnedAccessKey", "k", partial(_update_spec, spec), writing)
        told.append(len(writing.warnings))
    assert told == [1, 0]


def _update_spec(spec: Object, obj: Object) -> None:
    obj["spec"].update(spec)


async def test_who_makes_any_other_key_is_not(auth: AuthFixture) -> None:
    for number, spec in enumerate(({}, {"scope": projects("a")}, {"scope": {"allowServiceCli": True}})):
        writing = WriteOptions(ADA, "tests")
        body = auth.api.body("OwnedAccessKey", f"k{number}", spec=spec)
        await auth.api.submit("OwnedAccessKey", body, writing)
        assert writing.warnings == []


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
async def test_a_body_of_the_wrong_shape_is_refused_and_makes_nothing(auth: AuthFixture, spec: object) -> None:
    for user in (ADA, ROOT):
        with pytest.raises(Invalid):
            body = auth.api.body("OwnedAccessKey", "k", spec=spec)
            await auth.api.submit("OwnedAccessKey", body, WriteOptions(user, "tests"))
    await auth.key("k")
    with pytest.raises(Invalid):
        await auth.api.patch("OwnedAccessKey", "k", lambda obj: obj.update(spec=spec), WriteOptions(ADA, "tests"))


async def test_a_key_without_a_spec_is_ones_own(auth: AuthFixture) -> None:
    body = auth.api.body("OwnedAccessKey", "k")
    made = await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    assert made["spec"]["user"] == "ada"


@pytest.mark.parametrize("odd", ["x", 5, [1], {"service.sh/service-account-uid": ["x"]}])
async def test_labels_that_are_no_map_of_texts_are_refused_for_that(auth: AuthFixture, odd: object) -> None:
    body = auth.api.body("OwnedAccessKey", "k", metadata={"labels": odd}, spec={})
    with pytest.raises(BadRequest, match=r"metadata\.labels"):
        await auth.api.submit("OwnedAccessKey", body, WriteOptions(ADA, "tests"))
    await auth.key("k")
    with pytest.raises(BadRequest, match=r"metadata\.labels"):
        await auth.api.patch("OwnedAccessKey", "k", lambda obj: obj["metadata"].update(labels=odd), WriteOptions(ADA))
