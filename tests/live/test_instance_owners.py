"""A project administrator cannot use another user's secrets or quota by making that user the owner of instances."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from fairlead.domain.secret_references import CONSENT_ANNOTATION
from tests.harness.eventually import wait_until
from tests.harness.server_process import MANAGEMENT, running_server
from tests.live.workspace_setup import M, create_object

MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
RBAC = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1"
WORKSPACES = f"{M}/namespaces/service-p-web/devpodworkspaceinstances"
PLURALS = {
    "DevPodWorkspaceInstance": "devpodworkspaceinstances",
    "SpaceInstance": "spaceinstances",
    "VirtualClusterInstance": "virtualclusterinstances",
}
CANARY = "canary-of-dave"
DAVES = {"valueFrom": {"sharedSecretRef": {"namespace": "default", "name": "daves", "key": "k"}}}
INLINE = {"provider": {"name": "process"}, "workspaceEnv": {"TOKEN": DAVES}}
PLAIN = {"provider": {"name": "process"}, "workspaceEnv": {"PLAIN": {"value": "1"}}}
USERS = ("mallory", "dave", "bob", "outsider")


@dataclass(slots=True)
class Cast:
    """The administrator, and the project `web` with mallory as an administrator, and dave and bob as users."""

    admin: httpx.Client
    runner: httpx.Client
    clients: dict[str, httpx.Client]

    def post(self, user: str, kind: str, name: str, **spec: Any) -> httpx.Response:
        body = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        client = self.admin if user == "admin" else self.clients[user]
        return client.post(f"{M}/namespaces/service-p-web/{PLURALS[kind]}", json=body)

    def create_workspace(self, user: str, name: str = "dev", **spec: Any) -> None:
        response = self.post(user, "DevPodWorkspaceInstance", name, runnerRef={"runner": "one"}, **spec)
        assert response.status_code == 201, response.text

    def patch(self, user: str, path: str, **change: Any) -> httpx.Response:
        client = self.admin if user == "admin" else self.clients[user]
        return client.patch(path, json=change, headers=MERGE)

    def read_environment(self, name: str = "dev") -> dict[str, str]:
        """What the runner gets for the definition that is current now."""
        path = f"{WORKSPACES}/{name}"

        def is_current() -> bool:
            workspace = self.admin.get(path).json()
            conditions = {each["type"]: each for each in (workspace.get("status") or {}).get("conditions") or ()}
            resolved, scheduled = conditions.get("TemplateResolved"), conditions.get("Scheduled")
            generation = workspace["metadata"]["generation"]
            is_scheduled = scheduled is not None and scheduled["status"] == "True"
            return is_scheduled and resolved is not None and resolved["observedGeneration"] == generation

        wait_until(is_current, what="the template is resolved and the workspace scheduled")
        response = self.runner.get(f"{path}/credentials")
        assert response.status_code == 200, response.text
        environment: dict[str, str] = response.json().get("workspaceEnv") or {}
        return environment


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    """All but the project."""
    with running_server(tmp_path_factory.mktemp("owners") / "data") as server, ExitStack() as stack:
        admin = stack.enter_context(server.client())
        clients = {}
        for name in USERS:
            create_object(admin, f"{M}/users", "User", name)
            key = create_object(admin, f"{M}/ownedaccesskeys", "OwnedAccessKey", name, user=name)["spec"]["key"]
            clients[name] = stack.enter_context(server.client(key))
        create_object(admin, f"{M}/runners", "Runner", "one")
        data = {"k": b64encode(CANARY.encode()).decode()}
        path = f"{M}/namespaces/default/sharedsecrets"
        create_object(admin, path, "SharedSecret", "daves", data=data, owner={"user": "dave"})
        key = admin.get(f"{M}/runners/one/accesskey").json()["accessKey"]
        yield Cast(admin, stack.enter_context(server.client(key)), clients)


@pytest.fixture
def cast(installation: Cast) -> Iterator[Cast]:
    """Afterwards, the project and what a test has created outside of it is deleted."""
    admin = installation.admin
    before = list_names(admin)
    roles = {"mallory": "admin", "dave": "user", "bob": "user"}
    members = [{"kind": "User", "name": name, "clusterRole": role} for name, role in roles.items()]
    quota = {f"{each}": "2" for each in PLURALS.values()}
    project: dict[str, Any] = {"members": members, "quotas": {"user": quota}, "requireTemplate": {"disabled": True}}
    project["allowedClusters"] = [{"name": "*"}]
    create_object(admin, f"{M}/projects", "Project", "web", **project)
    yield installation
    assert admin.delete(f"{M}/projects/web").is_success
    wait_until(lambda: admin.get(f"{M}/projects/web").status_code == 404, what="the project is deleted")
    for path in list_names(admin) - before:
        assert admin.delete(path).is_success


def list_names(admin: httpx.Client) -> set[str]:
    """The paths of all objects outside of projects of the kinds that tests create there."""
    kinds = ("devpodworkspacetemplates", "spacetemplates", "virtualclustertemplates", "apps", "teams")
    lists = (*(f"{M}/{kind}" for kind in kinds), f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings")
    return {f"{each}/{item['metadata']['name']}" for each in lists for item in admin.get(each).json()["items"]}


def expect_forbidden(response: httpx.Response, *words: str) -> None:
    assert response.status_code == 403, response.text
    for word in words:
        assert word in response.json()["message"], response.text


@pytest.mark.parametrize("kind", PLURALS)
@pytest.mark.parametrize("owner", [{"user": "dave"}, {"user": "outsider"}, {"user": "ghost"}, {"team": "ghosts"}])
def test_no_user_becomes_an_owner_without_having_agreed(cast: Cast, kind: str, owner: dict[str, str]) -> None:
    extra = {"clusterRef": {"cluster": "c"}} if kind != "DevPodWorkspaceInstance" else {}
    path = f"{M}/namespaces/service-p-web/{PLURALS[kind]}"
    expect_forbidden(cast.post("mallory", kind, "given", owner=owner, **extra), "has to agree to own it")
    assert cast.post("mallory", kind, "own", **extra).status_code == 201
    expect_forbidden(cast.patch("mallory", f"{path}/own", spec={"owner": {"user": None, **owner}}), "has to agree")
    applied = {"apiVersion": "management.service.sh/v1", "kind": kind, "metadata": {"name": "own"}}
    response = cast.clients["mallory"].patch(
        f"{path}/own?fieldManager=x&force=true",
        json={**applied, "spec": {"owner": {"user": "", **owner}}},
        headers=APPLY,
    )
    expect_forbidden(response, "has to agree to own it")


@pytest.mark.parametrize("kind", PLURALS)
def test_quotas_cannot_be_evaded_by_giving_instances_away_or_removing_their_owner(cast: Cast, kind: str) -> None:
    path = f"{M}/namespaces/service-p-web/{PLURALS[kind]}"
    extra = {"clusterRef": {"cluster": "c"}} if kind != "DevPodWorkspaceInstance" else {}
    for number in range(2):
        assert cast.post("bob", kind, f"own-{number}", **extra).status_code == 201
    nameless: list[dict[str, str | None]] = [{}, {"user": ""}, {"team": ""}, {"user": "", "team": ""}]
    for number, owner in enumerate((None, {"user": "bob"}, *nameless)):
        response = cast.post("bob", kind, f"more-{number}", owner=owner, **extra)
        expect_forbidden(response, "exceeded quota: project web, user bob")
    for removed in (None, {}, {"user": None}, {"user": ""}):
        response = cast.patch("bob", f"{path}/own-0", spec={"owner": removed})
        assert response.status_code == 200, response.text
        assert response.json()["spec"]["owner"] == {"user": "bob"}
    expect_forbidden(cast.post("bob", kind, "seventh", **extra), "exceeded quota")


def test_a_member_takes_an_instance_over_within_their_own_quota(cast: Cast) -> None:
    cast.create_workspace("bob")
    expect_forbidden(cast.patch("dave", f"{WORKSPACES}/dev", spec={"owner": {"user": "dave"}}))
    access = [{"users": ["dave"], "verbs": ["get", "update", "patch", "makeowner"]}]
    assert cast.patch("bob", f"{WORKSPACES}/dev", spec={"access": access}).status_code == 200
    for number in range(2):
        cast.create_workspace("dave", f"daves-{number}")
    expect_forbidden(cast.patch("dave", f"{WORKSPACES}/dev", spec={"owner": {"user": "dave"}}), "exceeded quota")
    assert cast.clients["dave"].delete(f"{WORKSPACES}/daves-0").is_success
    wait_until(lambda: cast.admin.get(f"{WORKSPACES}/daves-0").status_code == 404, what="it is deleted")
    assert cast.patch("dave", f"{WORKSPACES}/dev", spec={"owner": {"user": "dave"}}).status_code == 200


def test_a_team_owns_instances_only_in_its_projects(cast: Cast) -> None:
    create_object(cast.admin, f"{M}/teams", "Team", "ops", users=["bob"])
    expect_forbidden(
        cast.post("bob", "DevPodWorkspaceInstance", "teams", owner={"team": "ops"}), "being no member of the project"
    )
    members = cast.admin.get(f"{M}/projects/web").json()["spec"]["members"]
    members.append({"kind": "Team", "name": "ops", "clusterRole": "user"})
    assert cast.patch("admin", f"{M}/projects/web", spec={"members": members}).status_code == 200
    assert cast.post("bob", "DevPodWorkspaceInstance", "teams", owner={"team": "ops"}).status_code == 201


def test_administrators_and_those_who_may_impersonate_the_owner_assign_owners(cast: Cast) -> None:
    """So do controllers and GitOps tools, for the owners that their role names."""
    cast.create_workspace("admin", "assigned", owner={"user": "dave"}, template=PLAIN)
    names = ["dave", "outsider"]
    rules = [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": names}]
    subject = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    types = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "assign"}}
    role = {**types, "kind": "ClusterRole", "rules": rules}
    reference = {"kind": "ClusterRole", "name": "assign", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {**types, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    assert cast.admin.post(f"{RBAC}/clusterroles", json=role).status_code == 201
    assert cast.admin.post(f"{RBAC}/clusterrolebindings", json=binding).status_code == 201
    cast.create_workspace("mallory", "for-dave", owner={"user": "dave"})
    expect_forbidden(cast.post("mallory", "DevPodWorkspaceInstance", "x", owner={"user": "bob"}), "has to agree")
    outsider = cast.post("mallory", "DevPodWorkspaceInstance", "x", owner={"user": "outsider"})
    expect_forbidden(outsider, "being no member of the project")


def test_the_owners_secret_is_for_references_that_the_owner_wrote(cast: Cast) -> None:
    cast.create_workspace("dave", template=INLINE)
    assert cast.read_environment() == {"TOKEN": CANARY}
    changed = {**INLINE, "gitCloneStrategy": "shallow"}
    assert cast.patch("mallory", f"{WORKSPACES}/dev", spec={"template": changed}).status_code == 200
    assert cast.read_environment() == {"TOKEN": CANARY}, "a change by others does not take it away"
    assert cast.patch("mallory", f"{WORKSPACES}/dev", spec={"owner": {"user": "mallory"}}).status_code == 200
    assert cast.read_environment() == {}


def test_others_cannot_add_references_to_the_owners_secrets(cast: Cast) -> None:
    cast.create_workspace("dave", template=PLAIN)
    path = f"{WORKSPACES}/dev"
    words = ('User "mallory" may not use the shared secret "daves" in the namespace "default"', "workspaceEnv.TOKEN")
    expect_forbidden(cast.patch("mallory", path, spec={"template": INLINE}), *words)
    other_key = {"TOKEN": DAVES, "MORE": DAVES}
    assert cast.patch("dave", path, spec={"template": INLINE}).status_code == 200
    expect_forbidden(cast.patch("mallory", path, spec={"template": {"workspaceEnv": other_key}}), "workspaceEnv.MORE")
    reference = {**DAVES["valueFrom"]["sharedSecretRef"], "name": "{{ parameters.s }}"}
    parameterized = {"valueFrom": {"sharedSecretRef": reference}}
    definition = {"provider": {"name": "process"}, "workspaceEnv": {"OTHER": parameterized}}
    parameters = [{"variable": "s", "defaultValue": "none"}]
    template = {"template": definition, "parameters": parameters}
    create_object(cast.admin, f"{M}/devpodworkspacetemplates", "DevPodWorkspaceTemplate", "open", **template)
    literal = {"template": INLINE}
    create_object(cast.admin, f"{M}/devpodworkspacetemplates", "DevPodWorkspaceTemplate", "fixed", **literal)
    cast.create_workspace("dave", "second", templateRef={"name": "open"})
    second = f"{WORKSPACES}/second"
    expect_forbidden(cast.patch("mallory", second, spec={"parameters": "s: daves\n"}), "workspaceEnv.OTHER")
    expect_forbidden(cast.patch("mallory", second, spec={"templateRef": {"name": "fixed"}}), *words)
    assert cast.patch("dave", second, spec={"parameters": "s: daves\n"}).status_code == 200
    assert cast.read_environment("second") == {"OTHER": CANARY}
    assert cast.patch("dave", second, spec={"templateRef": {"name": "fixed"}, "parameters": ""}).status_code == 200
    assert cast.read_environment("second") == {"TOKEN": CANARY}


def test_the_writer_of_a_reference_in_a_template_needs_to_be_allowed_to_use_the_secret(cast: Cast) -> None:
    entry = [{"users": ["mallory"], "verbs": ["get", "update", "patch"]}]
    templates = f"{M}/devpodworkspacetemplates"
    create_object(cast.admin, templates, "DevPodWorkspaceTemplate", "t", template=PLAIN, access=entry)
    expect_forbidden(
        cast.patch("mallory", f"{templates}/t", spec={"template": INLINE}), 'may not use the shared secret "daves"'
    )
    versions = [{"version": "1.0.0", "template": INLINE}]
    expect_forbidden(cast.patch("mallory", f"{templates}/t", spec={"versions": versions}), "daves")
    assert cast.patch("mallory", f"{templates}/t", spec={"displayName": "T"}).status_code == 200
    assert cast.patch("admin", f"{templates}/t", spec={"template": INLINE}).status_code == 200
    assert cast.patch("mallory", f"{templates}/t", spec={"displayName": "T again"}).status_code == 200
    cast.create_workspace("dave", templateRef={"name": "t"})
    assert cast.read_environment() == {"TOKEN": CANARY}


def test_an_owner_who_leaves_the_project_takes_the_secrets_along(cast: Cast) -> None:
    cast.create_workspace("dave", template=INLINE)
    assert cast.read_environment() == {"TOKEN": CANARY}
    members = [each for each in cast.admin.get(f"{M}/projects/web").json()["spec"]["members"] if each["name"] != "dave"]
    assert cast.patch("admin", f"{M}/projects/web", spec={"members": members}).status_code == 200
    assert cast.read_environment() == {}


def test_an_administrator_who_assigns_an_owner_does_not_vouch_for_the_references_of_others(cast: Cast) -> None:
    cast.create_workspace("mallory", template=INLINE)
    assert cast.read_environment() == {}
    assert cast.patch("admin", f"{WORKSPACES}/dev", spec={"owner": {"user": "dave"}}).status_code == 200
    assert cast.read_environment() == {}
    accepted = {"annotations": {"service.sh/workspace-up": "1"}}
    assert cast.patch("dave", f"{WORKSPACES}/dev", metadata=accepted).status_code == 200
    assert cast.read_environment() == {"TOKEN": CANARY}


def test_the_record_of_who_wrote_references_cannot_be_forged(cast: Cast) -> None:
    cast.create_workspace("dave", "real", template=INLINE)
    record = cast.admin.get(f"{WORKSPACES}/real").json()["metadata"]["annotations"][CONSENT_ANNOTATION]
    cast.create_workspace("mallory", template=INLINE)
    forged = {"annotations": {CONSENT_ANNOTATION: record}}
    for user in ("mallory", "admin"):
        assert cast.patch(user, f"{WORKSPACES}/dev", metadata=forged).status_code == 200
        assert cast.admin.get(f"{WORKSPACES}/dev").json()["metadata"]["annotations"][CONSENT_ANNOTATION] != record
    removed = {"annotations": {CONSENT_ANNOTATION: None}}
    assert cast.patch("mallory", f"{WORKSPACES}/real", metadata=removed).status_code == 200
    assert cast.admin.get(f"{WORKSPACES}/real").json()["metadata"]["annotations"][CONSENT_ANNOTATION] == record


@pytest.mark.parametrize(
    ("reference", "parameter"),
    [
        ({"name": "{{ parameters.s }}"}, {"defaultValue": "daves"}),
        ({"name": "daves{{ parameters.s }}"}, {"defaultValue": ""}),
        ({"key": "{{ parameters.s }}"}, {"defaultValue": "k"}),
        ({"name": "{{ parameters.s }}"}, {"defaultValue": "daves", "options": ["daves"]}),
    ],
)
def test_the_author_of_a_template_cannot_choose_a_secret_by_its_parameters(
    cast: Cast, reference: dict[str, str], parameter: dict[str, Any]
) -> None:
    """The default value of a parameter, its options and the text around it are the author's choice."""
    entry = [{"users": ["mallory"], "verbs": ["get", "update", "patch"]}]
    path = f"{M}/devpodworkspacetemplates"
    create_object(cast.admin, path, "DevPodWorkspaceTemplate", "t", template=PLAIN, access=entry)
    value = {"valueFrom": {"sharedSecretRef": {**DAVES["valueFrom"]["sharedSecretRef"], **reference}}}
    template = {"provider": {"name": "process"}, "workspaceEnv": {"TOKEN": value}}
    spec = {"template": template, "parameters": [{"variable": "s", **parameter}]}
    assert cast.patch("mallory", f"{path}/t", spec=spec).status_code == 200
    cast.create_workspace("dave", templateRef={"name": "t"})
    assert cast.read_environment() == {}
    # Neither a start by the owner nor an update of the template by an administrator vouches for it.
    started = {"annotations": {"service.sh/workspace-up": "1"}}
    assert cast.patch("admin", f"{path}/t", spec={"displayName": "T"}).status_code == 200
    assert cast.patch("dave", f"{WORKSPACES}/dev", metadata=started).status_code == 200
    assert cast.read_environment() == {}
    if reference == {"name": "{{ parameters.s }}"} and "options" not in parameter:
        named = cast.patch("mallory", f"{WORKSPACES}/dev", spec={"parameters": "s: daves\n"})
        expect_forbidden(named, 'may not use the shared secret "daves"')
    assert cast.patch("mallory", f"{WORKSPACES}/dev", spec={"parameters": "s: ''\n"}).status_code == 200
    assert cast.patch("dave", f"{WORKSPACES}/dev", metadata={"annotations": {"x": "1"}}).status_code == 200
    assert cast.read_environment() == {}


