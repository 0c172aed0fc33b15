"""Nobody grants what they do not hold."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.escalation import GrantChecks, ResourceNaming, check_grants
from fairlead.authz.name_index import owns
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP, Change
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.growth import assert_linear, words
from tests.harness.registry import RegistryFixture
from tests.harness.users import ALICE, BOB

MEMBER_OF = "demo"
TEAM = User("service:team:blue", ("service:team:blue",))


class Held:
    """What everybody holds: (verb, resource, subresource)."""

    def __init__(self) -> None:
        self.rights: set[tuple[str, str, str]] = set()

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        return Decision((target.verb, target.resource, target.subresource) in self.rights)


@pytest.fixture
def held() -> Held:
    return Held()


def inside(user: User, target: RequestInfo) -> bool:
    """Keys with a scope reach apps for everything but changing owners, and nothing else."""
    return user.scope is None or (target.resource == "apps" and target.verb != "makeowner")


@pytest.fixture
async def ruled(api: RegistryFixture, held: Held) -> AsyncIterator[RegistryFixture]:
    """The world under the rule; Alice and a team are members of the project that the namespace `demo` stands for."""
    standing = GrantChecks(held, inside, owns, lambda user, namespace: user in (ALICE, TEAM) and namespace == MEMBER_OF)
    chain = AdmissionChain((check_grants(standing, ResourceNaming(MANAGEMENT_GROUP, "service-p-")),))
    registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(registry)
    yield RegistryFixture(api.store, api.view, registry, api.clock)


async def create(api: RegistryFixture, user: User, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return await api.submit(kind, api.body(kind, name, spec=spec), WriteOptions(user))


ACCOUNT = User("system:serviceaccount:demo:ci", ("system:serviceaccounts", "system:authenticated"))


async def test_a_service_account_may_be_named_as_the_owner_of_what_it_makes(ruled: RegistryFixture) -> None:
    made = await create(ruled, ACCOUNT, "SpaceInstance", "s", owner={"user": ACCOUNT.name})
    assert made["spec"]["owner"] == {"user": ACCOUNT.name}
    for owner in ({"user": "system:serviceaccount:demo:other"}, {"user": "ada"}, {"user": ACCOUNT.name, "team": "red"}):
        with pytest.raises(Forbidden, match="makeowner"):
            await create(ruled, ACCOUNT, "SpaceInstance", "t", owner=owner)
    with pytest.raises(Forbidden, match="makeowner"):
        await create(ruled, BOB, "SpaceInstance", "t", owner={"user": ACCOUNT.name})


ENTRY = {"users": ["bob"], "verbs": ["get", "delete"]}


async def test_t6_an_access_entry_takes_every_right_that_it_gives(ruled: RegistryFixture, held: Held) -> None:
    held.rights = {("get", "apps", "")}
    with pytest.raises(Forbidden, match="cannot grant permissions that it does not have: delete apps"):
        await create(ruled, ALICE, "App", "a", access=[ENTRY])
    held.rights |= {("delete", "apps", "")}
    await create(ruled, ALICE, "App", "a", access=[ENTRY])


async def test_t6_subresources_are_rights_of_their_own(ruled: RegistryFixture, held: Held) -> None:
    held.rights = {("get", "apps", "")}
    with pytest.raises(Forbidden, match="get apps/credentials"):
        await create(ruled, ALICE, "App", "a", access=[{**ENTRY, "verbs": ["get"], "subresources": ["credentials"]}])


async def test_what_was_granted_before_may_stay(ruled: RegistryFixture, held: Held) -> None:
    await create(ruled, CONTROLLER_USER, "App", "a", access=[ENTRY])
    await ruled.patch("App", "a", lambda app: app["spec"].update(displayName="x"), WriteOptions(ALICE))
    with pytest.raises(Forbidden):
        await ruled.patch("App", "a", lambda app: app["spec"]["access"][0]["verbs"].append("*"), WriteOptions(ALICE))


async def test_owners_hold_every_right_on_what_is_theirs(ruled: RegistryFixture) -> None:
    await create(ruled, ALICE, "App", "a", owner={"user": "alice"}, access=[ENTRY])
    await ruled.patch("App", "a", lambda app: app["spec"].update(owner={"user": "bob"}), WriteOptions(ALICE))
    with pytest.raises(Forbidden, match="makeowner"):
        await ruled.patch("App", "a", lambda app: app["spec"].update(owner={"user": "alice"}), WriteOptions(ALICE))


async def test_t4_an_owner_gives_no_more_than_is_inside_the_scope_of_its_key(ruled: RegistryFixture) -> None:
    scoped = replace(ALICE, scope=Scope(projects=("x",)))
    await create(ruled, ALICE, "App", "a", owner={"user": "alice"})
    await ruled.patch("App", "a", lambda app: app["spec"].update(access=[ENTRY]), WriteOptions(scoped))
    with pytest.raises(Forbidden, match="makeowner"):
        await ruled.patch("App", "a", lambda app: app["spec"].update(owner={"user": "bob"}), WriteOptions(scoped))
    await create(ruled, ALICE, "Project", "p", owner={"user": "alice"})
    members = [{"kind": "User", "name": "bob", "clusterRole": "admin"}]
    with pytest.raises(Forbidden, match="cannot grant permissions that it does not have"):
        await ruled.patch("Project", "p", lambda project: project["spec"].update(members=members), WriteOptions(scoped))
    await ruled.patch("Project", "p", lambda project: project["spec"].update(members=members), WriteOptions(ALICE))


async def test_making_an_object_somebody_elses_takes_a_right(ruled: RegistryFixture, held: Held) -> None:
    with pytest.raises(Forbidden, match="makeowner"):
        await create(ruled, ALICE, "App", "a", owner={"user": "bob"})
    held.rights = {("makeowner", "apps", "")}
    await create(ruled, ALICE, "App", "a", owner={"user": "bob"})


@pytest.mark.parametrize(
    ("role", "right"),
    [
        ("admin", ("*", "*", "")),
        ("user", ("create", "devpodworkspaceinstances", "")),
        ("viewer", ("list", "devpodworkspaceinstances", "")),
        ("auditor", ("bind", "clusterroles", "")),
    ],
)
async def test_t6_a_member_gets_no_role_that_its_editor_does_not_hold(
    ruled: RegistryFixture, held: Held, role: str, right: tuple[str, str, str]
) -> None:
    members = [{"kind": "User", "name": "bob", "clusterRole": role}]
    with pytest.raises(Forbidden):
        await create(ruled, ALICE, "Project", "p", members=members)
    held.rights = {right}
    await create(ruled, ALICE, "Project", "p", members=members)


async def test_what_a_member_makes_in_a_project_is_the_members(ruled: RegistryFixture) -> None:
    made = await create(ruled, ALICE, "DevPodWorkspaceInstance", "w", displayName="x")
    assert made["spec"]["owner"] == {"user": "alice"}


async def test_what_the_key_of_a_team_makes_in_a_project_is_the_teams(ruled: RegistryFixture) -> None:
    made = await create(ruled, TEAM, "DevPodWorkspaceInstance", "w", displayName="x")
    assert made["spec"]["owner"] == {"team": "blue"}


@pytest.mark.parametrize("user", [BOB, User("root", ("system:masters", "service:user:root"))])
async def test_what_others_make_belongs_to_nobody_by_itself(ruled: RegistryFixture, user: User) -> None:
    made = await create(ruled, user, "DevPodWorkspaceInstance", "w", displayName="x")
    assert "owner" not in made["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        {"access": "x"},
        {"access": ["x"]},
        {"access": [{"users": ["bob"], "verbs": 5}]},
        {"access": [{"verbs": [5]}]},
        {"owner": "x"},
        {"owner": {"user": 5}},
    ],
)
async def test_what_is_no_entry_is_refused_for_what_it_is(
    ruled: RegistryFixture, held: Held, spec: dict[str, Any]
) -> None:
    held.rights = {("makeowner", "apps", "")}
    with pytest.raises(Invalid):
        await create(ruled, ALICE, "App", "a", **spec)


# --- many entries ---


def finished(rule: Awaitable[None]) -> None:
    """Runs a rule that waits for nothing."""
    with pytest.raises(StopIteration):
        next(rule.__await__())


def entries(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"users": [name], "verbs": ["get", "use"], **more} for name in words("u", count)]


async def test_entries_are_replaced_in_time_that_grows_with_their_number(ruled: RegistryFixture, held: Held) -> None:
    """None of them is the same as before, so all of them are new."""
    held.rights = {("get", "apps", ""), ("use", "apps", "")}
    rule = check_grants(
        GrantChecks(held, inside, owns, lambda user, namespace: False), ResourceNaming(MANAGEMENT_GROUP, "service-p-")
    )
    kind = ruled.of("App").kind

    def make(size: int) -> Callable[[], object]:
        old = {"metadata": {"name": "a"}, "spec": {"access": entries(size)}}
        new = {"metadata": {"name": "a"}, "spec": {"access": entries(size, name="again")}}
        change = Change("update", kind, BOB, old, new)
        return lambda: finished(rule(change, ruled.registry))

    assert_linear(make, 100)


async def test_a_right_that_many_entries_give_is_asked_for_once(ruled: RegistryFixture, held: Held) -> None:
    held.rights = {("get", "apps", ""), ("use", "apps", ""), ("create", "apps", "")}
    asked: list[RequestInfo] = []

    def counting(user: User, target: RequestInfo) -> Decision:
        asked.append(target)
        return held(user, target)

    rule = check_grants(
        GrantChecks(counting, inside, owns, lambda user, namespace: False), ResourceNaming(MANAGEMENT_GROUP, "p-")
    )
    new = {"metadata": {"name": "a"}, "spec": {"access": entries(500)}}
    finished(rule(Change("create", ruled.of("App").kind, BOB, None, new), ruled.registry))
    assert sorted(target.verb for target in asked) == ["get", "use"]


@pytest.mark.parametrize(
    "access",
    [
        [{"users": ["u"], "verbs": [f"v{at + index}" for index in range(550)]} for at in (0, 550)],
        [{"users": ["u"], "verbs": [f"v{2 * index}", f"v{2 * index + 1}"]} for index in range(550)],
        [
            {
                "users": ["u"],
                "verbs": [f"v{i}" for i in range(30)],
                "subresources": [f"s{i}" for i in range(30) if i != n],
            }
            for n in range(30)
        ]
        * 2
        + [
            {
                "users": ["u"],
                "verbs": [f"v{i}" for i in range(30) if i != n],
                "subresources": [f"s{i}" for i in range(30)],
            }
            for n in range(30)
        ],
    ],
    ids=["verbs of few entries", "entries", "combinations"],
)
async def test_more_rights_than_can_be_asked_for_are_not_granted(
    ruled: RegistryFixture, held: Held, access: list[dict[str, Any]]
) -> None:
    held.rights = {(f"v{verb}", "apps", part) for verb in range(1100) for part in ("", *(f"s{i}" for i in range(30)))}
    with pytest.raises(Forbidden, match="grants more than 1000 different permissions at once; use `\\*` in verbs"):
        await create(ruled, BOB, "App", "a", access=access)
    root = User("root", ("system:masters",))
    assert await create(ruled, root, "App", "a", access=access), "who holds everything is not asked"
