"""OwnerAuthorizer: permissions from the owner and the access entries of an object."""

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
from tests.harness.growth import assert_linear, build_words, count_work
from tests.harness.properties import at_least
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.users import ALICE, BOB, CAROL, MACHINE, RED_KEY


def app_request(verb: str, name: str = "a", subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, "", "management", MANAGEMENT_GROUP, "v1", "apps", subresource, "", name)


async def create_app(api: RegistryFixture, **spec: object) -> OwnerAuthorizer:
    await api.create("App", "a", spec=spec)
    return OwnerAuthorizer(api.registry.catalog, api.view)


@pytest.mark.parametrize("verb", ["get", "update", "patch", "delete", "use"])
async def test_the_owner_may_do_everything_with_the_object(api: RegistryFixture, verb: str) -> None:
    authorizer = await create_app(api, owner={"user": "alice"})
    decision = authorizer(ALICE, app_request(verb))
    assert decision is not None and decision.allowed and decision.reason == "owner of the object"
    assert authorizer(BOB, app_request(verb)) is None


@pytest.mark.parametrize("user", [ALICE, RED_KEY])
async def test_an_owning_team_gives_access_to_its_members_and_keys(api: RegistryFixture, user: User) -> None:
    authorizer = await create_app(api, owner={"team": "red"})
    assert authorizer(user, app_request("delete"))
    assert authorizer(BOB, app_request("delete")) is None


@pytest.mark.parametrize("owner", [{"user": "*"}, {"team": "*"}, {"user": ""}, {}])
async def test_a_wildcard_or_empty_owner_gives_no_access(api: RegistryFixture, owner: dict[str, str]) -> None:
    authorizer = await create_app(api, owner=owner)
    assert authorizer(ALICE, app_request("get")) is None


async def test_a_machine_is_not_the_user_of_the_same_name(api: RegistryFixture) -> None:
    authorizer = await create_app(api, owner={"user": "alice"}, access=[{"users": ["alice", "*"], "verbs": ["*"]}])
    assert authorizer(MACHINE, app_request("get")) is None


async def test_an_entry_allows_its_verbs_and_no_others(api: RegistryFixture) -> None:
    authorizer = await create_app(api, access=[{"users": ["bob"], "teams": ["red"], "verbs": ["get", "use"]}])
    for user in (ALICE, BOB):
        assert authorizer(user, app_request("get")) and authorizer(user, app_request("use"))
        assert authorizer(user, app_request("update")) is None
    assert authorizer(CAROL, app_request("get")) is None


async def test_a_wildcard_matches_every_user_and_every_verb(api: RegistryFixture) -> None:
    authorizer = await create_app(api, access=[{"users": ["*"], "verbs": ["*"]}])
    assert authorizer(CAROL, app_request("delete"))


async def test_subresources_must_be_listed(api: RegistryFixture) -> None:
    authorizer = await create_app(
        api,
        access=[
            {"users": ["bob"], "verbs": ["get"], "subresources": ["credentials"]},
            {"users": ["carol"], "verbs": ["get"], "subresources": ["*"]},
        ],
    )
    assert authorizer(BOB, app_request("get", subresource="credentials"))
    assert authorizer(BOB, app_request("get", subresource="status")) is None
    assert authorizer(CAROL, app_request("get", subresource="status"))


async def test_a_missing_object_is_decided_like_one_without_access(api: RegistryFixture) -> None:
    authorizer = await create_app(api, owner={"user": "alice"})
    assert authorizer(ALICE, app_request("get", "other")) is None
    assert authorizer(BOB, app_request("get", "other")) is authorizer(BOB, app_request("get")) is None


async def test_an_owner_may_not_create(api: RegistryFixture) -> None:
    authorizer = await create_app(api, owner={"user": "alice"})
    assert authorizer(ALICE, app_request("create")) is None


async def test_kinds_without_owners_are_not_decided(api: RegistryFixture) -> None:
    authorizer = await create_app(api)
    await api.create("ConfigMap", "a", data={"x": "y"})
    assert authorizer(ALICE, RequestInfo("get", "", "", "", "v1", "configmaps", "", "demo", "a")) is None


async def test_a_list_is_filtered_only_for_users_with_access_to_some_object(api: RegistryFixture) -> None:
    authorizer = await create_app(api, access=[{"users": ["bob"], "verbs": ["get"]}])
    request = app_request("list", name="")
    assert authorizer.may_see_some(BOB, request)
    assert not authorizer.may_see_some(CAROL, request)


async def test_the_owner_may_not_write_the_status(api: RegistryFixture) -> None:
    authorizer = await create_app(api, owner={"user": "alice"})
    assert authorizer(ALICE, app_request("get", subresource="status"))
    assert authorizer(ALICE, app_request("patch", subresource="status")) is None
    assert authorizer(ALICE, app_request("update", subresource="status")) is None


# --- many entries ---


