"""Tests of `fairlead.controllers.instances.import_sources`: where an imported virtual cluster runs."""

import asyncio
from typing import Any

import pytest

from fairlead.controllers.instances.import_sources import RECHECK_SECONDS
from fairlead.controllers.instances.templates import InstanceTemplateController
from fairlead.core.objects import get_path
from fairlead.registry.conditions import find_condition
from tests.controllers.instances.helm_fixture import KUBECONFIG, VC, FakeHelm, access, helm, server, wait_until_ready
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.instance_controllers import build_virtual_cluster_controller
from tests.harness.registry import RegistryFixture
from tests.harness.remote import (
    INSTANCE_CONFIG,
    PROJECT,
    FakeAccess,
    condition_message,
    condition_status,
    create_cluster,
    encode_base64,
)

__all__ = ["access", "helm", "server"]

SOURCE = "/api/v1/namespaces/vc-ns/secrets/vc-theirs"
ANNOTATION = "service.sh/import-source"
WRITER_ANNOTATION = "service.sh/import-source-writer"
OTHER = KUBECONFIG.replace(b"inner-token", b"another-token")


async def import_instance(
    server: RegistryFixture, source: str, content: bytes = KUBECONFIG, writer: str = "ada"
) -> None:
    await create_cluster(server)
    await server.create("Secret", "theirs", data={"config": encode_base64(content)})
    annotations = {ANNOTATION: source, **({WRITER_ANNOTATION: writer} if writer else {})}
    await server.create(VC, "one", metadata={"annotations": annotations}, spec={"config": {"secretName": "theirs"}})


def imported_from(server: RegistryFixture) -> Any:
    return get_path(server.get(VC, "one"), "status.importedFrom")


async def test_the_kubeconfig_that_the_chart_wrote_proves_where_it_runs(
    server: RegistryFixture, access: FakeAccess
) -> None:
    # The same credential in another form counts, too.
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG.replace(b"name: x", b"name:  x"))})
    await import_instance(server, "c/vc-ns/theirs")
    await wait_until_ready(server, access)
    found = imported_from(server)
    assert (found["cluster"], found["namespace"], found["name"]) == ("c", "vc-ns", "theirs")
    assert found["secretUID"] == access.kube.objects[SOURCE]["metadata"]["uid"]
    assert condition_status(server, VC, "VirtualClusterSynced") == ("True", "Synced")
    await eventually(lambda: get_path(server.get(VC, "one"), "status.phase") == "Ready")
    # Each start of the virtual cluster may write the Secret anew: it stays the same object.
    access.kube.objects[SOURCE]["data"] = {"config": encode_base64(OTHER)}
    await asyncio.sleep(2 * RECHECK_SECONDS)
    assert imported_from(server) == found
    reads = [each for each in access.kube.request_log if each == ("GET", SOURCE)]
    assert len(reads) <= 4


@pytest.mark.parametrize(
    ("source", "theirs", "reason"),
    [
        ("c/vc-ns/theirs", OTHER, "SourceMismatch"),
        ("c/vc-ns/theirs", b"no kubeconfig", "SourceMismatch"),
        ("c/vc-ns/theirs", b"", "SourceMismatch"),
        ("c/vc-ns", b"", "InvalidImportSource"),
    ],
)
async def test_another_kubeconfig_proves_nothing(
    server: RegistryFixture, access: FakeAccess, source: str, theirs: bytes, reason: str
) -> None:
    if theirs:
        access.kube.add_object(SOURCE, data={"config": encode_base64(theirs)})
    access.virtual_down = None
    await import_instance(server, source)
    await eventually(lambda: condition_status(server, VC, "VirtualClusterSynced") == ("False", reason))
    assert "token" not in condition_message(server, VC, "VirtualClusterSynced")
    assert imported_from(server) is None
    assert get_path(server.get(VC, "one"), "status.phase") != "Ready"


async def test_without_the_kubeconfig_nothing_tells_whether_the_secret_exists(
    server: RegistryFixture, access: FakeAccess
) -> None:
    await import_instance(server, "c/vc-ns/theirs")
    await eventually(lambda: condition_status(server, VC, "VirtualClusterSynced")[0] == "False")
    missing = find_condition(get_path(server.get(VC, "one"), "status"), "VirtualClusterSynced")
    access.kube.add_object(SOURCE, data={"config": encode_base64(OTHER)})
    before = len(access.kube.request_log)
    await eventually(lambda: ("GET", SOURCE) in access.kube.request_log[before:], seconds=3 * RECHECK_SECONDS)
    await asyncio.sleep(1)
    assert find_condition(get_path(server.get(VC, "one"), "status"), "VirtualClusterSynced") == missing


