"""Runners: only administrators say what the server deploys into a cluster, and their write marks the Runner."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fairlead.admission.runners import protect_cluster_ref
from fairlead.core.deployed_runners import DEPLOYMENT_FINALIZER
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object, get_path
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.calls import ADMIN
from tests.harness.registry import ADA, RegistryFixture, open_registry

HOST_PATH = {"podTemplate": {"spec": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}}}
INIT = {"podTemplate": {"spec": {"initContainers": [{"name": "i", "image": "x"}]}}}


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(protect_cluster_ref(GROUP),)) as fixture:
        yield fixture


async def create(api: RegistryFixture, user: User, name: str = "r", **ref: Any) -> Object:
    spec = {"clusterRef": ref} if ref else {}
    return await api.submit("Runner", api.build_object("Runner", name, spec=spec), WriteOptions(user))


async def change(api: RegistryFixture, user: User, **ref: Any) -> Object:
    def edit(runner: Object) -> None:
        runner["spec"]["clusterRef"] = {**(runner["spec"].get("clusterRef") or {}), **ref}

    return await api.patch("Runner", "r", edit, WriteOptions(user))


@pytest.mark.parametrize("ref", [{"cluster": "c"}, {"cluster": "c", **HOST_PATH}, INIT])
async def test_only_administrators_set_a_cluster_ref(api: RegistryFixture, ref: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match="only administrators"):
        await create(api, ADA, **ref)
    await create(api, ADA)
    with pytest.raises(Forbidden, match="only administrators"):
        await change(api, ADA, **ref)
    await change(api, ADMIN, **ref)


async def test_a_key_with_a_scope_does_not_suffice(api: RegistryFixture) -> None:
    with pytest.raises(Forbidden):
        await create(api, replace(ADMIN, scope=Scope()), cluster="c")


@pytest.mark.parametrize("ref", [HOST_PATH, INIT, {"persistentVolumeClaimTemplate": {"spec": {"storageSize": "1Ti"}}}])
async def test_an_owner_cannot_change_what_is_deployed(api: RegistryFixture, ref: dict[str, Any]) -> None:
    await create(api, ADMIN, cluster="c")
    with pytest.raises(Forbidden):
        await change(api, ADA, **ref)
    await api.patch("Runner", "r", lambda each: each["spec"].update(displayName="x"), WriteOptions(ADA))


async def test_the_write_of_an_administrator_marks_the_runner(api: RegistryFixture) -> None:
    created = await create(api, ADMIN, cluster="c")
    assert get_path(created, "metadata.finalizers") == [DEPLOYMENT_FINALIZER]
    assert get_path(await create(api, ADMIN, "other"), "metadata.finalizers") is None


async def test_what_was_stored_before_is_not_marked_by_another_change(api: RegistryFixture) -> None:
    await create(api, CONTROLLER_USER, cluster="c")  # as others could before the rule
    changed = await api.patch("Runner", "r", lambda each: each["spec"].update(unusable=True), WriteOptions(ADMIN))
    assert get_path(changed, "metadata.finalizers") is None
    await api.patch("Runner", "r", lambda each: each["spec"].update(clusterRef={}), WriteOptions(ADA))
    changed = await change(api, ADMIN, cluster="c")
    assert get_path(changed, "metadata.finalizers") == [DEPLOYMENT_FINALIZER]


@pytest.mark.parametrize("ref", [{"cluster": "d"}, {"cluster": ""}, {"namespace": "other"}])
async def test_a_deployed_runner_does_not_move(api: RegistryFixture, ref: dict[str, str]) -> None:
    await create(api, ADMIN, cluster="c")
    with pytest.raises(Invalid, match="immutable while the runner is deployed"):
        await change(api, ADMIN, **ref)


@pytest.mark.parametrize(
    ("ref", "path"),
    [
        ({"namespace": "kube-system"}, "spec.clusterRef.namespace"),
        ({"namespace": "No"}, "spec.clusterRef.namespace"),
        (
            {"podTemplate": {"spec": {"volumes": [{"name": "fairlead-token"}]}}},
            "spec.clusterRef.podTemplate.spec.volumes[0].name",
        ),
    ],
)
async def test_an_invalid_cluster_ref_is_refused(api: RegistryFixture, ref: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid) as raised:
        await create(api, ADMIN, cluster="c", **ref)
    assert path in str(raised.value)


async def test_the_names_of_its_objects_fit(api: RegistryFixture) -> None:
    await create(api, ADMIN, "r" * 47, cluster="c")
    await create(api, ADMIN, "r" * 48)
    with pytest.raises(Invalid, match="at most 47 characters"):
        await create(api, ADMIN, "s" * 48, cluster="c")
