"""References to objects that do not exist: one test for each row of the table in docs/api.md."""

from typing import Any

import pytest

from fairlead.admission.references import MAX_WARNINGS, warn_missing_references
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.projects.project import NAMESPACE_PREFIX
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture

ROOT, ADA = User("root", ("system:masters",)), User("ada")
READABLE_PROJECT = "demo"
"""The only object that Ada may read."""


def authorize(user: User, target: RequestInfo) -> Decision:
    return Decision(user.is_admin or (target.resource, target.name) == ("projects", READABLE_PROJECT))


@pytest.fixture
async def server(api: RegistryFixture) -> RegistryFixture:
    """One object of each kind that can be named."""
    for kind, name in (("User", "alice"), ("Team", "core"), ("Cluster", "berlin"), ("Runner", "local")):
        await api.create(kind, name, spec={})
    await api.create("Project", READABLE_PROJECT)
    await api.create("SpaceInstance", "web", f"{NAMESPACE_PREFIX}{READABLE_PROJECT}", spec={})
    await api.create("SpaceTemplate", "default", spec={})
    await api.create("ClusterRole", "auditor")
    return api.with_rules(warn_missing_references(authorize, GROUP, NAMESPACE_PREFIX))


async def warnings_of(server: RegistryFixture, kind: str, spec: Object, user: User = ROOT) -> list[str]:
    """The warnings of a create, except those about deprecated fields."""
    options = WriteOptions(user)
    await server.submit(kind, server.build_object(kind, "new", spec=spec), options)
    return [each for each in options.warnings if "is deprecated" not in each]


ROWS: dict[str, tuple[str, Any, Any, str]] = {
    # field: kind, spec with a typo, spec without it, start of the warning
    "spec.owner.user": ("App", {"owner": {"user": "alcie"}}, {"owner": {"user": "alice"}}, "alice"),
    "spec.owner.team": ("App", {"owner": {"team": "cor"}}, {"owner": {"team": "core"}}, "core"),
    "spec.extraAccessRules[0].users": (
        *("SpaceInstance", {"extraAccessRules": [{"users": ["alicee"], "clusterRole": "view"}]}),
        *({"extraAccessRules": [{"users": ["alice"], "clusterRole": "view"}]}, "alice"),
    ),
    "spec.template.access.rules[0].teams": (
        *("SpaceTemplate", {"template": {"access": {"rules": [{"teams": ["coer"], "clusterRole": "view"}]}}}),
        *({"template": {"access": {"rules": [{"teams": ["core"], "clusterRole": "view"}]}}}, "core"),
    ),
    "spec.members[0].name": (
        *("Project", {"members": [{"kind": "User", "name": "alise", "clusterRole": "user"}]}),
        *({"members": [{"kind": "User", "name": "alice", "clusterRole": "user"}]}, "alice"),
    ),
    "spec.members[1].name": (
        *("Project", {"members": [{"kind": "User", "name": "*"}, {"kind": "Team", "name": "c0re"}]}),
        *({"members": [{"kind": "User", "name": "*"}, {"kind": "Team", "name": "core"}]}, "core"),
    ),
    "spec.members[0].clusterRole": (
        *("Project", {"members": [{"kind": "User", "name": "alice", "clusterRole": "usr"}]}),
        *({"members": [{"kind": "User", "name": "alice", "clusterRole": "auditor"}]}, "user"),
    ),
    "spec.allowedClusters[0].name": (
        *("Project", {"allowedClusters": [{"name": "berlni"}]}),
        *({"allowedClusters": [{"name": "berlin"}, {"name": "*"}]}, "berlin"),
    ),
    "spec.allowedRunners[0].name": (
        *("Project", {"allowedRunners": [{"name": "locale"}]}),
        *({"allowedRunners": [{"name": "local"}]}, "local"),
    ),
    "spec.allowedTemplates[0].name": (
        *("Project", {"allowedTemplates": [{"kind": "SpaceTemplate", "name": "defautl"}]}),
        *({"allowedTemplates": [{"kind": "SpaceTemplate", "name": "default"}, {"name": "any"}]}, "default"),
    ),
    "spec.clusterRef.cluster": (
        *("VirtualClusterInstance", {"external": True, "clusterRef": {"cluster": "berlim"}}),
        *({"external": True, "clusterRef": {"cluster": "berlin"}}, "berlin"),
    ),
    "spec.users": ("Team", {"users": ["alcie"]}, {"users": ["alice"]}, "alice"),
    "spec.scope.projects[0].project": (
        *("OwnedAccessKey", {"user": "alice", "scope": {"projects": [{"project": "demmo"}]}}),
        *({"user": "alice", "scope": {"projects": [{"project": "demo"}, {"project": "*"}]}}, "demo"),
    ),
    "spec.scope.clusters[0].cluster": (
        *("OwnedAccessKey", {"user": "alice", "scope": {"clusters": [{"cluster": "berln"}]}}),
        *({"user": "alice", "scope": {"clusters": [{"cluster": "berlin"}]}}, "berlin"),
    ),
    "spec.scope.rules[0].cluster": (
        *("OwnedAccessKey", {"user": "alice", "scope": {"rules": [{"cluster": "berln"}]}}),
        *({"user": "alice", "scope": {"rules": [{"cluster": "berlin"}, {"verbs": ["get"]}]}}, "berlin"),
    ),
    "spec.scope.spaces[0].space": (
        *("OwnedAccessKey", {"user": "alice", "scope": {"spaces": [{"project": "demo", "space": "webb"}]}}),
        *({"user": "alice", "scope": {"spaces": [{"project": "demo", "space": "web"}]}}, "web"),
    ),
    "spec.scope.spaces[0].project": (
        *("OwnedAccessKey", {"user": "alice", "scope": {"spaces": [{"project": "dmo", "space": "*"}]}}),
        *({"user": "alice", "scope": {"spaces": [{"project": "demo", "space": "*"}]}}, "demo"),
    ),
    "spec.scope.virtualClusters[0].virtualCluster": (
        *(
            "OwnedAccessKey",
            {"user": "alice", "scope": {"virtualClusters": [{"project": "demo", "virtualCluster": "v"}]}},
        ),
        *({"user": "alice", "scope": {"virtualClusters": [{"project": "demo", "virtualCluster": "*"}]}}, ""),
    ),
}
"""By the path of a field: the kind, a spec with a name that does not exist, one with a name that does, and the
suggestion."""


