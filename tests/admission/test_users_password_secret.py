"""Who can write Secrets cannot set passwords by that: what is kept there is for those who may set them (T-45)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.users import protect_password_secret
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

WRITER, DEPUTY = User("writer"), User("deputy")
ROOT = User("root", ("system:masters",))
SCOPED_ROOT = replace(ROOT, scope=Scope(projects=("*",)))
HASH, OTHER = {"password": "aGFzaA=="}, {"password": "b3RoZXI="}


def may(user: User, target: RequestInfo) -> Decision:
    """The deputy may impersonate everybody."""
    assert (target.verb, target.resource) == ("impersonate", "users")
    return Decision(user == DEPUTY)


@pytest.fixture
async def ruled(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    """The world under the rule, where passwords are kept in the namespace `demo` and Root is an administrator."""
    chain = AdmissionChain((protect_password_secret(may, {"root"}.__contains__, NAMESPACE),))
    registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(registry)
    yield RegistryFixture(api.store, api.view, registry, api.clock)


async def keep(api: RegistryFixture, name: str, user: User, namespace: str = NAMESPACE) -> None:
    await api.submit("Secret", api.body("Secret", name, namespace, data=HASH), WriteOptions(user))


@pytest.mark.parametrize("user", [WRITER, SCOPED_ROOT])
async def test_t45_nobody_puts_a_hash_in_the_place_of_a_password(ruled: RegistryFixture, user: User) -> None:
    with pytest.raises(Forbidden, match='it holds the password of user "bob"'):
        await keep(ruled, "bob-password", user)
    await keep(ruled, "bob-password", CONTROLLER_USER)
    with pytest.raises(Forbidden):
        await ruled.patch("Secret", "bob-password", lambda secret: secret.update(data=OTHER), WriteOptions(user))


async def test_t45_nobody_makes_an_old_password_that_of_somebody_else(ruled: RegistryFixture) -> None:
    owner = {"apiVersion": "management.service.sh/v1", "kind": "User", "name": "bob", "uid": "1"}
    await keep(ruled, "bob-password", CONTROLLER_USER)

    def claim(secret: Object) -> None:
        secret["metadata"]["ownerReferences"] = [owner]

    with pytest.raises(Forbidden):
        await ruled.patch("Secret", "bob-password", claim, WriteOptions(WRITER))


async def test_who_may_impersonate_a_user_may_but_not_for_administrators(ruled: RegistryFixture) -> None:
    await keep(ruled, "bob-password", DEPUTY)
    with pytest.raises(Forbidden, match='password of user "root"'):
        await keep(ruled, "root-password", DEPUTY)
    await keep(ruled, "root-password", ROOT)


async def test_other_secrets_and_other_namespaces_are_not_concerned(ruled: RegistryFixture) -> None:
    await ruled.create("Namespace", "elsewhere")
    await keep(ruled, "bob-passwords", WRITER)
    await keep(ruled, "bob-password", WRITER, "elsewhere")


async def test_labels_can_be_changed_and_the_whole_of_it_deleted(ruled: RegistryFixture) -> None:
    await keep(ruled, "bob-password", CONTROLLER_USER)
    await ruled.patch(
        "Secret", "bob-password", lambda secret: secret["metadata"].update(labels={"a": "b"}), WriteOptions(WRITER)
    )
    deleted = await ruled.of("Secret").delete(NAMESPACE, "bob-password", DeleteOptions(), WriteOptions(WRITER))
    assert deleted.is_removed
