"""References to project secrets in the charts of Apps, templates and instances: who may write them."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlead.admission.chart_secrets import record_chart_secret_writers
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.chart_secrets import find_app_references, find_template_references
from fairlead.domain.secret_references import CONSENT_ANNOTATION, read_consent
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ADA, EVE, ADMIN = User("ada"), User("eve"), User("root", ("system:masters",))
REPOSITORY = "https://charts.example"
IN_PROJECT = {"project": "mo", "name": "repo", "key": "password"}
"""The namespace of the project is `demo`, with the prefix `de`."""
ANYWHERE = {"name": "repo", "key": "password"}


class Rights:
    """What users may use."""

    def __init__(self) -> None:
        self.granted = {("ada", "demo", "repo")}

    def __call__(self, user: User, target: RequestInfo) -> Decision:
        assert (target.verb, target.resource) == ("use", "projectsecrets")
        is_granted = (user.name, target.namespace, target.name) in self.granted
        return Decision(is_granted and user.scope is None)


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
async def api(rights: Rights) -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(record_chart_secret_writers(rights, GROUP, "de"),)) as api:
        yield api


def build_chart(reference: Object, repository: str = REPOSITORY) -> Object:
    password = {"projectSecretRef": reference}
    return {"name": "web", "repoURL": repository, "username": "robot", "passwordRef": password}


def app_spec(chart: Object) -> Object:
    return {"config": {"chart": chart}}


def versioned_app_spec(chart: Object) -> Object:
    return {"versions": [{"version": "1.0.0", "chart": chart}]}


def template_spec(chart: Object) -> Object:
    return {"template": {"charts": [chart]}}


def versioned_template_spec(chart: Object) -> Object:
    return {"versions": [{"version": "1.0.0", "template": {"charts": [chart]}}]}


def outer_template_spec(chart: Object) -> Object:
    return {"template": {"spaceTemplate": {"charts": [chart]}}}


PLACES = [
    ("App", app_spec),
    ("App", versioned_app_spec),
    ("SpaceTemplate", template_spec),
    ("SpaceTemplate", versioned_template_spec),
    ("VirtualClusterTemplate", outer_template_spec),
    ("SpaceInstance", template_spec),
    ("VirtualClusterInstance", outer_template_spec),
]
each_place = pytest.mark.parametrize(
    ("kind", "build_spec"), PLACES, ids=[f"{kind}-{build.__name__}" for kind, build in PLACES]
)


async def create(api: RegistryFixture, kind: str, user: User, spec: Object, **meta: Any) -> Object:
    return await api.submit(kind, api.build_object(kind, "one", spec=spec, metadata=meta), WriteOptions(user))


async def update(api: RegistryFixture, kind: str, user: User, spec: Object) -> Object:
    return await api.patch(kind, "one", lambda each: each.update(spec=spec), WriteOptions(user))


def recorded_writers(obj: Object) -> list[str | None]:
    """Of each reference of an object."""
    find = find_app_references if obj["kind"] == "App" else find_template_references
    writers = read_consent(obj).writers
    return [writers.get(each.digest) for each in find(obj)]


@each_place
async def test_the_writer_of_a_reference_needs_use_and_is_recorded(
    api: RegistryFixture, rights: Rights, kind: str, build_spec: Callable[[Object], Object]
) -> None:
    spec = build_spec(build_chart(IN_PROJECT))
    with pytest.raises(Forbidden, match=r'may not use the project secret "repo".*passwordRef'):
        await create(api, kind, EVE, spec)
    assert recorded_writers(await create(api, kind, ADA, spec)) == ["ada"]


@each_place
async def test_who_changes_the_repository_beside_a_reference_needs_use_too(
    api: RegistryFixture, kind: str, build_spec: Callable[[Object], Object]
) -> None:
    """Its value goes to the repository."""
    await create(api, kind, ADA, build_spec(build_chart(IN_PROJECT)))
    elsewhere = build_spec(build_chart(IN_PROJECT, "https://eve.example"))
    with pytest.raises(Forbidden):
        await update(api, kind, EVE, elsewhere)
    assert recorded_writers(await update(api, kind, ADMIN, elsewhere)) == ["system:masters"]


async def test_other_changes_keep_the_writer(api: RegistryFixture) -> None:
    spec = app_spec(build_chart(IN_PROJECT))
    await create(api, "App", ADA, spec)
    for user in (EVE, ADMIN):
        changed = {**spec, "description": f"for {user.name}"}
        assert recorded_writers(await update(api, "App", user, changed)) == ["ada"]


@pytest.mark.parametrize("reference", [IN_PROJECT, {**IN_PROJECT, "key": "other"}, {**IN_PROJECT, "project": ""}])
async def test_a_member_needs_use_in_an_instance_also_without_a_project(
    api: RegistryFixture, reference: Object
) -> None:
    with pytest.raises(Forbidden):
        await create(api, "SpaceInstance", EVE, template_spec(build_chart(reference)))
    await create(api, "SpaceInstance", ADA, template_spec(build_chart(reference)))


async def test_without_a_project_the_writer_is_recorded_for_the_deployment(api: RegistryFixture) -> None:
    created = await create(api, "App", EVE, app_spec(build_chart(ANYWHERE)))
    assert recorded_writers(created) == ["eve"]


async def test_a_key_with_a_scope_names_the_project(api: RegistryFixture, rights: Rights) -> None:
    """Its scope is not recorded, and so would not count at the deployment."""
    with pytest.raises(Forbidden):
        await create(api, "App", User("ada", scope=Scope()), app_spec(build_chart(ANYWHERE)))


async def test_a_secret_of_another_project_needs_use_there(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden):
        await create(api, "App", ADA, app_spec(build_chart({**IN_PROJECT, "project": "other"})))


@pytest.mark.parametrize(
    "chart",
    [
        build_chart({**ANYWHERE, "name": "{{ parameters.secret }}"}),
        build_chart({**ANYWHERE, "key": "{{ parameters.secret }}"}),
        build_chart({**ANYWHERE, "project": "{{ project }}"}),
        build_chart(ANYWHERE, "https://{{ parameters.host }}"),
    ],
)
async def test_placeholders_choose_neither_the_secret_nor_the_repository(api: RegistryFixture, chart: Object) -> None:
    with pytest.raises(Invalid, match=r"spec.config.chart.passwordRef.*may have placeholders"):
        await create(api, "App", ADMIN, app_spec(chart))


async def test_the_record_cannot_be_forged(api: RegistryFixture) -> None:
    record = (await create(api, "App", ADMIN, app_spec(build_chart(ANYWHERE))))["metadata"]["annotations"]
    assert json.loads(record[CONSENT_ANNOTATION])["writers"].keys() == {"system:masters"}
    body = api.build_object("App", "two", spec=app_spec(build_chart(ANYWHERE)), metadata={"annotations": record})
    assert recorded_writers(await api.submit("App", body, WriteOptions(EVE))) == ["eve"]
    removed = await api.patch("App", "one", lambda each: each["metadata"].pop("annotations"), WriteOptions(EVE))
    assert recorded_writers(removed) == ["system:masters"]


async def test_the_record_goes_with_the_reference(api: RegistryFixture) -> None:
    await create(api, "App", ADMIN, app_spec(build_chart(ANYWHERE)))
    updated = await update(api, "App", EVE, app_spec({"name": "web", "repoURL": REPOSITORY}))
    assert "annotations" not in updated["metadata"]


async def test_a_reference_of_an_earlier_version_has_no_writer_until_it_is_written_again(api: RegistryFixture) -> None:
    spec = app_spec(build_chart(ANYWHERE))
    await create(api, "App", CONTROLLER_USER, spec)
    assert recorded_writers(await update(api, "App", EVE, {**spec, "description": "x"})) == [None]
