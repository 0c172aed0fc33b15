"""The secrets that the server resolves for a workspace's runner. Over HTTP: `tests/live/test_runner_secrets.py`."""

from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import pytest

from fairlead.authz.component_access import ComponentResolver
from fairlead.authz.secret_access import SecretAccess
from fairlead.core.call import Call, Decision, RequestInfo
from fairlead.core.errors import ApiError, BadRequest, Conflict, Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.domain.secret_references import SecretConsent, find_references, owner_principal, write_consent
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.kinds.instances.workspace import CREDENTIALS
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import DeleteOptions, server_write_options
from fairlead.server.api.actions import ActionRequest
from fairlead.storage.view.entry import Entry
from fairlead.subresources.workspaces import project_secrets
from fairlead.subresources.workspaces.credentials import MAX_TRIED, SECRETS_ANNOTATION, CredentialsHandler
from fairlead.subresources.workspaces.project_secrets import GIT_HOST_ANNOTATION, ProjectSecret, ProjectSecrets
from tests.harness.calls import ADMIN, call
from tests.harness.registry import RegistryFixture, open_registry
from tests.harness.virtual_time import virtual_time_only as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]

NAMESPACE = "service-p-web"
SUBJECT = "service:runner:local"
RUNNER = User(SUBJECT, ("service:runners", SUBJECT))
ADA = User("ada", ("service:user:ada",))
MALLORY = User("mallory", ("service:user:mallory",))


def project_ref(name: str, key: str = "k", project: str = "") -> Object:
    return {"valueFrom": {"projectSecretRef": {"name": name, "key": key, "project": project}}}


@dataclass(slots=True)
class CredentialsFixture:
    api: RegistryFixture
    usable: set[str] = field(default_factory=set)
    """Names of secrets that the owner may use."""
    writer: str = ""
    """Who wrote the references of the workspace: by default, its owner."""
    usable_by_writer: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=lambda: {"ada", "service:team:ops"})
    owner: User = ADA
    consent: SecretConsent | None = None
    seen: list[User] = field(default_factory=list)
    call: Call = field(default_factory=call)

    async def create_secret(self, kind: str, name: str, host: str = "", owner: str = "", **data: str) -> None:
        encoded = {key.replace("_", "-"): b64encode(value.encode()).decode() for key, value in data.items()}
        spec = {"data": encoded, **({"owner": {"user": owner}} if owner else {})}
        annotations = {"service.sh/git-host": host} if host else {}
        await self.api.create(kind, name, NAMESPACE, spec=spec, metadata={"annotations": annotations})

    async def create_workspace(
        self, template: Object, scheduled: str = "True", trust: str = "Trusted", **spec: Any
    ) -> None:
        spec = {"runnerRef": {"runner": "local"}, "owner": {"user": "ada"}, **spec}
        workspace = self.api.build_object("DevPodWorkspaceInstance", "dev", NAMESPACE, spec=spec)
        owner = owner_principal(workspace)
        writers = {each.digest: self.writer or owner for each in find_references(template)}
        write_consent(workspace, self.consent or SecretConsent(owner, writers))
        await self.api.submit("DevPodWorkspaceInstance", workspace)
        condition = {
            "type": "Scheduled",
            "status": scheduled,
            "reason": "x",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }

        def edit(current: Object) -> Object:
            known = {"templateTrust": trust} if trust else {}
            return {**current, "status": {"instance": template, "conditions": [condition], **known}}

        resource = self.api.resource("DevPodWorkspaceInstance")
        await resource.modify(NAMESPACE, "dev", edit, server_write_options("status"))

    async def read(self, user: User = RUNNER, **query: str) -> Object:
        self.call = call(query=urlencode(query))
        view, registry = self.api.view, self.api.registry
        users = {"ada": self.owner, "mallory": MALLORY}
        access = SecretAccess(users.get, self._authorize, lambda user, namespace: user.name in self.members)
        runners = ComponentResolver(RUNNER_COMPONENT, GROUP, view)
        handler = CredentialsHandler(GROUP, registry, runners, access, "service-p-")
        response = await handler(ActionRequest(user, CREDENTIALS, "get", NAMESPACE, "dev", {}, False, self.call))
        return {name: value for name, value in response.items() if name not in ("kind", "apiVersion", "metadata")}

    def _authorize(self, user: User, target: RequestInfo) -> Decision:
        if target.verb == "create":  # whether an owner who is no member may work in the project by a role
            return Decision(False)
        self.seen.append(user)
        assert (target.verb, target.group) == ("use", GROUP)
        usable = self.usable_by_writer if user == MALLORY else self.usable
        return Decision(user.is_admin or target.name in usable)


