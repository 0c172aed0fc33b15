"""Privilege escalation through access entries, owners and project members: users grant only what they hold."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from fairlead.admission.escalation import GrantChecks, ResourceNaming, check_grants
from fairlead.authz.name_index import owns
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP, Change
from fairlead.registry.write_options import WriteOptions
from tests.harness.growth import assert_linear, build_words
from tests.harness.registry import RegistryFixture
from tests.harness.users import ALICE, BOB

PROJECT_NAMESPACE = "demo"
TEAM = User("service:team:blue", ("service:team:blue",))


class HeldPermissions:
    """Authorizes every user for the same permissions: (verb, resource, subresource)."""

    def __init__(self) -> None:
        self.granted: set[tuple[str, str, str]] = set()

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        return Decision((target.verb, target.resource, target.subresource) in self.granted)


@pytest.fixture
def permissions() -> HeldPermissions:
    return HeldPermissions()


def is_in_scope(user: User, target: RequestInfo) -> bool:
    """Scoped keys allow every verb on apps but `makeowner`, and nothing else."""
    return user.scope is None or (target.resource == "apps" and target.verb != "makeowner")


@pytest.fixture
async def api_with_rule(api: RegistryFixture, permissions: HeldPermissions) -> AsyncIterator[RegistryFixture]:
    """The registry with this admission rule. Alice and a team are members of the project of the namespace `demo`."""
    checks = GrantChecks(
        permissions, is_in_scope, owns, lambda user, namespace: user in (ALICE, TEAM) and namespace == PROJECT_NAMESPACE
    )
    yield api.with_rules(check_grants(checks, ResourceNaming(MANAGEMENT_GROUP, "service-p-")))


async def create_object(api: RegistryFixture, user: User, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return await api.submit(kind, api.build_object(kind, name, spec=spec), WriteOptions(user))


ACCOUNT = User("system:serviceaccount:demo:ci", ("system:serviceaccounts", "system:authenticated"))


async def test_a_service_account_can_be_the_owner_of_what_it_creates(api_with_rule: RegistryFixture) -> None:
    for number, user in enumerate((ACCOUNT, User(f"host:{ACCOUNT.name}", ("system:authenticated",)))):
        created = await create_object(api_with_rule, user, "SpaceInstance", f"s{number}", owner={"user": user.name})
        assert created["spec"]["owner"] == {"user": user.name}
    for owner in ({"user": "system:serviceaccount:demo:other"}, {"user": "ada"}, {"user": ACCOUNT.name, "team": "red"}):
        with pytest.raises(Forbidden, match="makeowner"):
            await create_object(api_with_rule, ACCOUNT, "SpaceInstance", "t", owner=owner)
    with pytest.raises(Forbidden, match="makeowner"):
        await create_object(api_with_rule, BOB, "SpaceInstance", "t", owner={"user": ACCOUNT.name})


ENTRY = {"users": ["bob"], "verbs": ["get", "delete"]}


async def test_t6_an_access_entry_requires_every_permission_that_it_grants(
    api_with_rule: RegistryFixture, permissions: HeldPermissions
) -> None:
    permissions.granted = {("get", "apps", "")}
    with pytest.raises(Forbidden, match="cannot grant permissions that it does not have: delete apps"):
        await create_object(api_with_rule, ALICE, "App", "a", access=[ENTRY])
    permissions.granted |= {("delete", "apps", "")}
    await create_object(api_with_rule, ALICE, "App", "a", access=[ENTRY])


async def test_t6_subresources_are_separate_permissions(
    api_with_rule: RegistryFixture, permissions: HeldPermissions
) -> None:
    permissions.granted = {("get", "apps", "")}
    with pytest.raises(Forbidden, match="get apps/credentials"):
        await create_object(
            api_with_rule, ALICE, "App", "a", access=[{**ENTRY, "verbs": ["get"], "subresources": ["credentials"]}]
        )


async def test_entries_granted_before_may_stay(api_with_rule: RegistryFixture, permissions: HeldPermissions) -> None:
    await create_object(api_with_rule, CONTROLLER_USER, "App", "a", access=[ENTRY])
    await api_with_rule.patch("App", "a", lambda app: app["spec"].update(displayName="x"), WriteOptions(ALICE))
    with pytest.raises(Forbidden):
        await api_with_rule.patch(
            "App", "a", lambda app: app["spec"]["access"][0]["verbs"].append("*"), WriteOptions(ALICE)
        )


async def test_owners_hold_every_permission_on_their_objects(api_with_rule: RegistryFixture) -> None:
    await create_object(api_with_rule, ALICE, "App", "a", owner={"user": "alice"}, access=[ENTRY])
    await api_with_rule.patch("App", "a", lambda app: app["spec"].update(owner={"user": "bob"}), WriteOptions(ALICE))
    with pytest.raises(Forbidden, match="makeowner"):
        await api_with_rule.patch(
            "App", "a", lambda app: app["spec"].update(owner={"user": "alice"}), WriteOptions(ALICE)
        )


async def test_t4_an_owner_grants_only_permissions_within_the_scope_of_the_key(api_with_rule: RegistryFixture) -> None:
    scoped = replace(ALICE, scope=Scope(projects=("x",)))
    await create_object(api_with_rule, ALICE, "App", "a", owner={"user": "alice"})
    await api_with_rule.patch("App", "a", lambda app: app["spec"].update(access=[ENTRY]), WriteOptions(scoped))
    with pytest.raises(Forbidden, match="makeowner"):
        await api_with_rule.patch(
            "App", "a", lambda app: app["spec"].update(owner={"user": "bob"}), WriteOptions(scoped)
        )
    await create_object(api_with_rule, ALICE, "Project", "p", owner={"user": "alice"})
    members = [{"kind": "User", "name": "bob", "clusterRole": "admin"}]
    with pytest.raises(Forbidden, match="cannot grant permissions that it does not have"):
        await api_with_rule.patch(
            "Project", "p", lambda project: project["spec"].update(members=members), WriteOptions(scoped)
        )
    await api_with_rule.patch(
        "Project", "p", lambda project: project["spec"].update(members=members), WriteOptions(ALICE)
    )


async def test_setting_another_owner_requires_the_verb_makeowner(
    api_with_rule: RegistryFixture, permissions: HeldPermissions
) -> None:
    with pytest.raises(Forbidden, match="makeowner"):
        await create_object(api_with_rule, ALICE, "App", "a", owner={"user": "bob"})
    permissions.granted = {("makeowner", "apps", "")}
    await create_object(api_with_rule, ALICE, "App", "a", owner={"user": "bob"})


@pytest.mark.parametrize(
    ("role", "permission"),
    [
        ("admin", ("*", "*", "")),
        ("user", ("create", "devpodworkspaceinstances", "")),
        ("viewer", ("list", "devpodworkspaceinstances", "")),
        ("auditor", ("bind", "clusterroles", "")),
    ],
)
async def test_t6_adding_a_member_requires_holding_its_role(
    api_with_rule: RegistryFixture, permissions: HeldPermissions, role: str, permission: tuple[str, str, str]
) -> None:
    members = [{"kind": "User", "name": "bob", "clusterRole": role}]
    with pytest.raises(Forbidden):
        await create_object(api_with_rule, ALICE, "Project", "p", members=members)
    permissions.granted = {permission}
    await create_object(api_with_rule, ALICE, "Project", "p", members=members)


async def test_an_instance_that_a_member_creates_belongs_to_the_member(api_with_rule: RegistryFixture) -> None:
    created = await create_object(api_with_rule, ALICE, "DevPodWorkspaceInstance", "w", displayName="x")
    assert created["spec"]["owner"] == {"user": "alice"}


async def test_an_instance_that_a_team_key_creates_belongs_to_the_team(api_with_rule: RegistryFixture) -> None:
    created = await create_object(api_with_rule, TEAM, "DevPodWorkspaceInstance", "w", displayName="x")
    assert created["spec"]["owner"] == {"team": "blue"}


@pytest.mark.parametrize("user", [BOB, User("root", ("system:masters", "service:user:root"))])
async def test_an_instance_created_by_others_has_no_default_owner(api_with_rule: RegistryFixture, user: User) -> None:
    created = await create_object(api_with_rule, user, "DevPodWorkspaceInstance", "w", displayName="x")
    assert "owner" not in created["spec"]


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
async def test_a_malformed_entry_is_invalid(
    api_with_rule: RegistryFixture, permissions: HeldPermissions, spec: dict[str, Any]
) -> None:
    permissions.granted = {("makeowner", "apps", "")}
    with pytest.raises(Invalid):
        await create_object(api_with_rule, ALICE, "App", "a", **spec)


# --- many entries ---


def run_to_completion(rule: Awaitable[None]) -> None:
    """Runs a rule that never suspends."""
    with pytest.raises(StopIteration):
        next(rule.__await__())


def access_entries(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"users": [name], "verbs": ["get", "use"], **fields} for name in build_words("u", count)]


async def test_replacing_entries_takes_linear_time(
    api_with_rule: RegistryFixture, permissions: HeldPermissions
) -> None:
    """No entry is the same as before, so all of them are new."""
    permissions.granted = {("get", "apps", ""), ("use", "apps", "")}
    rule = check_grants(
        GrantChecks(permissions, is_in_scope, owns, lambda user, namespace: False),
        ResourceNaming(MANAGEMENT_GROUP, "service-p-"),
    )
    kind = api_with_rule.resource("App").kind

    def build_change(size: int) -> Callable[[], object]:
        old = {"metadata": {"name": "a"}, "spec": {"access": access_entries(size)}}
        new = {"metadata": {"name": "a"}, "spec": {"access": access_entries(size, name="again")}}
        change = Change("update", kind, BOB, old, new)
        return lambda: run_to_completion(rule(change, api_with_rule.registry))

    assert_linear(build_change, 100)


async def test_a_permission_in_many_entries_is_checked_once(
    api_with_rule: RegistryFixture, permissions: HeldPermissions
) -> None:
    permissions.granted = {("get", "apps", ""), ("use", "apps", ""), ("create", "apps", "")}
    requests: list[RequestInfo] = []

    def count_and_authorize(user: User, target: RequestInfo) -> Decision:
        requests.append(target)
        return permissions(user, target)

    rule = check_grants(
        GrantChecks(count_and_authorize, is_in_scope, owns, lambda user, namespace: False),
        ResourceNaming(MANAGEMENT_GROUP, "p-"),
    )
    new = {"metadata": {"name": "a"}, "spec": {"access": access_entries(500)}}
    run_to_completion(
        rule(Change("create", api_with_rule.resource("App").kind, BOB, None, new), api_with_rule.registry)
    )
    assert sorted(target.verb for target in requests) == ["get", "use"]


@pytest.mark.parametrize(
    "access",
    [
        [{"users": ["u"], "verbs": [f"v{start + index}" for index in range(550)]} for start in (0, 550)],
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
    ids=["many verbs in few entries", "many entries", "many combinations"],
)
async def test_more_permissions_than_the_limit_are_rejected(
    api_with_rule: RegistryFixture, permissions: HeldPermissions, access: list[dict[str, Any]]
) -> None:
    permissions.granted = {
        (f"v{verb}", "apps", subresource) for verb in range(1100) for subresource in ("", *(f"s{i}" for i in range(30)))
    }
    with pytest.raises(Forbidden, match="grants more than 1000 different permissions at once; use `\\*` in verbs"):
        await create_object(api_with_rule, BOB, "App", "a", access=access)
    root = User("root", ("system:masters",))
    assert await create_object(api_with_rule, root, "App", "a", access=access), "administrators are not checked"
