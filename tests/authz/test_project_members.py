"""Members of projects: what each role may do in the project's namespace, and nowhere else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fairlead.authz.project_members import ProjectMemberAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.core.user import User
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.growth import work
from tests.harness.registry import RegistryFixture
from tests.harness.users import ALICE, BOB, CAROL, MACHINE

MINE, OTHER = "service-p-mine", "service-p-other"


def target(
    verb: str, resource: str, namespace: str = MINE, group: str = MANAGEMENT_GROUP, name: str = "x"
) -> RequestInfo:
    return RequestInfo(verb, "", "management", group, "v1", resource, "", namespace, name)


def custom_roles(role: str, asked: RequestInfo) -> bool:
    return role == "auditor" and asked.verb == "list"


async def members(api: RegistryFixture, *entries: dict[str, str], **spec: object) -> ProjectMemberAuthorizer:
    await api.create("Project", "mine", spec={"members": list(entries), **spec})
    await api.create("Project", "other", spec={})
    projects = Informer(api.view, MANAGEMENT_GROUP, "projects")
    return ProjectMemberAuthorizer(projects, MANAGEMENT_GROUP, "service-p-", custom_roles)


def member(name: str, role: str = "", kind: str = "User") -> dict[str, str]:
    return {"kind": kind, "name": name, "clusterRole": role}


WORKSPACES = "devpodworkspaceinstances"
TABLE = {
    # (verb, resource, group): who may, of admin, user, viewer and a custom role
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
@pytest.mark.parametrize("asked", TABLE)
async def test_what_a_role_may_do(api: RegistryFixture, role: str, asked: tuple[str, str, str]) -> None:
    authorizer = await members(api, member("alice", role))
    verb, resource, group = asked
    decision = authorizer(ALICE, target(verb, resource, group=group))
    assert (decision is not None) == (role in TABLE[asked])
    assert authorizer(ALICE, target(verb, resource, OTHER, group)) is None
    assert authorizer(BOB, target(verb, resource, group=group)) is None


@pytest.mark.parametrize("role", ["admin", "user", "viewer", "auditor", ""])
async def test_members_read_their_project_and_its_namespace_and_change_neither(api: RegistryFixture, role: str) -> None:
    authorizer = await members(api, member("alice", role))
    project = target("get", "projects", "", name="mine")
    namespace = target("get", "namespaces", MINE, "", MINE)
    assert authorizer(ALICE, project) and authorizer(ALICE, namespace)
    assert authorizer(BOB, project) is None and authorizer(BOB, namespace) is None
    for verb in ("update", "patch", "delete"):
        assert authorizer(ALICE, target(verb, "projects", "", name="mine")) is None
        assert authorizer(ALICE, target(verb, "namespaces", MINE, "", MINE)) is None


@pytest.mark.parametrize("part", ["members", "clusters", "runners", "templates"])
async def test_members_read_the_parts_of_their_project_and_others_do_not(api: RegistryFixture, part: str) -> None:
    authorizer = await members(api, member("alice", "viewer"))
    asked = RequestInfo("get", "", "management", MANAGEMENT_GROUP, "v1", "projects", part, "", "mine")
    assert authorizer(ALICE, asked)
    assert authorizer(BOB, asked) is None
    assert authorizer(ALICE, replace(asked, name="other")) is None
    assert authorizer(ALICE, replace(asked, verb="create")) is None


@pytest.mark.parametrize("owner", [{"user": "alice"}, {"team": "red"}])
async def test_the_owner_of_a_project_is_its_admin(api: RegistryFixture, owner: dict[str, str]) -> None:
    authorizer = await members(api, owner=owner)
    assert authorizer(ALICE, target("delete", "secrets", group=""))
    assert authorizer(BOB, target("delete", "secrets", group="")) is None


@pytest.mark.parametrize(
    ("entry", "who"),
    [
        (member("*", "admin"), [ALICE, BOB, CAROL]),
        (member("red", "admin", "Team"), [ALICE]),
        (member("*", "admin", "Team"), [ALICE, BOB]),
        (member("alice", "admin", "Team"), []),
    ],
)
async def test_who_a_member_entry_means(api: RegistryFixture, entry: dict[str, str], who: list[User]) -> None:
    authorizer = await members(api, entry)
    asked = target("get", "secrets", group="")
    assert [user for user in (ALICE, BOB, CAROL, MACHINE) if authorizer(user, asked)] == who


async def test_a_role_that_was_taken_away_is_gone_at_once(api: RegistryFixture) -> None:
    authorizer = await members(api, member("alice", "admin"))
    asked = target("get", "secrets", group="")
    assert authorizer(ALICE, asked)
    await api.patch("Project", "mine", lambda each: each["spec"].update(members=[]))
    assert authorizer(ALICE, asked) is None


async def test_lists_are_cut_for_members_and_projects_for_everybody(api: RegistryFixture) -> None:
    authorizer = await members(api, member("alice", "viewer"))
    workspaces = target("list", WORKSPACES, name="")
    assert authorizer.may_see_some(ALICE, workspaces) and not authorizer.may_see_some(BOB, workspaces)
    everywhere = target("list", WORKSPACES, "", name="")
    assert authorizer.may_see_some(ALICE, everywhere) and not authorizer.may_see_some(BOB, everywhere)
    assert authorizer.may_see_some(BOB, target("list", "projects", "", name=""))
    assert not authorizer.may_see_some(ALICE, target("list", "secrets", group="", name=""))


@pytest.mark.parametrize(("role", "may"), [("admin", True), ("user", True), ("viewer", False), ("auditor", False)])
async def test_who_may_ask_for_a_virtual_cluster_to_be_moved_here(api: RegistryFixture, role: str, may: bool) -> None:
    """What is moved is asked for at both ends, too; this is only the door."""
    authorizer = await members(api, member("alice", role))
    asked = RequestInfo(
        "create", "", "management", MANAGEMENT_GROUP, "v1", "projects", "migratevirtualclusterinstance", "", "mine"
    )
    assert (authorizer(ALICE, asked) is not None) == may
    assert authorizer(BOB, asked) is None


# --- many members ---


async def test_a_question_costs_the_same_however_many_members_there_are(api: RegistryFixture) -> None:
    """Each object of a list asks it again."""

    async def make(count: int) -> Callable[[], object]:
        project = {"members": [member(f"u{index}") for index in range(count)] + [member("alice", "user")]}
        await api.patch("Project", "mine", lambda found: found.update(spec=project))

        def ask() -> None:
            assert authorizer(ALICE, target("create", WORKSPACES)) and not authorizer(BOB, target("create", WORKSPACES))
            assert authorizer.is_member(ALICE, MINE)

        ask()
        return ask

    authorizer = await members(api)
    small, large = work(await make(50)), work(await make(800))
    assert large <= 2 * small


async def test_a_member_more_than_once_has_each_role_in_order(api: RegistryFixture) -> None:
    authorizer = await members(
        api,
        member("red", "user", "Team"),
        member("alice", "auditor"),
        member("alice", ""),
        member("alice", "auditor"),
    )
    reasons = [authorizer(ALICE, target(verb, WORKSPACES)) for verb in ("create", "list", "delete")]
    assert [each and each.reason for each in reasons] == [
        'role "user" in project "mine"',
        'role "auditor" in project "mine"',
        None,
    ]