@pytest.mark.parametrize("path", ROWS)
async def test_a_name_that_does_not_exist_is_accepted_with_a_warning(server: RegistryFixture, path: str) -> None:
    kind, misspelt, _, suggestion = ROWS[path]
    [warning] = await warnings_of(server, kind, misspelt)
    assert warning.startswith(f"{path}: there is no ")
    assert warning.endswith(f'; did you mean "{suggestion}"?') or not suggestion


@pytest.mark.parametrize("path", ROWS)
async def test_a_name_that_exists_causes_no_warning(server: RegistryFixture, path: str) -> None:
    kind, _, correct, _ = ROWS[path]
    assert await warnings_of(server, kind, correct) == []


@pytest.mark.parametrize("kind", ["SpaceInstance", "VirtualClusterInstance"])
async def test_the_cluster_of_an_instance_is_checked_when_it_changes(server: RegistryFixture, kind: str) -> None:
    [warning] = await warnings_of(server, kind, {"clusterRef": {"cluster": "berlim"}})
    effect = "nothing is deployed until it is connected"
    assert warning == f'spec.clusterRef.cluster: there is no cluster "berlim"; {effect}; did you mean "berlin"?'
    options = WriteOptions(ROOT)
    await server.patch(kind, "new", lambda obj: obj["spec"].update(displayName="New"), options)
    assert options.warnings == []


async def test_entries_of_access_cause_no_warning(server: RegistryFixture) -> None:
    spec = {"access": [{"users": ["alic"], "teams": ["corre"], "verbs": ["updat"]}]}
    assert await warnings_of(server, "App", spec) == []


async def test_only_names_that_a_change_adds_are_reported(server: RegistryFixture) -> None:
    spec = {"owner": {"user": "gone"}, "members": [{"kind": "User", "name": "gone", "clusterRole": "gone"}]}
    assert len(await warnings_of(server, "Project", spec)) == 3
    options = WriteOptions(ROOT)
    await server.patch("Project", "new", lambda obj: obj["spec"].update(displayName="New"), options)
    assert options.warnings == []


async def test_a_warning_does_not_reveal_whether_an_object_exists(server: RegistryFixture) -> None:
    assert await warnings_of(server, "App", {"owner": {"user": "nobody"}}, ADA) == []
    assert await warnings_of(server, "SpaceInstance", {"clusterRef": {"cluster": "nowhere"}}, ADA) == []


