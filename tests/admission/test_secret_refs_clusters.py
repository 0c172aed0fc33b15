"""Secret references of clusters: the writer needs permission to read the Secret (T-12)."""

from base64 import b64encode

import pytest

from fairlead.admission.secret_references import check_cluster_secret
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

BOB = User("bob")
CONFIG = {"secretName": "kubeconfig", "secretNamespace": "vault"}


@pytest.fixture
def readable_secrets() -> set[tuple[str, str]]:
    """Namespaces and names of the Secrets that Bob may read. Tests add to it."""
    return set()


@pytest.fixture
def api_with_rule(api: RegistryFixture, readable_secrets: set[tuple[str, str]]) -> RegistryFixture:
    def authorize(user: User, target: RequestInfo) -> Decision:
        assert (target.verb, target.group, target.resource) == ("get", "", "secrets")
        return Decision((target.namespace, target.name) in readable_secrets)

    def find_problems(kubeconfig: bytes) -> list[str]:
        return [] if kubeconfig == b"good" else ["it is invalid; fix it"]

    return api.with_rules(check_cluster_secret(authorize, MANAGEMENT_GROUP, "service-system", find_problems))


async def test_t12_a_secret_that_the_writer_may_not_read_is_rejected(
    api_with_rule: RegistryFixture, readable_secrets: set[tuple[str, str]]
) -> None:
    body = api_with_rule.build_object("Cluster", "c", spec={"config": CONFIG})
    with pytest.raises(Forbidden, match='cannot read the secret "kubeconfig" in the namespace "vault"'):
        await api_with_rule.submit("Cluster", body, WriteOptions(BOB))
    readable_secrets.add(("vault", "kubeconfig"))
    await api_with_rule.submit("Cluster", body, WriteOptions(BOB))


async def test_t12_the_default_namespace_is_the_system_namespace(
    api_with_rule: RegistryFixture, readable_secrets: set[tuple[str, str]]
) -> None:
    readable_secrets.add(("service-system", "kubeconfig"))
    await api_with_rule.submit(
        "Cluster",
        api_with_rule.build_object("Cluster", "c", spec={"config": {"secretName": "kubeconfig"}}),
        WriteOptions(BOB),
    )


async def test_t12_an_update_is_checked_only_when_the_reference_changes(
    api_with_rule: RegistryFixture, readable_secrets: set[tuple[str, str]]
) -> None:
    readable_secrets.add(("vault", "kubeconfig"))
    await api_with_rule.submit(
        "Cluster", api_with_rule.build_object("Cluster", "c", spec={"config": CONFIG}), WriteOptions(BOB)
    )
    readable_secrets.clear()
    await api_with_rule.patch("Cluster", "c", lambda each: each["spec"].update(displayName="x"), WriteOptions(BOB))
    with pytest.raises(Forbidden):
        await api_with_rule.patch(
            "Cluster", "c", lambda each: each["spec"]["config"].update(secretName="y"), WriteOptions(BOB)
        )


async def create_and_return_warnings(api_with_rule: RegistryFixture, config: dict[str, str]) -> list[str]:
    options = WriteOptions(BOB)
    body = api_with_rule.build_object("Cluster", spec={"config": {"secretNamespace": NAMESPACE, **config}})
    body["metadata"]["generateName"] = "c-"
    await api_with_rule.submit("Cluster", body, options)
    return options.warnings


async def test_an_unusable_kubeconfig_is_accepted_with_a_warning(
    api_with_rule: RegistryFixture, readable_secrets: set[tuple[str, str]]
) -> None:
    readable_secrets |= {(NAMESPACE, "kubeconfig"), (NAMESPACE, "later")}
    data = {"config": b64encode(b"good").decode(), "odd": b64encode(b"odd").decode()}
    await api_with_rule.create("Secret", "kubeconfig", data=data)
    assert await create_and_return_warnings(api_with_rule, {"secretName": "kubeconfig"}) == []
    assert await create_and_return_warnings(api_with_rule, {"secretName": "later"}) == []
    [invalid] = await create_and_return_warnings(api_with_rule, {"secretName": "kubeconfig", "key": "odd"})
    assert invalid.endswith("cannot be used: it is invalid; fix it")
    [missing_key] = await create_and_return_warnings(api_with_rule, {"secretName": "kubeconfig", "key": "no"})
    assert 'has no key "no"' in missing_key


async def test_t12_no_warning_discloses_a_secret_that_the_writer_may_not_read(api_with_rule: RegistryFixture) -> None:
    await api_with_rule.create("Secret", "kubeconfig", data={"config": b64encode(b"odd").decode()})
    options = WriteOptions(BOB)
    body = api_with_rule.build_object(
        "Cluster", "c", spec={"config": {"secretName": "kubeconfig", "secretNamespace": NAMESPACE}}
    )
    with pytest.raises(Forbidden):
        await api_with_rule.submit("Cluster", body, options)
    assert options.warnings == []


@pytest.mark.parametrize("changes", [{"secretNamespace": {"a": 1}}, {"secretNamespace": [0]}, {"key": ["a"]}])
async def test_a_reference_of_the_wrong_type_is_invalid(
    api_with_rule: RegistryFixture, readable_secrets: set[tuple[str, str]], changes: dict[str, object]
) -> None:
    readable_secrets.add(("vault", "kubeconfig"))
    with pytest.raises(Invalid, match=rf"spec.config.{next(iter(changes))}"):
        await api_with_rule.submit(
            "Cluster", api_with_rule.build_object("Cluster", "c", spec={"config": CONFIG | changes}), WriteOptions(BOB)
        )


async def test_an_update_with_a_reference_of_the_wrong_type_is_invalid(
    api_with_rule: RegistryFixture, readable_secrets: set[tuple[str, str]]
) -> None:
    readable_secrets.add(("vault", "kubeconfig"))
    await api_with_rule.submit(
        "Cluster", api_with_rule.build_object("Cluster", "c", spec={"config": CONFIG}), WriteOptions(BOB)
    )
    with pytest.raises(Invalid, match=r"spec\.config\.secretNamespace"):
        await api_with_rule.patch(
            "Cluster", "c", lambda obj: obj["spec"]["config"].update(secretNamespace=[0]), WriteOptions(BOB)
        )