@pytest.fixture
async def credentials() -> AsyncIterator[CredentialsFixture]:
    async with open_registry() as api:
        await api.create("Project", "web")
        await api.create("Runner", "local")
        yield CredentialsFixture(api)


def messages(response: Object) -> str:
    return "; ".join(each["message"] for each in response["errors"])


async def test_references_to_secrets_are_resolved(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "own", k="option")
    await credentials.create_secret("SharedSecret", "common", k="variable\n")
    shared = {"valueFrom": {"sharedSecretRef": {"namespace": NAMESPACE, "name": "common", "key": "k"}}}
    template = {
        "provider": {"name": "x", "options": {"a": project_ref("own", project="web"), "b": {"value": "plain"}}},
        "workspaceEnv": {"TOKEN": shared, "PLAIN": {"value": "1"}},
    }
    credentials.usable = {"own", "common"}
    await credentials.create_workspace(template)
    assert await credentials.read() == {
        "providerOptions": {"a": "option"},
        "workspaceEnv": {"TOKEN": "variable\n"},
        "gitCredentials": {},
        "gitIdentity": {},
        "dotfiles": "",
        "gitPathHosts": [],
        "errors": [],
    }
    used = credentials.call.annotations[SECRETS_ANNOTATION]
    assert used == f"projectsecrets/{NAMESPACE}/own, sharedsecrets/{NAMESPACE}/common"


@pytest.mark.parametrize(
    "reference",
    [project_ref("forbidden"), project_ref("missing"), project_ref("own", "other"), project_ref("own", project="ops")],
)
async def test_what_the_owner_may_not_use_is_not_resolved(credentials: CredentialsFixture, reference: Object) -> None:
    await credentials.create_secret("ProjectSecret", "own", k="canary")
    await credentials.create_secret("ProjectSecret", "forbidden", k="canary")
    credentials.usable = {"own"}
    await credentials.create_workspace({"workspaceEnv": {"TOKEN": reference}})
    response = await credentials.read()
    assert "canary" not in str(response)
    assert messages(response).startswith("workspaceEnv.TOKEN of the template: ")


async def test_whether_a_secret_exists_is_not_said(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "forbidden", k="canary")
    await credentials.create_workspace({"workspaceEnv": {"A": project_ref("forbidden"), "B": project_ref("missing")}})
    one, other = messages(await credentials.read()).split("; ")
    assert one.replace(".A", ".B").replace("forbidden", "missing") == other


async def test_the_rights_of_administrators_do_not_count_for_shared_secrets(credentials: CredentialsFixture) -> None:
    """Others may be able to change the workspace of an administrator."""
    credentials.owner = replace(ADA, groups=(*ADA.groups, "service:admins"))
    await credentials.create_secret("ProjectSecret", "own", k="value")
    await credentials.create_secret("SharedSecret", "common", k="canary")
    shared = {"valueFrom": {"sharedSecretRef": {"namespace": NAMESPACE, "name": "common", "key": "k"}}}
    await credentials.create_workspace({"workspaceEnv": {"A": project_ref("own"), "B": shared}})
    response = await credentials.read()
    assert response["workspaceEnv"] == {"A": "value"}
    assert messages(response).startswith("workspaceEnv.B of the template: there is no shared secret")


async def test_the_secrets_of_a_team_are_for_its_workspaces(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "secret", k="value")
    credentials.usable = {"secret"}
    await credentials.create_workspace({"workspaceEnv": {"A": project_ref("secret")}}, owner={"team": "ops"})
    assert (await credentials.read())["workspaceEnv"] == {"A": "value"}
    assert [user.groups for user in credentials.seen] == [("service:team:ops",)]


async def test_values_with_password_parameters_are_returned(credentials: CredentialsFixture) -> None:
    await credentials.create_workspace(
        {"workspaceEnv": {"A": {"value": "x-hunter22-y"}, "B": {"value": "plain"}}},
        parameters="password: <hidden>\n",
        parameterSecrets={"password": "hunter22"},
    )
    assert (await credentials.read())["workspaceEnv"] == {"A": "x-hunter22-y"}


