"""ProjectMemberAuthorizer: what each role may do in the project's namespace, and nowhere else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fairlead.authz.project_members import ProjectMemberAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.core.user import User
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.growth import count_work
from tests.harness.registry import RegistryFixture
from tests.harness.users import ALICE, BOB, CAROL, MACHINE

NAMESPACE, OTHER_NAMESPACE = "service-p-mine", "service-p-other"


def build_request(
    verb: str, resource: str, namespace: str = NAMESPACE, group: str = MANAGEMENT_GROUP, name: str = "x"
) -> RequestInfo:
    return RequestInfo(verb, "", "management", group, "v1", resource, "", namespace, name)


def custom_role_allows(role: str, request: RequestInfo) -> bool:
    return role == "auditor" and request.verb == "list"


async def create_authorizer(api: RegistryFixture, *entries: dict[str, str], **spec: object) -> ProjectMemberAuthorizer:
    await api.create("Project", "mine", spec={"members": list(entries), **spec})
    await api.create("Project", "other", spec={})
    projects = Informer(api.view, MANAGEMENT_GROUP, "projects")
    return ProjectMemberAuthorizer(projects, MANAGEMENT_GROUP, "service-p-", custom_role_allows)


def member_entry(name: str, role: str = "", kind: str = "User") -> dict[str, str]:
    return {"kind": kind, "name": name, "clusterRole": role}


WORKSPACES = "devpodworkspaceinstances"
ALLOWED_ROLES = {
    # (verb, resource, group): the roles that are allowed, of admin, user, viewer and a custom role
    ("create", WORKSPACES, MANAGEMENT_GROUP): {"admin", "user"},
    ("get", WORKSPACES, MANAGEMENT_GROUP): {"admin"},
    ("delete", WORKSPACES, MANAGEMENT_GROUP): {"admin"},
    ("list", WORKSPACES, MANAGEMENT_GROUP): {"admin", "auditor"},
    ("get", "secrets", ""): {"admin"},
    ("create", "roles", "rbac.authorization.k8s.io"): {"admin"},
    ("get", "projectsecrets", MANAGEMENT_GROUP): {"admin", "user"},
    ("use", "projectsecrets", MANAGEMENT_GROUP): {"admin", "user"},
    ("update", "projectsecrets", MANAGEMENT_GROUP): {"admin"},
    ("watch", "events", ""): {"admin", "user"},
    ("delete", "events", ""): {"admin"},
}


@pytest.mark.parametrize("role", ["admin", "user", "viewer", "auditor"])
@pytest.mark.parametrize("permission", ALLOWED_ROLES)
async def test_each_role_allows_its_requests_in_its_project_only(
    api: RegistryFixture, role: str, permission: tuple[str, str, str]
) -> None:
    authorizer = await create_authorizer(api, member_entry("alice", role))
    verb, resource, group = permission
    decision = authorizer(ALICE, build_request(verb, resource, group=group))
    assert (decision is not None) == (role in ALLOWED_ROLES[permission])
    assert authorizer(ALICE, build_request(verb, resource, OTHER_NAMESPACE, group)) is None
    assert authorizer(BOB, build_request(verb, resource, group=group)) is None


@pytest.mark.parametrize("role", ["admin", "user", "viewer", "auditor", ""])
async def test_members_read_but_do_not_change_their_project_and_its_namespace(api: RegistryFixture, role: str) -> None:
    authorizer = await create_authorizer(api, member_entry("alice", role))
    project = build_request("get", "projects", "", name="mine")
    namespace = build_request("get", "namespaces", NAMESPACE, "", NAMESPACE)
    assert authorizer(ALICE, project) and authorizer(ALICE, namespace)
    assert authorizer(BOB, project) is None and authorizer(BOB, namespace) is None
    for verb in ("update", "patch", "delete"):
        assert authorizer(ALICE, build_request(verb, "projects", "", name="mine")) is None
        assert authorizer(ALICE, build_request(verb, "namespaces", NAMESPACE, "", NAMESPACE)) is None


@pytest.mark.parametrize("subresource", ["members", "clusters", "runners", "templates"])
async def test_only_members_read_the_subresources_of_their_project(api: RegistryFixture, subresource: str) -> None:
    authorizer = await create_authorizer(api, member_entry("alice", "viewer"))
    request = RequestInfo("get", "", "management", MANAGEMENT_GROUP, "v1", "projects", subresource, "", "mine")
    assert authorizer(ALICE, request)
    assert authorizer(BOB, request) is None
    assert authorizer(ALICE, replace(request, name="other")) is None
    assert authorizer(ALICE, replace(request, verb="create")) is None


@pytest.mark.parametrize("owner", [{"user": "alice"}, {"team": "red"}])
async def test_the_owner_of_a_project_is_its_admin(api: RegistryFixture, owner: dict[str, str]) -> None:
    authorizer = await create_authorizer(api, owner=owner)
    assert authorizer(ALICE, build_request("delete", "secrets", group=""))
    assert authorizer(BOB, build_request("delete", "secrets", group="")) is None


@pytest.mark.parametrize(
    ("entry", "users"),
    [
        (member_entry("*", "admin"), [ALICE, BOB, CAROL]),
        (member_entry("red", "admin", "Team"), [ALICE]),
        (member_entry("*", "admin", "Team"), [ALICE, BOB]),
        (member_entry("alice", "admin", "Team"), []),
    ],
)
async def test_a_member_entry_matches_users_and_teams(
    api: RegistryFixture, entry: dict[str, str], users: list[User]
) -> None:
    authorizer = await create_authorizer(api, entry)
    request = build_request("get", "secrets", group="")
    assert [user for user in (ALICE, BOB, CAROL, MACHINE) if authorizer(user, request)] == users


async def test_a_removed_member_loses_access_immediately(api: RegistryFixture) -> None:
    authorizer = await create_authorizer(api, member_entry("alice", "admin"))
    request = build_request("get", "secrets", group="")
    assert authorizer(ALICE, request)
    await api.patch("Project", "mine", lambda each: each["spec"].update(members=[]))
    assert authorizer(ALICE, request) is None


async def test_instance_lists_are_filtered_for_members_and_project_lists_for_every_user(api: RegistryFixture) -> None:
    authorizer = await create_authorizer(api, member_entry("alice", "viewer"))
    workspaces = build_request("list", WORKSPACES, name="")
    assert authorizer.may_see_some(ALICE, workspaces) and not authorizer.may_see_some(BOB, workspaces)
    all_namespaces = build_request("list", WORKSPACES, "", name="")
    assert authorizer.may_see_some(ALICE, all_namespaces) and not authorizer.may_see_some(BOB, all_namespaces)
    assert authorizer.may_see_some(BOB, build_request("list", "projects", "", name=""))
    assert not authorizer.may_see_some(ALICE, build_request("list", "secrets", group="", name=""))


@pytest.mark.parametrize(("role", "expected"), [("admin", True), ("user", True), ("viewer", False), ("auditor", False)])
async def test_admins_and_users_may_request_a_migration_into_the_project(
    api: RegistryFixture, role: str, expected: bool
) -> None:
    """The move itself is also authorized in the source and the target project."""
    authorizer = await create_authorizer(api, member_entry("alice", role))
    request = RequestInfo(
        "create", "", "management", MANAGEMENT_GROUP, "v1", "projects", "migratevirtualclusterinstance", "", "mine"
    )
    assert (authorizer(ALICE, request) is not None) == expected
    assert authorizer(BOB, request) is None


# --- many members ---


async def test_the_cost_of_a_request_does_not_grow_with_the_number_of_members(api: RegistryFixture) -> None:
    """The check runs for each object of a list."""

    async def prepare_requests(count: int) -> Callable[[], object]:
        spec = {"members": [member_entry(f"u{index}") for index in range(count)] + [member_entry("alice", "user")]}
        await api.patch("Project", "mine", lambda project: project.update(spec=spec))

        def send_requests() -> None:
            assert authorizer(ALICE, build_request("create", WORKSPACES)) and not authorizer(
                BOB, build_request("create", WORKSPACES)
            )
            assert authorizer.is_member(ALICE, NAMESPACE)

        send_requests()
        return send_requests

    authorizer = await create_authorizer(api)
    small, large = count_work(await prepare_requests(50)), count_work(await prepare_requests(800))
    assert large <= 2 * small


async def test_a_user_with_several_entries_has_each_role_in_order(api: RegistryFixture) -> None:
    authorizer = await create_authorizer(
        api,
        member_entry("red", "user", "Team"),
        member_entry("alice", "auditor"),
        member_entry("alice", ""),
        member_entry("alice", "auditor"),
    )
    decisions = [authorizer(ALICE, build_request(verb, WORKSPACES)) for verb in ("create", "list", "delete")]
    assert [each and each.reason for each in decisions] == [
        'role "user" in project "mine"',
        'role "auditor" in project "mine"',
        None,
    ]
