"""Who may declare that clusters are exported, and what is valid."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.admission.cluster_exports import protect_cluster_exports, protect_exported_keys
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import RegistryFixture, open_registry

ADMIN = User("root", ("system:masters",))
SCOPED_ADMIN = User("root", ("system:masters",), scope=Scope())
EDITOR = User("eve")
"""May write clusters, by a role."""
MARKS = [("labels", "service.sh/export-destination"), ("annotations", "service.sh/export-namespace")]
"""What says of an access key where its Secret is."""
EXPORT_MARKS = [
    ("labels", "service.sh/export"),
    ("labels", "service.sh/export-cluster"),
    ("annotations", "service.sh/export-cluster-uid"),
]
"""What says what it was exported for."""
DECLARED = {"service.sh/export-argocd": "argocd", "service.sh/export-user": "gitops"}


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(
        rules=(protect_cluster_exports(MANAGEMENT_GROUP, SYSTEM_NAMESPACE), protect_exported_keys(MANAGEMENT_GROUP))
    ) as found:
        yield found


async def create(api: RegistryFixture, by: User, annotations: dict[str, str], **spec: Any) -> Object:
    body = api.build_object("Cluster", "hub", metadata={"annotations": annotations}, spec=spec)
    return await api.submit("Cluster", body, WriteOptions(by, "tests"))


async def annotate(api: RegistryFixture, by: User, annotations: dict[str, str]) -> None:
    await api.patch(
        "Cluster", "hub", lambda obj: obj["metadata"].update(annotations=annotations), WriteOptions(by, "t")
    )


@pytest.mark.parametrize("by", [EDITOR, SCOPED_ADMIN], ids=["editor", "scoped key"])
@pytest.mark.parametrize("name", [*DECLARED, "service.sh/export-selector"])
async def test_only_administrators_set_the_annotations(api: RegistryFixture, by: User, name: str) -> None:
    with pytest.raises(Forbidden, match="only administrators, with a key without a scope"):
        await create(api, by, {name: "x"})
    await create(api, by, {"other": "x"})
    with pytest.raises(Forbidden, match="only administrators"):
        await annotate(api, by, {"other": "x", name: "x"})


@pytest.mark.parametrize("by", [EDITOR, SCOPED_ADMIN], ids=["editor", "scoped key"])
async def test_others_neither_change_nor_remove_them(api: RegistryFixture, by: User) -> None:
    await create(api, ADMIN, DECLARED)
    for changed in (
        {},
        {**DECLARED, "service.sh/export-user": "root"},
        {**DECLARED, "service.sh/export-selector": "a=b"},
    ):
        with pytest.raises(Forbidden, match="only administrators"):
            await annotate(api, by, changed)
    await annotate(api, by, {**DECLARED, "other": "x"})


@pytest.mark.parametrize(
    "change",
    [{"config": {"secretName": "mine"}}, {"networkPeer": True}, {"local": True}],
    ids=lambda change: next(iter(change)),
)
async def test_only_administrators_lead_such_a_cluster_elsewhere(api: RegistryFixture, change: Object) -> None:
    await create(api, ADMIN, DECLARED, config={"secretName": "s"})
    with pytest.raises(Forbidden, match="only administrators may change spec"):
        await api.patch("Cluster", "hub", lambda obj: obj["spec"].update(change), WriteOptions(EDITOR, "t"))
    await api.patch("Cluster", "hub", lambda obj: obj["spec"].update(displayName="Hub"), WriteOptions(EDITOR, "t"))
    await api.patch("Cluster", "hub", lambda obj: obj["spec"].update(change), WriteOptions(ADMIN, "t"))


async def test_a_cluster_without_exports_is_led_elsewhere_as_before(api: RegistryFixture) -> None:
    await create(api, EDITOR, {}, config={"secretName": "s"})
    await api.patch("Cluster", "hub", lambda obj: obj["spec"].update(networkPeer=True), WriteOptions(EDITOR, "t"))


async def test_a_kubeconfig_that_others_may_replace_leads_to_no_destination(api: RegistryFixture) -> None:
    elsewhere = {"secretName": "s", "secretNamespace": "service-p-web"}
    with pytest.raises(Invalid, match="others than administrators may replace it"):
        await create(api, ADMIN, DECLARED, config=elsewhere)
    await create(api, ADMIN, DECLARED, config={"secretName": "s", "secretNamespace": SYSTEM_NAMESPACE})
    with pytest.raises(Invalid, match="move the Secret to service-system"):
        await api.patch("Cluster", "hub", lambda obj: obj["spec"].update(config=elsewhere), WriteOptions(ADMIN, "t"))


async def test_only_an_administrator_makes_a_cluster_with_such_a_kubeconfig_a_destination(
    api: RegistryFixture,
) -> None:
    await create(api, EDITOR, {}, config={"secretName": "s", "secretNamespace": "service-p-web"})
    with pytest.raises(Forbidden, match="only administrators"):
        await annotate(api, EDITOR, DECLARED)
    with pytest.raises(Invalid, match="move the Secret to service-system"):
        await annotate(api, ADMIN, DECLARED)


@pytest.mark.parametrize(
    ("annotations", "name", "why"),
    [
        ({"service.sh/export-user": "gitops"}, "service.sh/export-argocd", "name the namespace"),
        ({"service.sh/export-argocd": "argocd"}, "service.sh/export-user", "name the user"),
        ({**DECLARED, "service.sh/export-argocd": "Argo/CD"}, "service.sh/export-argocd", ""),
        ({**DECLARED, "service.sh/export-selector": "a in"}, "service.sh/export-selector", ""),
    ],
)
async def test_what_is_not_valid_is_rejected(
    api: RegistryFixture, annotations: dict[str, str], name: str, why: str
) -> None:
    with pytest.raises(Invalid) as error:
        await create(api, ADMIN, annotations)
    (problem,) = error.value.details.problems
    assert problem.field == f"metadata.annotations[{name}]"
    assert why in problem.message
    await create(api, ADMIN, {**DECLARED, "service.sh/export-selector": "env in (prod,test)"})


async def create_key(api: RegistryFixture, by: User, **meta: Any) -> Object:
    body = api.build_object("OwnedAccessKey", "mine", metadata=meta, spec={"user": "eve"})
    return await api.submit("OwnedAccessKey", body, WriteOptions(by, "tests"))


@pytest.mark.parametrize("by", [EDITOR, ADMIN], ids=["user", "administrator"])
@pytest.mark.parametrize(("field", "name"), MARKS)
async def test_only_the_server_says_where_the_secret_of_a_key_is(
    api: RegistryFixture, by: User, field: str, name: str
) -> None:
    with pytest.raises(Forbidden, match="only the server sets or changes metadata"):
        await create_key(api, by, **{field: {name: "hub"}})
    await create_key(api, by, **{field: {"other": "x"}})
    with pytest.raises(Forbidden, match="only the server"):
        await api.patch(
            "OwnedAccessKey", "mine", lambda obj: obj["metadata"][field].update({name: "hub"}), WriteOptions(by, "t")
        )


@pytest.mark.parametrize(("field", "name"), EXPORT_MARKS)
async def test_what_a_key_was_exported_for_is_set_when_it_is_created_and_then_stays(
    api: RegistryFixture, field: str, name: str
) -> None:
    await create_key(api, EDITOR, **{field: {name: "argocd", "other": "x"}})
    for changed in ({"other": "x"}, {name: "elsewhere"}):

        def change(obj: Object, changed: Object = changed) -> None:
            obj["metadata"][field] = changed

        with pytest.raises(Forbidden, match="which marks exported keys; leave it as it is"):
            await api.patch("OwnedAccessKey", "mine", change, WriteOptions(EDITOR, "t"))
    await api.patch(
        "OwnedAccessKey", "mine", lambda obj: obj["metadata"][field].update(other="y"), WriteOptions(EDITOR, "t")
    )


@pytest.mark.parametrize(("field", "name"), MARKS)
async def test_others_neither_change_nor_remove_the_marks_of_the_server(
    api: RegistryFixture, field: str, name: str
) -> None:
    await create_key(api, CONTROLLER_USER, **{field: {name: "hub"}})
    for changed in ({}, {name: "elsewhere"}):

        def change(obj: Object, changed: Object = changed) -> None:
            obj["metadata"][field] = changed

        with pytest.raises(Forbidden, match="leave it as it is"):
            await api.patch("OwnedAccessKey", "mine", change, WriteOptions(EDITOR, "t"))
    await api.patch(
        "OwnedAccessKey", "mine", lambda obj: obj["spec"].update(displayName="Mine"), WriteOptions(EDITOR, "t")
    )
    await api.delete("OwnedAccessKey", "mine")