@pytest.mark.parametrize(
    ("user", "scheduled", "error"),
    [
        (ADMIN, "True", Forbidden),
        (ADA, "True", Forbidden),
        (replace(RUNNER, impersonator=ADMIN), "True", Forbidden),
        (User("service:runner:other", ("service:runners", "service:runner:other")), "True", Forbidden),
        (RUNNER, "False", Conflict),
    ],
)
async def test_only_the_runner_that_a_workspace_is_scheduled_to_reads_them(
    credentials: CredentialsFixture, user: User, scheduled: str, error: type[ApiError]
) -> None:
    await credentials.api.create("Runner", "other")
    await credentials.create_workspace({}, scheduled)
    with pytest.raises(error):
        await credentials.read(user)


@pytest.mark.parametrize(
    ("allowed", "is_served"),
    [(None, True), ([{"name": "*"}], True), ([{"name": "local"}], True), ([{"name": "other"}], False), ([], False)],
)
async def test_a_runner_that_the_project_does_not_allow_gets_none(
    credentials: CredentialsFixture, allowed: list[Object] | None, is_served: bool
) -> None:
    """Also if the workspace was scheduled to it before."""
    await credentials.create_workspace({})
    spec = {} if allowed is None else {"allowedRunners": allowed}
    await credentials.api.patch("Project", "web", lambda obj: obj.update(spec=spec))
    if is_served:
        assert (await credentials.read())["errors"] == []
    else:
        with pytest.raises(Conflict, match='project "web" does not allow runner "local"'):
            await credentials.read()


async def test_credentials_are_for_one_host_and_the_own_ones_come_first(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "a-project", "git.example.com", password="project", username="bot")
    await credentials.create_secret("ProjectSecret", "b-ada", "Git.Example.com", "ada", password="own")
    await credentials.create_secret("ProjectSecret", "c-port", "git.example.com:8443", password="port")
    await credentials.create_secret("ProjectSecret", "d-none", password="canary")
    await credentials.create_secret("ProjectSecret", "e-ssh", "git.example.com", ssh_privatekey="key")
    credentials.usable = {"a-project", "b-ada", "c-port", "d-none", "e-ssh"}
    await credentials.create_workspace({})

    async def read(host: str, protocol: str = "https") -> Object:
        found: Object = (await credentials.read(gitHost=host, gitProtocol=protocol))["gitCredentials"]
        return found

    assert await read("git.example.com") == {"password": "own"}
    credentials.usable.discard("b-ada")
    assert await read("git.example.com") == {"username": "bot", "password": "project"}
    assert await read("git.example.com:8443") == {"password": "port"}
    assert await read("git.example.com", "ssh") == {"sshPrivateKey": "key"}
    assert await read("evil.example.com") == await read("") == await read("git.example.com", "http") == {}


async def test_credentials_for_a_path_are_for_repositories_below_it(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "a", "git.example.com", password="all")
    await credentials.create_secret("ProjectSecret", "b", "git.example.com/Team/", password="team")
    credentials.usable = {"a", "b"}
    await credentials.create_workspace({})

    async def read(path: str) -> object:
        response = await credentials.read(gitHost="git.example.com", gitProtocol="https", gitPath=path)
        return response["gitCredentials"].get("password")

    assert await read("/Team/shop.git") == await read("Team/deep/shop") == await read("Team.git") == "team"
    assert await read("Teams/shop.git") == await read("team/shop.git") == await read("") == "all"
    assert (
        await read("Team/../other.git")
        == await read("Team/%2e%2e/other.git")
        == await read("Team//x")
        == await read("Team/..;/other.git")
        == "all"
    )
    credentials.usable = {"b"}
    assert await read("") is await read("Team/../other.git") is None
    assert (await credentials.read())["gitPathHosts"] == ["git.example.com"]


SESSION: dict[str, Any] = {"gitHost": "git.example.com", "gitProtocol": "https", "gitUse": "session"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({}, "own"),
        ({"useProjectGitCredentials": True}, "own"),
        ({"credentialForwarding": {"git": {"disabled": True}}}, None),
        ({"credentialForwarding": {"git": {"disabled": True}}, "useProjectGitCredentials": True}, "project"),
    ],
)
async def test_the_template_decides_which_credentials_sessions_get(
    credentials: CredentialsFixture, template: Object, expected: str | None
) -> None:
    await credentials.create_secret("ProjectSecret", "own", "git.example.com", "ada", password="own")
    await credentials.create_secret("ProjectSecret", "project", "git.example.com", password="project")
    credentials.usable = {"own", "project"}
    await credentials.create_workspace(template)
    assert (await credentials.read(**SESSION))["gitCredentials"].get("password") == expected
    clone: dict[str, Any] = {name: value for name, value in SESSION.items() if name != "gitUse"}
    assert (await credentials.read(**clone))["gitCredentials"]["password"] == "own"