def test_an_owner_names_a_secret_in_the_parameters_of_any_template(cast: Cast) -> None:
    entry = [{"users": ["mallory"], "verbs": ["get", "update", "patch"]}]
    path = f"{M}/devpodworkspacetemplates"
    create_object(cast.admin, path, "DevPodWorkspaceTemplate", "t", template=PLAIN, access=entry)
    value = {"valueFrom": {"sharedSecretRef": {**DAVES["valueFrom"]["sharedSecretRef"], "name": "{{ parameters.s }}"}}}
    template = {"provider": {"name": "process"}, "workspaceEnv": {"TOKEN": value}}
    spec = {"template": template, "parameters": [{"variable": "s"}]}
    assert cast.patch("mallory", f"{path}/t", spec=spec).status_code == 200
    cast.create_workspace("dave", templateRef={"name": "t"}, parameters="s: daves\n")
    assert cast.read_environment() == {"TOKEN": CANARY}
    # A default value of an administrator may be used by those who may use the secret.
    defaults = [{"variable": "s", "defaultValue": "daves"}]
    assert cast.patch("admin", f"{path}/t", spec={"parameters": defaults}).status_code == 200
    cast.create_workspace("dave", "second", templateRef={"name": "t"})
    assert cast.read_environment("second") == {"TOKEN": CANARY}


