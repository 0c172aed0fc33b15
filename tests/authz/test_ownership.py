"""Owners and access entries: rights that objects give by themselves."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.authz.name_index import in_team, is_user
from fairlead.authz.ownership import ObjectGrants, OwnerAuthorizer, _AccessEntry, _Spec
from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.growth import assert_linear, words, work
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.users import ALICE, BOB, CAROL, MACHINE, RED_KEY


def app(verb: str, name: str = "a", subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, "", "management", MANAGEMENT_GROUP, "v1", "apps", subresource, "", name)


async def shared(api: RegistryFixture, **spec: object) -> OwnerAuthorizer:
    await api.create("App", "a", spec=spec)
    return OwnerAuthorizer(api.registry.catalog, api.view)


@pytest.mark.parametrize("verb", ["get", "update", "patch", "delete", "use"])
async def test_the_owner_may_do_everything_with_the_object(api: RegistryFixture, verb: str) -> None:
    sharing = await shared(api, owner={"user": "alice"})
    decision = sharing(ALICE, app(verb))
    assert decision is not None and decision.allowed and decision.reason == "owner of the object"
    assert sharing(BOB, app(verb)) is None


@pytest.mark.parametrize("user", [ALICE, RED_KEY])
async def test_an_owning_team_counts_for_its_members_and_its_keys(api: RegistryFixture, user: User) -> None:
    sharing = await shared(api, owner={"team": "red"})
    assert sharing(user, app("delete"))
    assert sharing(BOB, app("delete")) is None


@pytest.mark.parametrize("owner", [{"user": "*"}, {"team": "*"}, {"user": ""}, {}])
async def test_nobody_is_the_owner_by_a_wildcard_or_by_nothing(api: RegistryFixture, owner: dict[str, str]) -> None:
    sharing = await shared(api, owner=owner)
    assert sharing(ALICE, app("get")) is None


async def test_a_machine_is_not_the_user_of_the_same_name(api: RegistryFixture) -> None:
    sharing = await shared(api, owner={"user": "alice"}, access=[{"users": ["alice", "*"], "verbs": ["*"]}])
    assert sharing(MACHINE, app("get")) is None


async def test_an_entry_gives_its_verbs_and_no_others(api: RegistryFixture) -> None:
    sharing = await shared(api, access=[{"users": ["bob"], "teams": ["red"], "verbs": ["get", "use"]}])
    for user in (ALICE, BOB):
        assert sharing(user, app("get")) and sharing(user, app("use"))
        assert sharing(user, app("update")) is None
    assert sharing(CAROL, app("get")) is None


async def test_a_star_means_every_user_and_every_verb(api: RegistryFixture) -> None:
    sharing = await shared(api, access=[{"users": ["*"], "verbs": ["*"]}])
    assert sharing(CAROL, app("delete"))


async def test_subresources_must_be_named(api: RegistryFixture) -> None:
    sharing = await shared(
        api,
        access=[
            {"users": ["bob"], "verbs": ["get"], "subresources": ["credentials"]},
            {"users": ["carol"], "verbs": ["get"], "subresources": ["*"]},
        ],
    )
    assert sharing(BOB, app("get", subresource="credentials"))
    assert sharing(BOB, app("get", subresource="status")) is None
    assert sharing(CAROL, app("get", subresource="status"))


async def test_what_does_not_exist_gives_no_rights_and_no_hint(api: RegistryFixture) -> None:
    sharing = await shared(api, owner={"user": "alice"})
    assert sharing(ALICE, app("get", "other")) is None
    assert sharing(BOB, app("get", "other")) is sharing(BOB, app("get")) is None


async def test_nobody_may_create_by_owning(api: RegistryFixture) -> None:
    sharing = await shared(api, owner={"user": "alice"})
    assert sharing(ALICE, app("create")) is None


async def test_kinds_that_are_not_shared_have_no_owners(api: RegistryFixture) -> None:
    sharing = await shared(api)
    await api.create("ConfigMap", "a", data={"x": "y"})
    assert sharing(ALICE, RequestInfo("get", "", "", "", "v1", "configmaps", "", "demo", "a")) is None


async def test_a_list_is_cut_only_for_those_who_would_find_something(api: RegistryFixture) -> None:
    sharing = await shared(api, access=[{"users": ["bob"], "verbs": ["get"]}])
    listing = app("list", name="")
    assert sharing.may_see_some(BOB, listing)
    assert not sharing.may_see_some(CAROL, listing)


async def test_the_status_is_not_the_owners_to_write(api: RegistryFixture) -> None:
    sharing = await shared(api, owner={"user": "alice"})
    assert sharing(ALICE, app("get", subresource="status"))
    assert sharing(ALICE, app("patch", subresource="status")) is None
    assert sharing(ALICE, app("update", subresource="status")) is None


# --- many entries ---


async def test_a_question_costs_the_same_however_many_entries_there_are_once_the_object_is_read(
    api: RegistryFixture,
) -> None:
    """Admission asks about each right that is granted: the entries are gone through once, and not each time."""

    async def make(name: str, count: int) -> Callable[[], object]:
        every = [{"users": ["bob"], "verbs": [f"v{i}"], "subresources": [f"s{i}", "s"]} for i in range(count)]
        await api.create("App", name, spec={"access": every})
        sharing = OwnerAuthorizer(api.registry.catalog, api.view)
        assert sharing(BOB, app("v1", name, "s1")) and not sharing(BOB, app("v1", name, "s2"))

        def ask() -> None:
            for index in range(20):
                sharing(BOB, app(f"v{index}", name))
                sharing(BOB, app(f"v{index}", name, f"s{index + 1}"))
                sharing(BOB, app("w", name, "s"))

        ask()
        return ask

    small, large = work(await make("a", 100)), work(await make("b", 800))
    assert large <= 2 * small


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "users": st.lists(st.sampled_from(["alice", "bob", "*", "carol"]), max_size=2),
                "teams": st.lists(st.sampled_from(["red", "blue", "*"]), max_size=2),
                "verbs": st.lists(st.sampled_from(["get", "use", "*"]), max_size=2),
                "subresources": st.lists(st.sampled_from(["log", "exec", "*"]), max_size=2),
            }
        ),
        max_size=8,
    )
)
@settings(max_examples=150, deadline=None)
def test_entries_give_exactly_what_each_of_them_gives(access: list[dict[str, list[str]]]) -> None:
    for user, verb, part in product((ALICE, BOB, CAROL, MACHINE, RED_KEY), ("get", "use"), ("", "log", "exec")):
        given = ObjectGrants(_Spec(access=[_AccessEntry(**each) for each in access]), user)  # type: ignore[arg-type]
        assert given.allows(verb, part) is any(gives(each, user, verb, part) for each in access)


def gives(access: dict[str, list[str]], user: User, verb: str, subresource: str) -> bool:
    named = any(f"service:user:{name}" in user.groups for name in access["users"]) or any(
        f"service:team:{name}" in user.groups
        or (name == "*" and any(group.startswith("service:team:") for group in user.groups))
        for name in access["teams"]
    )
    on_verb = bool({verb, "*"} & set(access["verbs"]))
    return named and on_verb and (not subresource or bool({subresource, "*"} & set(access["subresources"])))


def test_a_name_is_looked_up_however_many_groups_somebody_has() -> None:
    def make(size: int) -> Callable[[], object]:
        user = User("u", tuple(words("service:team:t", size)))
        names = words("other", size)
        return lambda: in_team(user, names) or is_user(user, names)

    assert_linear(make)


NAMES = st.lists(st.sampled_from(["alice", "bob", "red", "blue", "*"]), max_size=2)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "owner": st.sampled_from([{"user": "alice"}, {"team": "red"}, {"user": "*"}, {"team": "*"}]),
        "access": st.lists(
            st.fixed_dictionaries(
                {"verbs": st.lists(st.sampled_from(["get", "use", "*"]), min_size=1, max_size=2, unique=True)},
                optional={"users": NAMES, "teams": NAMES},
            ),
            max_size=2,
        ),
    },
)


def _put_spec(spec: dict[str, object], each: Object) -> None:
    each["spec"] = spec


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), SPECS), max_size=6), st.integers(0, 6))
async def test_counted_names_say_the_same_as_looking_at_all_objects(
    writes: list[tuple[str, dict[str, object]]], built_after: int
) -> None:
    async with open_registry() as api:
        counted, looking = (OwnerAuthorizer(api.registry.catalog, api.view) for _ in range(2))
        for number, (name, spec) in enumerate([*writes, ("a", {})]):
            if number == min(built_after, len(writes)):
                await asyncio.gather(*(names.build() for names in counted._name_indexes.values()))
            if api.see("App", name) is None:
                await api.create("App", name, spec=spec)
            elif number % 3:
                await api.delete("App", name)
            else:
                await api.patch("App", name, partial(_put_spec, spec))
            for user in (ALICE, BOB, CAROL, RED_KEY, MACHINE):
                assert counted.may_see_some(user, app("list", "")) == looking.may_see_some(user, app("list", "")), (
                    user,
                    spec,
                )


async def test_who_has_nothing_is_refused_without_a_look_at_any_object(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is refused costs the same however many objects there are."""
    sharing = await shared(api, owner={"user": "alice"})
    names = sharing._name_indexes[MANAGEMENT_GROUP, "apps"]
    await names.build()
    monkeypatch.setattr(OwnerAuthorizer, "authorize_object", None)
    assert sharing.may_see_some(ALICE, app("list", ""))
    assert not sharing.may_see_some(BOB, app("list", ""))
    await api.delete("App", "a")
    assert not sharing.may_see_some(ALICE, app("list", ""))
    assert not names._counts


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_names_that_were_missed_are_looked_up_again(api: RegistryFixture) -> None:
    """As when the view had to be loaded again: meanwhile, the objects themselves are looked at."""
    sharing = await shared(api, owner={"user": "alice"})
    names = sharing._name_indexes[MANAGEMENT_GROUP, "apps"]
    following = asyncio.create_task(sharing.run())
    try:
        await turns(50)
        assert names._watcher is not None and names.names_user(ALICE, "")
        names._watcher.overflow()
        assert names.names_user(ALICE, "") is None and sharing.may_see_some(ALICE, app("list", ""))
        await turns(50)
        assert names.names_user(ALICE, "") and not names.names_user(BOB, "")
        assert set(names._counts.values()) == {1}
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
