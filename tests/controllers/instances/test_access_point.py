"""Tests of `fairlead.controllers.instances.access_point`: an Ingress with TLS passthrough, and what the status says."""

import pytest

from fairlead.core.objects import Object, get_path
from tests.controllers.instances.helm_fixture import (
    NAMESPACE_PATH,
    RELEASE,
    VC,
    FakeHelm,
    access,
    create_from_template,
    create_virtual_cluster,
    helm,
    server,
    wait_until_ready,
)
from tests.harness.eventually import eventually
from tests.harness.registry import RegistryFixture
from tests.harness.remote import FakeAccess, condition_message, condition_status, create_cluster

__all__ = ["access", "helm", "server"]
INGRESS = "/apis/networking.k8s.io/v1/namespaces/demo-v-one/ingresses/one-access-point"
WITH_INGRESS = {**RELEASE, "accessPoint": {"ingress": {"enabled": True}}}


async def set_suffix(server: RegistryFixture, suffix: str) -> None:
    def annotate(cluster: Object) -> None:
        cluster["metadata"]["annotations"] = {"service.sh/ingress-suffix": suffix}

    await server.patch("Cluster", "c", annotate)


def access_point(server: RegistryFixture) -> Object | None:
    found: Object | None = get_path(server.get(VC, "one"), "status.accessPoint")
    return found


async def test_an_ingress_passes_tls_through_to_the_service_of_the_release(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await set_suffix(server, "vc.example.com")
    await create_from_template(server, WITH_INGRESS)
    await wait_until_ready(server, access)
    ingress = access.kube.objects[INGRESS]
    host = "demo-v-one.vc.example.com"
    assert [each["host"] for each in ingress["spec"]["rules"]] == [host]
    assert ingress["spec"]["tls"] == [{"hosts": [host]}]
    backend = get_path(ingress["spec"]["rules"][0]["http"]["paths"][0], "backend.service")
    assert backend == {"name": "one", "port": {"number": 443}}
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/ssl-passthrough"] == "true"
    assert access_point(server) == {"url": f"https://{host}", "certificateAuthority": "", "acceptsTokens": False}

    await set_suffix(server, "other.example.com")
    await eventually(lambda: get_path(server.get(VC, "one"), "status.accessPoint.url").endswith(".other.example.com"))
    assert access.kube.objects[INGRESS]["spec"]["rules"][0]["host"] == "demo-v-one.other.example.com"


async def test_an_ingress_that_the_template_drops_is_deleted(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await set_suffix(server, "vc.example.com")
    await create_virtual_cluster(server, template=WITH_INGRESS)
    await wait_until_ready(server, access)
    assert INGRESS in access.kube.objects
    await server.patch(VC, "one", lambda each: each["spec"].update(template=RELEASE))
    await eventually(lambda: INGRESS not in access.kube.objects)
    await eventually(lambda: access_point(server) is None)


@pytest.mark.parametrize(("suffix", "reason"), [("", "IngressSuffixNotSet"), ("No Domain", "InvalidIngressSuffix")])
async def test_a_cluster_without_a_domain_is_named(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm, suffix: str, reason: str
) -> None:
    await create_cluster(server)
    await set_suffix(server, suffix)
    await create_from_template(server, WITH_INGRESS)
    await eventually(lambda: condition_status(server, VC, "SpaceSynced") == ("False", reason))
    assert 'annotate cluster "c" with service.sh/ingress-suffix=' in condition_message(server, VC, "SpaceSynced")
    assert NAMESPACE_PATH not in access.kube.objects
    await set_suffix(server, "vc.example.com")
    await wait_until_ready(server, access)


async def test_the_status_says_whether_tokens_are_accepted(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await set_suffix(server, "vc.example.com")
    await create_from_template(server, {**WITH_INGRESS, "forwardToken": True})
    await wait_until_ready(server, access)
    assert (access_point(server) or {})["acceptsTokens"] is True
    assert "forwardToken" not in condition_message(server, VC, "VirtualClusterSynced")


async def test_a_condition_says_that_no_token_is_forwarded(
    server: RegistryFixture, access: FakeAccess, helm: FakeHelm
) -> None:
    await create_cluster(server)
    await set_suffix(server, "vc.example.com")
    await create_virtual_cluster(server, template={**WITH_INGRESS, "forwardToken": True})
    await wait_until_ready(server, access)
    assert (access_point(server) or {})["acceptsTokens"] is False
    assert "forwardToken has no effect: only an" in condition_message(server, VC, "VirtualClusterSynced")
