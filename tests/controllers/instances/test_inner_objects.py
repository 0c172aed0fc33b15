"""Tests of `fairlead.controllers.instances.inner_objects`: the objects of a template inside a virtual cluster."""

import asyncio
from typing import Any

import pytest

from fairlead.controllers.instances.inner_objects import RESYNC_SECONDS
from fairlead.core.objects import get_path
from tests.controllers.instances.helm_fixture import (
    RELEASE,
    VC,
    FakeHelm,
    access,
    create_from_template,
    helm,
    server,
    wait_until_ready,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import PROJECT, TRUSTED, FakeAccess, condition_message, condition_status, create_cluster

__all__ = ["access", "helm", "server"]

SYNCED = "VirtualClusterAppsAndObjectsSynced"
CONFIG_MAP = "/api/v1/namespaces/team/configmaps/about"
DEFAULT = "/api/v1/namespaces/default/configmaps/plain"
OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: about, namespace: team}
data: {owner: "{{ owner }}", project: "{{ project }}", name: "{{ name }}", namespace: "{{ namespace }}"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plain}
"""


async def create(server: RegistryFixture, objects: str, **template: Any) -> None:
    await create_cluster(server)
    await create_from_template(server, {**RELEASE, "objects": objects, **template})


async def change_template(server: RegistryFixture, **changes: Any) -> None:
    await server.patch("VirtualClusterTemplate", "t", lambda obj: obj["spec"]["template"].update(changes))
    await server.patch(VC, "one", lambda obj: obj["spec"]["templateRef"].update(syncOnce=True))


async def test_objects_are_applied_inside_in_any_namespace(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create(server, OBJECTS)
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, SYNCED) == ("True", "Synced"))
    assert "3 objects" in condition_message(server, VC, SYNCED)
    applied = access.virtual.objects[CONFIG_MAP]
    expected = {"owner": "ada", "project": PROJECT, "name": "one", "namespace": "demo-v-one"}
    assert applied["data"] == expected
    assert applied["metadata"]["labels"]["service.sh/virtual-cluster"] == "one"
    assert "namespace" not in access.virtual.objects["/api/v1/namespaces/team"]["metadata"]
    assert DEFAULT in access.virtual.objects
    assert CONFIG_MAP not in access.kube.objects
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Ready")


async def test_objects_that_the_template_drops_are_deleted(server: RegistryFixture, access: FakeAccess) -> None:
    await create(server, OBJECTS)
    await wait_until_ready(server, access)
    await eventually(lambda: DEFAULT in access.virtual.objects)
    access.virtual.add_object("/api/v1/namespaces/default/configmaps/theirs")
    await change_template(server, objects=OBJECTS.rpartition("---")[0])
    await eventually(lambda: DEFAULT not in access.virtual.objects)
    assert CONFIG_MAP in access.virtual.objects
    await change_template(server, objects="")
    await eventually(lambda: CONFIG_MAP not in access.virtual.objects)
    assert "/api/v1/namespaces/default/configmaps/theirs" in access.virtual.objects
    await eventually(lambda: not get_path(server.get(VC, "one"), "status.virtualClusterObjects.lastAppliedObjects"))


async def test_objects_of_others_with_the_same_name_are_not_deleted(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create(server, OBJECTS)
    await wait_until_ready(server, access)
    await eventually(lambda: DEFAULT in access.virtual.objects)
    access.virtual.edit_object(DEFAULT, lambda obj: obj["metadata"].pop("labels"))
    await change_template(server, objects=OBJECTS.rpartition("---")[0])
    await asyncio.sleep(RESYNC_SECONDS)
    assert DEFAULT in access.virtual.objects


async def test_an_unchanged_template_is_applied_again_now_and_then(server: RegistryFixture, access: FakeAccess) -> None:
    await create(server, OBJECTS)
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, SYNCED) == ("True", "Synced"))
    del access.virtual.objects[DEFAULT]
    before = len([each for each in access.virtual.request_log if each[0] == "PATCH" and "configmaps" in each[1]])
    await eventually(lambda: DEFAULT in access.virtual.objects, seconds=3 * RESYNC_SECONDS)
    await asyncio.sleep(RESYNC_SECONDS / 3)
    patches = [each for each in access.virtual.request_log if each[0] == "PATCH" and "configmaps" in each[1]]
    assert len(patches) - before == 2


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ("kind: Nameless", "InvalidTemplateObjects"),
        ("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}", "KindNotServed"),
        (
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n"
            "metadata: {name: 'service.sh:cluster-admin'}",
            "InvalidTemplateObjects",
        ),
    ],
)
async def test_objects_that_cannot_be_applied_are_reported_and_the_others_applied(
    server: RegistryFixture, access: FakeAccess, objects: str, reason: str
) -> None:
    is_parsed = "Nameless" not in objects
    await create(server, f"{OBJECTS}---\n{objects}")
    await wait_until_ready(server, access)
    await eventually(lambda: condition_status(server, VC, SYNCED) == ("False", reason))
    assert (CONFIG_MAP in access.virtual.objects) == is_parsed
    assert get_path(server.get(VC, "one"), "status.phase") != "Ready"
    await change_template(server, objects=OBJECTS)
    await eventually(lambda: condition_status(server, VC, SYNCED) == ("True", "Synced"))
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Ready")


async def test_the_condition_of_objects_that_cannot_be_applied_is_written_once(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await create(server, "kind: Nameless")
    await wait_until_ready(server, access)
    await eventually(lambda: condition_message(server, VC, SYNCED).startswith("not deployed: objects: "))
    await asyncio.sleep(60)
    before = (server.get(VC, "one") or {})["metadata"]["resourceVersion"]
    await asyncio.sleep(120)
    assert (server.get(VC, "one") or {})["metadata"]["resourceVersion"] == before


async def test_nothing_is_applied_in_an_imported_virtual_cluster(server: RegistryFixture, access: FakeAccess) -> None:
    await create_cluster(server)
    await server.create("VirtualClusterTemplate", "t", metadata=TRUSTED, spec={"template": {"objects": OBJECTS}})
    spec = {"owner": {"user": "ada"}, "templateRef": {"name": "t"}, "config": {"secretName": "theirs"}}
    await server.create(VC, "one", spec=spec)
    await wait_until_ready(server, access)
    await asyncio.sleep(60)
    assert CONFIG_MAP not in access.virtual.objects