async def test_that_the_secret_of_a_verified_import_is_gone_is_reported(
    server: RegistryFixture, access: FakeAccess
) -> None:
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG)})
    await import_instance(server, "c/vc-ns/theirs")
    await wait_until_ready(server, access)
    del access.kube.objects[SOURCE]
    is_reported = lambda: condition_status(server, VC, "VirtualClusterSynced") == ("False", "SourceNotFound")  # noqa: E731
    await eventually(is_reported, seconds=3 * RECHECK_SECONDS)
    assert imported_from(server)


async def test_a_source_counts_no_longer_for_another_kubeconfig_or_secret(
    server: RegistryFixture, access: FakeAccess
) -> None:
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG)})
    await import_instance(server, "c/vc-ns/theirs")
    await wait_until_ready(server, access)
    assert imported_from(server)
    changed = {"config": encode_base64(OTHER)}
    await server.patch("Secret", "theirs", lambda obj: obj.update(data=changed))
    await eventually(lambda: imported_from(server) is None, seconds=3 * RECHECK_SECONDS)
    assert condition_status(server, VC, "VirtualClusterSynced") == ("False", "SourceMismatch")
    await eventually(lambda: (PROJECT, "one") in access.closed)  # what is open through the tunnel ends
    access.kube.objects[SOURCE]["data"] = changed
    await eventually(lambda: bool(imported_from(server)), seconds=3 * RECHECK_SECONDS)
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG)})  # deleted and created again
    await eventually(lambda: imported_from(server) is None, seconds=3 * RECHECK_SECONDS)


async def test_without_the_annotation_there_is_no_source(server: RegistryFixture, access: FakeAccess) -> None:
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG)})
    await import_instance(server, "c/vc-ns/theirs")
    await wait_until_ready(server, access)
    await server.patch(VC, "one", lambda obj: obj["metadata"]["annotations"].pop(ANNOTATION))
    await eventually(lambda: imported_from(server) is None, seconds=3 * RECHECK_SECONDS)


async def test_a_cluster_that_cannot_be_reached_now_does_not_end_it(
    server: RegistryFixture, access: FakeAccess
) -> None:
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG)})
    await import_instance(server, "c/vc-ns/theirs")
    await wait_until_ready(server, access)
    access.kube.failing_paths["vc-theirs"] = 500
    is_reported = lambda: condition_status(server, VC, "VirtualClusterSynced")[0] == "False"  # noqa: E731
    await eventually(is_reported, seconds=3 * RECHECK_SECONDS)
    assert imported_from(server)
    access.kube.failing_paths.clear()
    is_synced = lambda: condition_status(server, VC, "VirtualClusterSynced") == ("True", "Synced")  # noqa: E731
    await eventually(is_synced, seconds=3 * RECHECK_SECONDS)


async def test_a_source_counts_while_the_user_who_has_set_it_may_use_the_cluster(
    api: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    allowed = {("ada", "c")}
    controller = build_virtual_cluster_controller(
        api, access, helm, may_use_cluster=lambda writer, cluster: (writer, cluster) in allowed
    )
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG)})
    async with running_controllers(api, InstanceTemplateController(api.registry, INSTANCE_CONFIG), controller):
        await import_instance(api, "c/vc-ns/theirs")
        await wait_until_ready(api, access)
        assert imported_from(api)
        allowed.clear()
        await eventually(lambda: imported_from(api) is None, seconds=3 * RECHECK_SECONDS)
        await eventually(lambda: condition_status(api, VC, "VirtualClusterSynced") == ("False", "SourceNotAllowed"))
        assert 'user "ada", who has set it, may not use' in condition_message(api, VC, "VirtualClusterSynced")
        assert (PROJECT, "one") in access.closed
        allowed.add(("ada", "c"))
        await eventually(lambda: bool(imported_from(api)), seconds=3 * RECHECK_SECONDS)


async def test_a_source_of_which_no_one_knows_who_has_set_it_does_not_count(
    server: RegistryFixture, access: FakeAccess
) -> None:
    access.kube.add_object(SOURCE, data={"config": encode_base64(KUBECONFIG)})
    await import_instance(server, "c/vc-ns/theirs", writer="")
    await eventually(lambda: condition_status(server, VC, "VirtualClusterSynced") == ("False", "SourceNotAllowed"))
    assert ("GET", SOURCE) not in access.kube.request_log
    assert imported_from(server) is None
