"""Clusters are given only Secrets that their writers may read (T-12)."""

from base64 import b64encode

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.secret_refs import check_cluster_secret
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

BOB = User("bob")
CONFIG = {"secretName": "kubeconfig", "secretNamespace": "vault"}


@pytest.fixture
def readable() -> set[tuple[str, str]]:
    """Namespaces and names of the Secrets that Bob may read."""
    return set()


@pytest.fixture
def ruled(api: RegistryFixture, readable: set[tuple[str, str]]) -> RegistryFixture:
    def may(user: User, target: RequestInfo) -> Decision:
        assert (target.verb, target.group, target.resource) == ("get", "", "secrets")
        return Decision((target.namespace, target.name) in readable)

    def problems(kubeconfig: bytes) -> list[str]:
        return [] if kubeconfig == b"good" else ["it is odd; mend it"]

    chain = AdmissionChain((check_cluster_secret(may, MANAGEMENT_GROUP, "service-system", problems),))
    registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(registry)
    return RegistryFixture(api.store, api.view, registry, api.clock)


async def test_t12_a_secret_that_the_writer_may_not_read_is_refused(
    ruled: RegistryFixture, readable: set[tuple[str, str]]
) -> None:
    body = ruled.body("Cluster", "c", spec={"config": CONFIG})
    with pytest.raises(Forbidden, match='cannot read the secret "kubeconfig" in the namespace "vault"'):
        await ruled.submit("Cluster", body, WriteOptions(BOB))
    readable.add(("vault", "kubeconfig"))
    await ruled.submit("Cluster", body, WriteOptions(BOB))


async def test_t12_without_a_namespace_it_is_the_servers_own(
    ruled: RegistryFixture, readable: set[tuple[str, str]]
) -> None:
    readable.add(("service-system", "kubeconfig"))
    await ruled.submit(
        "Cluster", ruled.body("Cluster", "c", spec={"config": {"secretName": "kubeconfig"}}), WriteOptions(BOB)
    )


async def test_t12_an_update_is_asked_only_when_it_points_elsewhere(
    ruled: RegistryFixture, readable: set[tuple[str, str]]
) -> None:
    readable.add(("vault", "kubeconfig"))
    await ruled.submit("Cluster", ruled.body("Cluster", "c", spec={"config": CONFIG}), WriteOptions(BOB))
    readable.clear()
    await ruled.patch("Cluster", "c", lambda each: each["spec"].update(displayName="x"), WriteOptions(BOB))
    with pytest.raises(Forbidden):
        await ruled.patch("Cluster", "c", lambda each: each["spec"]["config"].update(secretName="y"), WriteOptions(BOB))


async def warned(ruled: RegistryFixture, config: dict[str, str]) -> list[str]:
    writing = WriteOptions(BOB)
    body = ruled.body("Cluster", spec={"config": {"secretNamespace": NAMESPACE, **config}})
    body["metadata"]["generateName"] = "c-"
    await ruled.submit("Cluster", body, writing)
    return writing.warnings


async def test_a_kubeconfig_that_cannot_be_used_is_warned_about_and_taken(
    ruled: RegistryFixture, readable: set[tuple[str, str]]
) -> None:
    readable |= {(NAMESPACE, "kubeconfig"), (NAMESPACE, "later")}
    data = {"config": b64encode(b"good").decode(), "odd": b64encode(b"odd").decode()}
    await ruled.create("Secret", "kubeconfig", data=data)
    assert await warned(ruled, {"secretName": "kubeconfig"}) == []
    assert await warned(ruled, {"secretName": "later"}) == []
    [odd] = await warned(ruled, {"secretName": "kubeconfig", "key": "odd"})
    assert odd.endswith("cannot be used: it is odd; mend it")
    [missing] = await warned(ruled, {"secretName": "kubeconfig", "key": "no"})
    assert 'has no key "no"' in missing


async def test_t12_nothing_is_said_about_a_secret_that_the_writer_may_not_read(ruled: RegistryFixture) -> None:
    await ruled.create("Secret", "kubeconfig", data={"config": b64encode(b"odd").decode()})
    writing = WriteOptions(BOB)
    body = ruled.body("Cluster", "c", spec={"config": {"secretName": "kubeconfig", "secretNamespace": NAMESPACE}})
    with pytest.raises(Forbidden):
        await ruled.submit("Cluster", body, writing)
    assert writing.warnings == []


@pytest.mark.parametrize("wrong", [{"secretNamespace": {"a": 1}}, {"secretNamespace": [0]}, {"key": ["a"]}])
async def test_a_reference_of_the_wrong_type_is_invalid(
    ruled: RegistryFixture, readable: set[tuple[str, str]], wrong: dict[str, object]
) -> None:
    readable.add(("vault", "kubeconfig"))
    with pytest.raises(Invalid, match=rf"spec.config.{next(iter(wrong))}"):
        await ruled.submit("Cluster", ruled.body("Cluster", "c", spec={"config": CONFIG | wrong}), WriteOptions(BOB))


async def test_an_update_with_a_reference_of_the_wrong_type_is_invalid(
    ruled: RegistryFixture, readable: set[tuple[str, str]]
) -> None:
    readable.add(("vault", "kubeconfig"))
    await ruled.submit("Cluster", ruled.body("Cluster", "c", spec={"config": CONFIG}), WriteOptions(BOB))
    with pytest.raises(Invalid, match=r"spec\.config\.secretNamespace"):
        await ruled.patch(
            "Cluster", "c", lambda obj: obj["spec"]["config"].update(secretNamespace=[0]), WriteOptions(BOB)
        )
