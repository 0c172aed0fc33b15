"""Secret references of virtual clusters: the writer needs permission to read the Secret (T-12)."""

from base64 import b64encode

import pytest

from fairlead.admission.secret_references import check_virtual_cluster_secret
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

BOB = User("bob")
VC = "VirtualClusterInstance"
SPEC = {"config": {"secretName": "kubeconfig"}}


@pytest.fixture
def readable_secrets() -> set[str]:
    """Names of the Secrets that Bob may read in the namespace of the project. Tests add to it."""
    return set()


@pytest.fixture
def api_with_rule(api: RegistryFixture, readable_secrets: set[str]) -> RegistryFixture:
    def authorize(user: User, target: RequestInfo) -> Decision:
        assert (target.verb, target.group, target.resource, target.namespace) == ("get", "", "secrets", NAMESPACE)
        return Decision(target.name in readable_secrets)

    def check_kubeconfig(content: bytes) -> list[str]:
        return [] if content == b"good" else ["it is invalid; fix it"]

    return api.with_rules(check_virtual_cluster_secret(authorize, MANAGEMENT_GROUP, check_kubeconfig))


async def test_t12_a_secret_that_the_writer_may_not_read_is_rejected(
    api_with_rule: RegistryFixture, readable_secrets: set[str]
) -> None:
    with pytest.raises(Forbidden, match='cannot read the secret "kubeconfig"'):
        await api_with_rule.submit(VC, api_with_rule.build_object(VC, "v", spec=SPEC), WriteOptions(BOB))
    readable_secrets.add("kubeconfig")
    await api_with_rule.submit(VC, api_with_rule.build_object(VC, "v", spec=SPEC), WriteOptions(BOB))


async def test_t12_an_update_is_checked_only_when_the_reference_changes(
    api_with_rule: RegistryFixture, readable_secrets: set[str]
) -> None:
    readable_secrets.add("kubeconfig")
    await api_with_rule.submit(VC, api_with_rule.build_object(VC, "v", spec=SPEC), WriteOptions(BOB))
    readable_secrets.clear()
    await api_with_rule.patch(VC, "v", lambda each: each["spec"].update(displayName="x"), WriteOptions(BOB))
    with pytest.raises(Forbidden):
        await api_with_rule.patch(
            VC, "v", lambda each: each["spec"]["config"].update(secretName="y"), WriteOptions(BOB)
        )


async def test_the_server_and_specs_without_a_secret_are_not_checked(api_with_rule: RegistryFixture) -> None:
    await api_with_rule.submit(VC, api_with_rule.build_object(VC, "v", spec={}), WriteOptions(BOB))
    await api_with_rule.submit(VC, api_with_rule.build_object(VC, "w", spec=SPEC), WriteOptions(CONTROLLER_USER))


@pytest.mark.parametrize(("content", "is_usable"), [(b"good", True), (b"anything", False)])
async def test_an_unusable_kubeconfig_is_accepted_with_a_warning(
    api_with_rule: RegistryFixture, readable_secrets: set[str], content: bytes, is_usable: bool
) -> None:
    readable_secrets.add("kubeconfig")
    await api_with_rule.create("Secret", "kubeconfig", data={"config": b64encode(content).decode()})
    options = WriteOptions(BOB)
    await api_with_rule.submit(VC, api_with_rule.build_object(VC, "v", spec=SPEC), options)
    assert [each.endswith("cannot be used: it is invalid; fix it") for each in options.warnings] == [True] * (
        not is_usable
    )
