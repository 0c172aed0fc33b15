"""Usernames and passwords of charts from project secrets, when an app or a template is deployed."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fairlead.admission.chart_secrets import record_chart_secret_writers
from fairlead.controllers.apps.app_instances import AppInstanceController
from fairlead.controllers.apps.template_releases import TemplateReleases
from fairlead.controllers.helm.chart import Release, parse_repository_chart
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.deployments import CHECK_SECONDS
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.controllers.instances.spaces import SpaceController
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.objects import Object, get_path
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions
from tests.controllers.apps.app_fixture import (
    APP,
    ReleaseHelm,
    access,
    create_space,
    helm,
    install_app,
    wait_for_reason,
)
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    TRUSTED,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
)

__all__ = ["access", "helm"]
REPOSITORIES = ("https://charts.example",)
AUTHOR = User("grace")
USERNAME, PASSWORD = "robot-7", "canary-password"
CHART: Object = {
    "name": "web",
    "repoURL": "https://charts.example",
    "version": "1.2.3",
    "usernameRef": {"projectSecretRef": {"name": "repo", "key": "username"}},
    "passwordRef": {"projectSecretRef": {"project": "demo", "name": "repo", "key": "password"}},
}


@pytest.fixture
def writers() -> set[tuple[str, str, str]]:
    """Who may use which secret of which namespace."""
    return {("grace", "demo", "repo")}


@pytest.fixture
async def server(
    api: RegistryFixture, access: FakeAccess, helm: ReleaseHelm, writers: set[tuple[str, str, str]]
) -> AsyncIterator[RegistryFixture]:
    def may_use(writer: str, target: RequestInfo) -> bool:
        return (writer, target.namespace, target.name) in writers and target.verb == "use"

    config = replace(INSTANCE_CONFIG, may_use_secret=may_use)
    runner = ReleaseRunner(api.clock, helm)
    releases = TemplateReleases(api.registry, config, runner, REPOSITORIES)
    controllers = (
        InstanceTemplateController(api.registry, config),
        SpaceController(api.registry, config, access, releases),
        AppInstanceController(api.registry, config, access, runner, REPOSITORIES),
    )
    async with running_controllers(api, *controllers):
        await create_cluster(api)
        await api.create("SpaceTemplate", "plain", metadata=TRUSTED, spec={"template": {}})
        yield api


async def write(api: RegistryFixture, kind: str, name: str, spec: Object, **meta: Any) -> None:
    """Creates what has a chart, as the author, whom admission records."""
    rule = record_chart_secret_writers(lambda user, target: Decision(True), MANAGEMENT_GROUP, "")
    body = api.build_object(kind, name, spec=spec, metadata=meta)
    await api.with_rules(rule).submit(kind, body, WriteOptions(AUTHOR))


async def create_secret(api: RegistryFixture, name: str = "repo", **data: str) -> None:
    values = {"username": USERNAME, "password": PASSWORD, **data}
    encoded = {key: b64encode(value.encode()).decode() for key, value in values.items()}
    await api.create("ProjectSecret", name, spec={"data": encoded})


async def test_a_chart_of_an_app_gets_the_login_from_a_project_secret(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    await create_secret(server)
    await write(server, "App", "web", {"config": {"chart": CHART}})
    await create_space(server)
    await install_app(server)
    instance = await wait_for_reason(server, "Deployed")
    (release,) = helm.installed
    assert (release.chart.username, release.chart.password) == (USERNAME, PASSWORD)
    assert release.hash == instance["status"]["deployHash"] == without_login(release).hash
    assert PASSWORD not in json.dumps(instance) and USERNAME not in json.dumps(instance)
    assert PASSWORD not in repr(release) and USERNAME not in repr(release)


def without_login(release: Release) -> Release:
    return replace(release, chart=replace(release.chart, username="", password=""))


async def test_an_app_waits_for_its_secret(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await write(server, "App", "web", {"config": {"chart": CHART}})
    await create_space(server)
    await install_app(server)
    instance = await wait_for_reason(server, "SecretNotFound")
    assert 'no project secret "repo" with a key "username"' in instance["status"]["message"]
    assert helm.installed == []
    await create_secret(server)
    await wait_for_reason(server, "Deployed")


async def test_a_deployed_app_stays_so_without_its_secret(server: RegistryFixture, helm: ReleaseHelm) -> None:
    """It is read only when Helm runs."""
    await create_secret(server)
    await write(server, "App", "web", {"config": {"chart": CHART}})
    await create_space(server)
    await install_app(server)
    await wait_for_reason(server, "Deployed")
    await server.delete("ProjectSecret", "repo")
    now = server.clock.monotonic()
    await eventually(lambda: server.clock.monotonic() > now + 3 * CHECK_SECONDS)
    assert condition_status(server, APP, "Ready") == ("True", "Deployed")
    assert len(helm.installed) == 1


async def test_the_writer_must_still_be_allowed_to_use_the_secret(
    server: RegistryFixture, helm: ReleaseHelm, writers: set[tuple[str, str, str]]
) -> None:
    writers.clear()
    await write(server, "App", "web", {"config": {"chart": CHART}})
    await create_space(server)
    await install_app(server)
    instance = await wait_for_reason(server, "SecretNotAllowed")  # also while there is no such secret
    assert "the user who wrote config.chart.usernameRef" in instance["status"]["message"]
    await create_secret(server)
    updated = await server.patch(APP, "one", lambda each: each["spec"].update(description="again"))
    generation = updated["metadata"]["generation"]
    await eventually(lambda: get_path(server.get(APP, "one"), "status.observedGeneration") == generation)
    await wait_for_reason(server, "SecretNotAllowed")
    assert helm.installed == []
    writers.add(("grace", "demo", "repo"))
    await wait_for_reason(server, "Deployed")


async def test_a_reference_without_a_writer_is_not_used(server: RegistryFixture, helm: ReleaseHelm) -> None:
    await create_secret(server)
    await server.create("App", "web", spec={"config": {"chart": CHART}})
    await create_space(server)
    await install_app(server)
    await wait_for_reason(server, "SecretNotAllowed")
    assert helm.installed == []


async def test_a_secret_of_another_project_is_not_used(
    server: RegistryFixture, helm: ReleaseHelm, writers: set[tuple[str, str, str]]
) -> None:
    await create_secret(server)
    writers.add(("grace", "other", "repo"))
    reference = {"projectSecretRef": {"project": "other", "name": "repo", "key": "password"}}
    await write(server, "App", "web", {"config": {"chart": {**CHART, "passwordRef": reference}}})
    await create_space(server)
    await install_app(server)
    instance = await wait_for_reason(server, "SecretNotAllowed")
    assert 'refers to a secret of the project "other"' in instance["status"]["message"]
    assert helm.installed == []


@pytest.mark.parametrize("text", [f"{PASSWORD}\n", f"{PASSWORD}\r\nX: y", PASSWORD * 2000])
async def test_a_value_that_is_no_line_is_refused_without_its_text(
    server: RegistryFixture, helm: ReleaseHelm, text: str
) -> None:
    await create_secret(server, password=text)
    await write(server, "App", "web", {"config": {"chart": CHART}})
    await create_space(server)
    await install_app(server)
    instance = await wait_for_reason(server, "InvalidChart")
    assert 'the key "password" of the project secret "repo" must be one line' in instance["status"]["message"]
    assert PASSWORD not in json.dumps(instance) and helm.installed == []


async def test_a_value_that_is_no_text_is_refused(server: RegistryFixture, helm: ReleaseHelm) -> None:
    data = {"username": "cm9ib3Q=", "password": b64encode(b"\xff\xfe").decode()}
    await server.create("ProjectSecret", "repo", spec={"data": data})
    await write(server, "App", "web", {"config": {"chart": CHART}})
    await create_space(server)
    await install_app(server)
    instance = await wait_for_reason(server, "InvalidChart")
    assert 'the key "password" of the project secret "repo" is not text' in instance["status"]["message"]


async def test_charts_of_templates_and_apps_in_them_get_their_logins(
    server: RegistryFixture, helm: ReleaseHelm
) -> None:
    await create_secret(server)
    await write(server, "App", "shop", {"config": {"chart": CHART}})
    template = {"charts": [{**CHART, "name": "redis"}], "apps": [{"name": "shop"}]}
    await write(server, "SpaceTemplate", "t", {"template": template}, **TRUSTED)
    await create_space(server, template="t")
    assert [(each.name, each.chart.username, each.chart.password) for each in helm.installed] == [
        ("redis", USERNAME, PASSWORD),
        ("shop", USERNAME, PASSWORD),
    ]
    assert PASSWORD not in json.dumps(server.get("SpaceInstance", "dev"))


async def test_a_template_in_a_space_gets_the_login_by_who_wrote_the_space(
    server: RegistryFixture, helm: ReleaseHelm, writers: set[tuple[str, str, str]]
) -> None:
    """The writer of a template with the same chart does not count for it."""
    await create_secret(server)
    writers.clear()
    template = {"charts": [CHART]}
    spec = {"owner": {"user": "ada"}, "clusterRef": {"cluster": "c"}, "template": template}
    await write(server, "SpaceTemplate", "t", {"template": template}, **TRUSTED)
    await write(server, "SpaceInstance", "dev", spec)
    await eventually(lambda: condition_status(server, "SpaceInstance", "AppsSynced", "dev")[1] == "SecretNotAllowed")
    message = condition_message(server, "SpaceInstance", "AppsSynced", "dev")
    assert 'chart "web": the user who wrote charts[].usernameRef' in message and helm.installed == []
    writers.add(("grace", "demo", "repo"))
    await eventually(lambda: condition_status(server, "SpaceInstance", "AppsSynced", "dev") == ("True", "Synced"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"passwordRef": {"projectSecretRef": {"name": "repo"}}}, "passwordRef.projectSecretRef must have the name"),
        ({"usernameRef": {"projectSecretRef": {"key": "x"}}}, "usernameRef.projectSecretRef must have the name"),
        ({"usernameRef": None}, "username must be set together with a password"),
        ({"insecureSkipTlsVerify": True}, "insecureSkipTlsVerify is not supported"),
    ],
)
def test_an_incomplete_reference_is_reported(changes: Object, said: str) -> None:
    with pytest.raises(InstanceError, match=said) as caught:
        parse_repository_chart({**CHART, **changes}, "config.chart", "fix the app")
    assert caught.value.reason == "InvalidChart"


def test_an_empty_reference_is_none() -> None:
    empty = {"projectSecretRef": {"name": "", "key": ""}}
    chart = parse_repository_chart({**CHART, "usernameRef": empty, "passwordRef": {}}, "config.chart", "fix the app")
    assert (chart.username_ref, chart.password_ref) == (None, None)