def test_the_name_of_a_teams_group_is_no_other_owner_with_a_quota_of_its_own(cast: Cast) -> None:
    create_object(cast.admin, f"{M}/teams", "Team", "ops", users=["bob"])
    members = cast.admin.get(f"{M}/projects/web").json()["spec"]["members"]
    members.append({"kind": "Team", "name": "ops", "clusterRole": "user"})
    assert cast.patch("admin", f"{M}/projects/web", spec={"members": members}).status_code == 200
    cast.create_workspace("bob", owner={"team": "ops"})
    renamed = {"owner": {"team": None, "user": "service:team:ops"}}
    expect_forbidden(cast.patch("bob", f"{WORKSPACES}/dev", spec=renamed), "has to agree to own it")


def test_service_accounts_of_a_project_have_one_quota_together(cast: Cast) -> None:
    """A project administrator creates any number of them."""
    mallory, core = cast.clients["mallory"], f"{MANAGEMENT}/api/v1/namespaces/service-p-web/serviceaccounts"
    rbac = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1/namespaces/service-p-web"
    types = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "create"}}
    rules = [{"apiGroups": ["management.service.sh"], "resources": [*PLURALS.values()], "verbs": ["create", "get"]}]
    subjects = [{"kind": "Group", "name": "system:serviceaccounts", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"kind": "Role", "name": "create", "apiGroup": "rbac.authorization.k8s.io"}
    assert mallory.post(f"{rbac}/roles", json={**types, "kind": "Role", "rules": rules}).status_code == 201
    binding = {**types, "kind": "RoleBinding", "roleRef": reference, "subjects": subjects}
    assert mallory.post(f"{rbac}/rolebindings", json=binding).status_code == 201
    answers = []
    for number in range(3):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": f"robot-{number}"}}
        assert mallory.post(core, json=account).status_code == 201
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = mallory.post(f"{core}/robot-{number}/token", json=request).json()["status"]["token"]
        body = {"apiVersion": "management.service.sh/v1", "kind": "DevPodWorkspaceInstance"}
        owner = {"user": f"system:serviceaccount:service-p-web:robot-{number}"}
        spec = {"owner": owner} if number == 0 else {}
        workspace = {**body, "metadata": {"name": f"of-{number}"}, "spec": spec}
        headers = {"Authorization": f"Bearer {token}"}
        answers.append(mallory.post(WORKSPACES, json=workspace, headers=headers))
    assert [each.status_code for each in answers] == [201, 201, 403], [each.text for each in answers]
    expect_forbidden(answers[-1], "exceeded quota: project web, user system:serviceaccount:service-p-web")


def test_a_start_by_the_owner_does_not_vouch_for_what_others_have_prepared(cast: Cast) -> None:
    """Parameters, and the name of a template, refer to nothing until the template does."""
    cast.create_workspace("dave", template=PLAIN)
    prepared = {"template": None, "templateRef": {"name": "later"}, "parameters": "s: daves\n"}
    assert cast.patch("mallory", f"{WORKSPACES}/dev", spec=prepared).status_code == 200
    value = {"valueFrom": {"sharedSecretRef": {**DAVES["valueFrom"]["sharedSecretRef"], "name": "{{ parameters.s }}"}}}
    template = {"provider": {"name": "process"}, "workspaceEnv": {"TOKEN": value}}
    spec = {"template": template, "parameters": [{"variable": "s"}]}
    create_object(cast.admin, f"{M}/devpodworkspacetemplates", "DevPodWorkspaceTemplate", "later", **spec)
    for number in range(2):
        started = {"annotations": {"service.sh/workspace-up": str(number)}}
        assert cast.patch("dave", f"{WORKSPACES}/dev", metadata=started).status_code == 200
        assert cast.read_environment() == {}
    accepted = {"templateRef": {"name": "later", "version": "x.x.x"}, "parameters": "s: 'daves'\n"}
    assert cast.patch("dave", f"{WORKSPACES}/dev", spec=accepted).status_code == 200
    assert cast.read_environment() == {"TOKEN": CANARY}