async def test_scopes_name_objects_that_the_requester_can_read(server: RegistryFixture) -> None:
    await server.create("Project", "hidden")
    for name in ("hidden", "missing"):
        options = WriteOptions(ADA)
        key = server.build_object(
            "OwnedAccessKey", f"k-{name}", spec={"user": "alice", "scope": {"projects": [{"project": name}]}}
        )
        await server.submit("OwnedAccessKey", key, options)
        [warning] = options.warnings
        assert f'there is no project "{name}" that you can read' in warning


async def test_suggestions_are_names_that_the_requester_can_read(server: RegistryFixture) -> None:
    await server.create("Project", "domo")
    [warning] = await warnings_of(
        server, "OwnedAccessKey", {"user": "alice", "scope": {"projects": [{"project": "dmo"}]}}, ADA
    )
    assert warning.endswith('did you mean "demo"?')


async def test_the_number_of_warnings_is_limited(server: RegistryFixture) -> None:
    users = [f"nobody-{number}" for number in range(20)]
    assert len(await warnings_of(server, "Team", {"users": users})) == MAX_WARNINGS


async def test_service_accounts_and_the_server_are_not_checked(server: RegistryFixture) -> None:
    assert await warnings_of(server, "App", {"owner": {"user": "system:serviceaccount:a:b"}}) == []
    assert await warnings_of(server, "Team", {"users": ["nobody"]}, CONTROLLER_USER) == []


@pytest.mark.parametrize(
    ("kind", "subject", "role", "warnings"),
    [
        (
            "RoleBinding",
            {"kind": "User", "name": "alcie"},
            {"kind": "ClusterRole", "name": "auditor"},
            [
                'subjects[0].name: there is no user "alcie"; the binding gives it nothing until that user exists; '
                'did you mean "alice"?'
            ],
        ),
        (
            "RoleBinding",
            {"kind": "Group", "name": "service:team:coer"},
            {"kind": "Role", "name": "missing"},
            [
                'subjects[0].name: there is no team "coer"; the binding gives it nothing until that team exists; '
                'did you mean "core"?',
                'roleRef.name: there is no Role "missing"; the binding grants nothing until it exists',
            ],
        ),
        ("RoleBinding", {"kind": "User", "name": "alice"}, {"kind": "ClusterRole", "name": "auditor"}, []),
        ("ClusterRoleBinding", {"kind": "User", "name": "alcie"}, {"kind": "ClusterRole", "name": "auditor"}, []),
        ("RoleBinding", {"kind": "Group", "name": "service:team:core"}, {"kind": "ClusterRole", "name": "auditor"}, []),
        ("RoleBinding", {"kind": "Group", "name": "anyone"}, {"kind": "ClusterRole", "name": "auditor"}, []),
        ("RoleBinding", {"kind": "ServiceAccount", "name": "x"}, {"kind": "ClusterRole", "name": "auditor"}, []),
        ("RoleBinding", {"kind": "User", "name": "system:x"}, {"kind": "ClusterRole", "name": "auditor"}, []),
    ],
)
async def test_bindings_of_users_teams_and_roles_that_do_not_exist_are_accepted_with_a_warning(
    server: RegistryFixture, kind: str, subject: Object, role: Object, warnings: list[str]
) -> None:
    options = WriteOptions(ROOT)
    namespace = f"{NAMESPACE_PREFIX}{READABLE_PROJECT}" if kind == "RoleBinding" else ""
    body = server.build_object(kind, "new", namespace, subjects=[subject], roleRef=role)
    await server.submit(kind, body, options)
    assert options.warnings == warnings
    again = WriteOptions(ROOT)

    def add_label(obj: Object) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "labels": {"a": "b"}}}

    await server.resource(kind).modify(namespace, "new", add_label, again)
    assert again.warnings == []


async def test_a_warning_about_a_binding_does_not_reveal_whether_a_user_exists(server: RegistryFixture) -> None:
    options = WriteOptions(ADA)
    role = {"kind": "ClusterRole", "name": "missing"}
    body = server.build_object("RoleBinding", "new", subjects=[{"kind": "User", "name": "gone"}], roleRef=role)
    await server.submit("RoleBinding", body, options)
    assert options.warnings == []