async def test_a_session_gets_nothing_but_credentials_and_each_use_is_audited(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "s", "git.example.com", k="canary", password="token")
    credentials.usable = {"s"}
    await credentials.create_workspace({"workspaceEnv": {"A": project_ref("s")}, "useProjectGitCredentials": True})
    response = await credentials.read(**SESSION, gitPath="team/shop.git")
    assert response == {"gitCredentials": {"password": "token"}, "errors": []}
    assert credentials.call.annotations == {
        "service.sh/git-use": "https://git.example.com/team/shop.git",
        "service.sh/secrets": "projectsecrets/service-p-web/s",
    }
    credentials.usable.clear()
    assert (await credentials.read(**SESSION))["gitCredentials"] == {}
    assert credentials.call.annotations == {"service.sh/git-use": "https://git.example.com"}


async def test_credentials_of_another_member_are_no_own_ones(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "s", "git.example.com", "mallory", password="canary")
    credentials.usable = {"s"}
    await credentials.create_workspace({})
    assert (await credentials.read(**SESSION))["gitCredentials"] == {}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"gitHost": "a\nhost=b"}, "gitHost: must be the name or address of a host"),
        ({"gitHost": "a/b"}, "gitHost: must be the name or address of a host"),
        ({"gitHost": "a" * 256}, "gitHost: must be the name or address of a host"),
        ({"gitPath": "a\nhost=b"}, "gitPath: must be printable characters"),
        ({"gitPath": "a" * 1025}, "gitPath: must be printable characters"),
    ],
)
async def test_what_is_no_host_or_path_is_refused(
    credentials: CredentialsFixture, query: dict[str, Any], message: str
) -> None:
    await credentials.create_workspace({})
    with pytest.raises(BadRequest, match=message):
        await credentials.read(**{**SESSION, **query})


async def test_the_identity_for_commits_is_that_of_the_owner(credentials: CredentialsFixture) -> None:
    await credentials.api.create("User", "ada", spec={"displayName": "Ada L.", "email": "ada@example.com"})
    await credentials.create_workspace({})
    assert (await credentials.read())["gitIdentity"] == {"name": "Ada L.", "email": "ada@example.com"}


@pytest.mark.parametrize("owner", [{"user": "ada"}, {"user": "gone"}, {"team": "ops"}, {}])
async def test_an_owner_without_an_address_has_no_identity_for_commits(
    credentials: CredentialsFixture, owner: Object
) -> None:
    await credentials.api.create("User", "ada", spec={"displayName": "Ada"})
    await credentials.create_workspace({}, owner=owner)
    assert (await credentials.read())["gitIdentity"] == {}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ('{"dotfiles": "https://example.com/dot.git"}', "https://example.com/dot.git"),
        ('{"dotfiles": ["x"]}', ""),
        ('{"dotfiles": "' + "x" * 2049 + '"}', ""),
        ("[]", ""),
        ("{", ""),
    ],
)
async def test_the_dotfiles_are_those_of_the_profile_of_the_owner(
    credentials: CredentialsFixture, stored: str, expected: str
) -> None:
    await credentials.api.create("User", "ada", metadata={"annotations": {"service.sh/profile": stored}}, spec={})
    await credentials.create_workspace({})
    assert (await credentials.read())["dotfiles"] == expected


async def test_bytes_that_are_not_text_are_an_error(credentials: CredentialsFixture) -> None:
    spec = {"data": {"k": b64encode(b"\xff").decode()}}
    await credentials.api.create("ProjectSecret", "binary", NAMESPACE, spec=spec)
    credentials.usable = {"binary"}
    await credentials.create_workspace({"workspaceEnv": {"A": project_ref("binary")}})
    assert messages(await credentials.read()).endswith('the key "k" of secret "binary" is not text')


