"""Words in projects that have no effect are rejected: quota keys and kinds of templates."""

import pytest

from fairlead.admission.projects import check_project_fields
from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture


@pytest.fixture
def server(api: RegistryFixture) -> RegistryFixture:
    return api.with_rules(check_project_fields(GROUP))


async def create_project(server: RegistryFixture, spec: Object) -> list[str]:
    """Creates a project, and returns the warnings."""
    options = WriteOptions(ADA)
    await server.submit("Project", server.build_object("Project", "p", spec=spec), options)
    return options.warnings


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("virtualclusters", "virtualclusterinstances"),
        ("spaceinstance", "spaceinstances"),
        ("spaceinstances.activ", "spaceinstances.active"),
        ("workspaceinstances", "devpodworkspaceinstances"),
        ("VirtualClusterInstances", "virtualclusterinstances"),
    ],
)
async def test_a_quota_key_that_counts_nothing_is_rejected(
    server: RegistryFixture, scope: str, key: str, suggestion: str
) -> None:
    with pytest.raises(Invalid) as error:
        await create_project(server, {"quotas": {scope: {key: "1"}}})
    assert f'spec.quotas.{scope}: Invalid value: "{key}": counts nothing' in error.value.message
    assert f'did you mean "{suggestion}"?' in error.value.message


@pytest.mark.parametrize("key", ["virtualclusterinstances", "devpodworkspaceinstances.active"])
async def test_a_quota_key_that_is_counted_causes_no_warning(server: RegistryFixture, key: str) -> None:
    assert await create_project(server, {"quotas": {"project": {key: "1"}}}) == []


@pytest.mark.parametrize("key", ["limits.cpu", "count/pods", "pods", "services.nodeports"])
async def test_a_quota_key_of_clusters_is_accepted_with_a_warning(server: RegistryFixture, key: str) -> None:
    [warning] = await create_project(server, {"quotas": {"project": {key: "1"}}})
    assert warning.startswith(f"spec.quotas.project[{key}] limits nothing on this server")


async def test_an_unknown_kind_of_template_is_rejected(server: RegistryFixture) -> None:
    with pytest.raises(Invalid, match='did you mean "SpaceTemplate"'):
        await create_project(server, {"allowedTemplates": [{"kind": "SpaceTemplat", "name": "a"}]})


async def test_a_group_without_templates_is_accepted_with_a_warning(server: RegistryFixture) -> None:
    entries = [{"group": GROUP, "name": "a"}, {"group": "example.com", "name": "b"}, {"name": "c"}]
    [warning] = await create_project(server, {"allowedTemplates": entries})
    assert warning.startswith("spec.allowedTemplates[1].group: the entry allows nothing")


async def test_a_project_that_was_stored_with_such_words_can_be_changed(
    api: RegistryFixture, server: RegistryFixture
) -> None:
    spec = {"quotas": {"user": {"spaces": "1", "pods": "1"}}, "allowedTemplates": [{"kind": "Spaces", "name": "a"}]}
    await api.create("Project", "p", spec=spec)
    options = WriteOptions(ADA)
    await server.patch("Project", "p", lambda obj: obj["spec"].update(displayName="P"), options)
    assert options.warnings == []
