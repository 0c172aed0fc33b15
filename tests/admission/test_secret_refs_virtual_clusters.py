"""Virtual clusters are given only Secrets that their writers may read (T-12)."""

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.secret_refs import check_virtual_cluster_secret
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

BOB = User("bob")
VC = "VirtualClusterInstance"
SPEC = {"config": {"secretName": "kubeconfig"}}


@pytest.fixture
def readable() -> set[str]:
    """Names of the Secrets that Bob may read in the namespace of the project."""
    return set()


@pytest.fixture
def ruled(api: RegistryFixture, readable: set[str]) -> RegistryFixture:
    def may(user: User, target: RequestInfo) -> Decision:
        assert (target.verb, target.group, target.resource, target.namespace) == ("get", "", "secrets", NAMESPACE)
        return Decision(target.name in readable)

    chain = AdmissionChain((check_virtual_cluster_secret(may, MANAGEMENT_GROUP),))
    registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(registry)
    return RegistryFixture(api.store, api.view, registry, api.clock)


async def test_t12_a_secret_that_the_writer_may_not_read_is_refused(ruled: RegistryFixture, readable: set[str]) -> None:
    with pytest.raises(Forbidden, match='cannot read the secret "kubeconfig"'):
        await ruled.submit(VC, ruled.body(VC, "v", spec=SPEC), WriteOptions(BOB))
    readable.add("kubeconfig")
    await ruled.submit(VC, ruled.body(VC, "v", spec=SPEC), WriteOptions(BOB))


async def test_t12_an_update_is_asked_only_when_it_points_elsewhere(ruled: RegistryFixture, readable: set[str]) -> None:
    readable.add("kubeconfig")
    await ruled.submit(VC, ruled.body(VC, "v", spec=SPEC), WriteOptions(BOB))
    readable.clear()
    await ruled.patch(VC, "v", lambda each: each["spec"].update(displayName="x"), WriteOptions(BOB))
    with pytest.raises(Forbidden):
        await ruled.patch(VC, "v", lambda each: each["spec"]["config"].update(secretName="y"), WriteOptions(BOB))


async def test_the_server_and_those_without_a_secret_are_not_asked(ruled: RegistryFixture) -> None:
    await ruled.submit(VC, ruled.body(VC, "v", spec={}), WriteOptions(BOB))
    await ruled.submit(VC, ruled.body(VC, "w", spec=SPEC), WriteOptions(CONTROLLER_USER))