async def test_a_workspace_without_an_owner_may_use_nothing(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("ProjectSecret", "secret", "git.example.com", k="canary", password="canary")
    credentials.usable = {"secret"}
    await credentials.create_workspace({"workspaceEnv": {"A": project_ref("secret")}}, owner={})
    response = await credentials.read(gitHost="git.example.com", gitProtocol="https")
    assert "canary" not in str(response)
    assert messages(response).endswith("for a workspace without an owner")


SHARED = {"valueFrom": {"sharedSecretRef": {"namespace": NAMESPACE, "name": "common", "key": "k"}}}
WITH_SHARED = {"provider": {"name": "x"}, "workspaceEnv": {"TOKEN": SHARED}}


async def read_shared(credentials: CredentialsFixture) -> tuple[Object, str]:
    response = await credentials.read()
    return response.get("workspaceEnv") or {}, messages(response)


async def prepare_shared(credentials: CredentialsFixture) -> None:
    await credentials.create_secret("SharedSecret", "common", k="value")
    credentials.usable = {"common"}


async def test_the_writer_of_a_reference_must_be_allowed_to_use_the_secret_now(
    credentials: CredentialsFixture,
) -> None:
    await prepare_shared(credentials)
    credentials.writer, credentials.usable_by_writer = "mallory", {"common"}
    await credentials.create_workspace(WITH_SHARED)
    assert await read_shared(credentials) == ({"TOKEN": "value"}, "")
    credentials.usable_by_writer = set()
    values, message = await read_shared(credentials)
    assert (
        values == {} and "the user who wrote the reference, here or in the template, may not use the secret" in message
    )


async def test_a_writer_who_does_not_exist_any_more_may_use_nothing(credentials: CredentialsFixture) -> None:
    await prepare_shared(credentials)
    credentials.writer = "gone"
    await credentials.create_workspace(WITH_SHARED)
    assert (await read_shared(credentials))[0] == {}


@pytest.mark.parametrize(
    ("consent", "reason"),
    [
        (SecretConsent(), "the owner of the workspace has not accepted it"),
        (SecretConsent("mallory"), "the owner of the workspace has not accepted it"),
        (SecretConsent("ada"), "it is not known who wrote the reference"),
    ],
)
async def test_a_stored_workspace_whose_owner_has_not_accepted_gets_no_shared_secrets(
    credentials: CredentialsFixture, consent: SecretConsent, reason: str
) -> None:
    """Also not one that an earlier version has stored, with an owner who was never asked."""
    await prepare_shared(credentials)
    credentials.consent = consent
    await credentials.create_workspace(WITH_SHARED)
    values, message = await read_shared(credentials)
    assert values == {} and reason in message, message


@pytest.mark.parametrize("owner", [{"user": "ada"}, {"team": "ops"}])
async def test_an_owner_who_is_no_member_any_more_gets_no_shared_secrets(
    credentials: CredentialsFixture, owner: Object
) -> None:
    await prepare_shared(credentials)
    await credentials.create_workspace(WITH_SHARED, owner=owner)
    assert (await read_shared(credentials))[0] == {"TOKEN": "value"}
    credentials.members = set()
    values, message = await read_shared(credentials)
    assert values == {} and "not a member of the project any more" in message


@pytest.mark.parametrize(
    ("writer", "is_resolved"), [("system:masters", True), ("ada", True), ("mallory", False), ("", False)]
)
async def test_the_writer_of_a_reference_in_the_template_must_be_allowed_to_use_it_as_well(
    credentials: CredentialsFixture, writer: str, is_resolved: bool
) -> None:
    await prepare_shared(credentials)
    template = credentials.api.build_object("DevPodWorkspaceTemplate", "t", spec={"template": WITH_SHARED})
    if writer:
        digests = {each.digest: writer for each in find_references(WITH_SHARED)}
        write_consent(template, SecretConsent(writers=digests))
    await credentials.api.submit("DevPodWorkspaceTemplate", template)
    await credentials.create_workspace(WITH_SHARED, templateRef={"name": "t"})
    values, message = await read_shared(credentials)
    assert bool(values) == is_resolved, message
    assert is_resolved or "the user who wrote it in the template may not use the secret" in message


async def test_what_a_template_refers_to_later_is_resolved_for_an_owner_who_accepted_the_workspace(
    credentials: CredentialsFixture,
) -> None:
    await prepare_shared(credentials)
    template = credentials.api.build_object("DevPodWorkspaceTemplate", "t", spec={"template": WITH_SHARED})
    write_consent(template, SecretConsent(writers={each.digest: "ada" for each in find_references(WITH_SHARED)}))
    await credentials.api.submit("DevPodWorkspaceTemplate", template)
    credentials.consent = SecretConsent("ada")
    await credentials.create_workspace(WITH_SHARED, templateRef={"name": "t"})
    assert (await read_shared(credentials))[0] == {"TOKEN": "value"}


@pytest.mark.parametrize(
    ("trust", "option"),
    [("Confined", "token"), ("Unmarked", "token"), ("", "token"), ("Confined", "image"), ("Trusted", "allow")],
)
async def test_options_that_the_template_may_not_decide_are_not_resolved(
    credentials: CredentialsFixture, trust: str, option: str
) -> None:
    await credentials.create_secret("ProjectSecret", "own", k="canary")
    credentials.usable = {"own"}
    template = {"provider": {"name": "x", "options": {option: project_ref("own")}}}
    await credentials.create_workspace(template, trust=trust)
    response = await credentials.read()
    assert f"provider.options.{option} of the template" in messages(response)
    assert "canary" not in str(response)


async def test_credentials_of_registries_are_those_that_the_owner_may_use(credentials: CredentialsFixture) -> None:
    async def create(name: str, place: str, password: str = "", owner: str = "") -> None:
        data = {"username": "bot", **({"password": password} if password else {})}
        encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
        spec = {"data": encoded, **({"owner": {"user": owner}} if owner else {})}
        annotations = {"service.sh/image-registry": place}
        await credentials.api.create("ProjectSecret", name, NAMESPACE, spec=spec, metadata={"annotations": annotations})

    await create("a", "registry.example.com/team", "of-the-team")
    await create("b", "registry.example.com", "of-the-project")
    await create("c", "registry.example.com", "of-the-owner", owner="ada")
    await create("d", "other.example.com:5000", "not-usable")
    await create("e", "empty.example.com")
    await create("f", "https://wrong.example.com", "x")
    credentials.usable = {"a", "b", "c", "e", "f"}
    await credentials.create_workspace({})
    found = (await credentials.read())["registryCredentials"]
    assert found == [
        {"registry": "registry.example.com", "username": "bot", "password": "of-the-owner"},
        {"registry": "registry.example.com/team", "username": "bot", "password": "of-the-team"},
    ]
    assert "not-usable" not in str(found)
    assert "/c" in credentials.call.annotations[SECRETS_ANNOTATION]
    assert "registryCredentials" not in await credentials.read(
        gitUse="session", gitHost="git.example.com", gitProtocol="https"
    )


async def test_a_secret_is_read_again_only_when_it_changes(
    credentials: CredentialsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each `git` in a workspace asks, and members may store many megabytes of secrets."""
    read: list[str] = []
    original = project_secrets._read

    def record(entry: Entry) -> ProjectSecret | None:
        read.append(entry.key[3])
        return original(entry)

    monkeypatch.setattr(project_secrets, "_read", record)
    for name in ("git-a", "git-b"):
        await credentials.create_secret("ProjectSecret", name, "git.example.com", password=name)
    await credentials.create_secret("ProjectSecret", "other", k="v")
    secrets = ProjectSecrets(credentials.api.view, GROUP)
    first = secrets.list(NAMESPACE)
    assert [each.name for each in first] == ["git-a", "git-b"] and sorted(read) == ["git-a", "git-b", "other"]
    assert secrets.list(NAMESPACE) == first and len(read) == 3
    resource = credentials.api.resource("ProjectSecret")
    other_host = {GIT_HOST_ANNOTATION: "other.example.com"}
    await resource.modify(
        NAMESPACE,
        "git-a",
        lambda old: {**old, "metadata": {**old["metadata"], "annotations": other_host}},
        server_write_options(),
    )
    await resource.delete(NAMESPACE, "git-b", DeleteOptions(), server_write_options())
    assert [each.git_place for each in secrets.list(NAMESPACE)] == ["other.example.com"]
    assert read[3:] == ["git-a"]


async def test_secrets_that_are_no_text_are_tried_a_few_times_only(credentials: CredentialsFixture) -> None:
    names = [f"s{number}" for number in range(MAX_TRIED + 2)]
    for name in names:
        await credentials.create_secret("ProjectSecret", name, "git.example.com", password="text")
        await credentials.api.resource("ProjectSecret").modify(
            NAMESPACE,
            name,
            lambda old: {**old, "spec": {**old["spec"], "data": {"password": b64encode(b"\xff").decode()}}},
            server_write_options(),
        )
    credentials.usable = set(names)
    await credentials.create_workspace({})
    assert (await credentials.read(gitHost="git.example.com", gitProtocol="https"))["gitCredentials"] == {}
    assert len(credentials.call.annotations[SECRETS_ANNOTATION].split(", ")) == MAX_TRIED + 1