async def test_the_cost_of_a_request_does_not_grow_with_the_number_of_entries(
    api: RegistryFixture,
) -> None:
    """Admission authorizes each granted permission: the entries are read once, not each time."""

    async def prepare_requests(name: str, count: int) -> Callable[[], object]:
        access = [{"users": ["bob"], "verbs": [f"v{i}"], "subresources": [f"s{i}", "s"]} for i in range(count)]
        await api.create("App", name, spec={"access": access})
        authorizer = OwnerAuthorizer(api.registry.catalog, api.view)
        assert authorizer(BOB, app_request("v1", name, "s1")) and not authorizer(BOB, app_request("v1", name, "s2"))

        def send_requests() -> None:
            for index in range(20):
                authorizer(BOB, app_request(f"v{index}", name))
                authorizer(BOB, app_request(f"v{index}", name, f"s{index + 1}"))
                authorizer(BOB, app_request("w", name, "s"))

        send_requests()
        return send_requests

    small, large = count_work(await prepare_requests("a", 100)), count_work(await prepare_requests("b", 800))
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
@settings(max_examples=at_least(150), deadline=None)
def test_several_entries_allow_exactly_what_each_of_them_allows(access: list[dict[str, list[str]]]) -> None:
    for user, verb, subresource in product((ALICE, BOB, CAROL, MACHINE, RED_KEY), ("get", "use"), ("", "log", "exec")):
        grants = ObjectGrants(_Spec(access=[_AccessEntry(**each) for each in access]), user)  # type: ignore[arg-type]
        assert grants.allows(verb, subresource) is any(entry_allows(each, user, verb, subresource) for each in access)


def entry_allows(access: dict[str, list[str]], user: User, verb: str, subresource: str) -> bool:
    is_named = any(f"service:user:{name}" in user.groups for name in access["users"]) or any(
        f"service:team:{name}" in user.groups
        or (name == "*" and any(group.startswith("service:team:") for group in user.groups))
        for name in access["teams"]
    )
    has_verb = bool({verb, "*"} & set(access["verbs"]))
    return is_named and has_verb and (not subresource or bool({subresource, "*"} & set(access["subresources"])))


def test_matching_names_takes_linear_time_in_the_number_of_groups() -> None:
    def prepare_requests(size: int) -> Callable[[], object]:
        user = User("u", tuple(build_words("service:team:t", size)))
        names = build_words("other", size)
        return lambda: in_team(user, names) or is_user(user, names)

    assert_linear(prepare_requests)


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


def replace_spec(spec: dict[str, object], each: Object) -> None:
    each["spec"] = spec


@settings(max_examples=at_least(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), SPECS), max_size=6), st.integers(0, 6))
async def test_the_name_index_agrees_with_scanning_all_objects(
    writes: list[tuple[str, dict[str, object]]], built_after: int
) -> None:
    async with open_registry() as api:
        indexed, scanning = (OwnerAuthorizer(api.registry.catalog, api.view) for _ in range(2))
        for number, (name, spec) in enumerate([*writes, ("a", {})]):
            if number == min(built_after, len(writes)):
                await asyncio.gather(*(names.build() for names in indexed._name_indexes.values()))
            if api.get("App", name) is None:
                await api.create("App", name, spec=spec)
            elif number % 3:
                await api.delete("App", name)
            else:
                await api.patch("App", name, partial(replace_spec, spec))
            for user in (ALICE, BOB, CAROL, RED_KEY, MACHINE):
                assert indexed.may_see_some(user, app_request("list", "")) == scanning.may_see_some(
                    user, app_request("list", "")
                ), (
                    user,
                    spec,
                )


async def test_a_user_without_access_is_denied_without_reading_objects(
    api: RegistryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a denied list does not grow with the number of objects."""
    authorizer = await create_app(api, owner={"user": "alice"})
    names = authorizer._name_indexes[MANAGEMENT_GROUP, "apps"]
    await names.build()
    monkeypatch.setattr(OwnerAuthorizer, "authorize_object", None)
    assert authorizer.may_see_some(ALICE, app_request("list", ""))
    assert not authorizer.may_see_some(BOB, app_request("list", ""))
    await api.delete("App", "a")
    assert not authorizer.may_see_some(ALICE, app_request("list", ""))
    assert not names._counts


async def run_loop_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_name_index_is_rebuilt_after_missed_events(api: RegistryFixture) -> None:
    """After a reload of the view, the objects themselves are read until the index is built again."""
    authorizer = await create_app(api, owner={"user": "alice"})
    names = authorizer._name_indexes[MANAGEMENT_GROUP, "apps"]
    index_task = asyncio.create_task(authorizer.run())
    try:
        await run_loop_turns(50)
        assert names._watcher is not None and names.names_user(ALICE, "")
        names._watcher.overflow()
        assert names.names_user(ALICE, "") is None and authorizer.may_see_some(ALICE, app_request("list", ""))
        await run_loop_turns(50)
        assert names.names_user(ALICE, "") and not names.names_user(BOB, "")
        assert set(names._counts.values()) == {1}
    finally:
        index_task.cancel()
        await asyncio.gather(index_task, return_exceptions=True)
