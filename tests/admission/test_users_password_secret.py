"""Secrets with password hashes: writing them requires permission to set the user's password (T-45)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fairlead.admission.users import protect_password_secret
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

WRITER, DEPUTY = User("writer"), User("deputy")
ROOT = User("root", ("system:masters",))
SCOPED_ROOT = replace(ROOT, scope=Scope(projects=("*",)))
HASH, OTHER = {"password": "aGFzaA=="}, {"password": "b3RoZXI="}


def authorize(user: User, target: RequestInfo) -> Decision:
    """Allows the deputy to impersonate every user."""
    assert (target.verb, target.resource) == ("impersonate", "users")
    return Decision(user == DEPUTY)


@pytest.fixture
async def api_with_rule(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    """The registry with this admission rule. Passwords are in the namespace `demo`; root is an administrator."""
    yield api.with_rules(protect_password_secret(authorize, {"root"}.__contains__, NAMESPACE))


async def create_secret(api: RegistryFixture, name: str, user: User, namespace: str = NAMESPACE) -> None:
    await api.submit("Secret", api.build_object("Secret", name, namespace, data=HASH), WriteOptions(user))


@pytest.mark.parametrize("user", [WRITER, SCOPED_ROOT])
async def test_t45_secret_writers_cannot_set_a_password_hash(api_with_rule: RegistryFixture, user: User) -> None:
    with pytest.raises(Forbidden, match='it holds the password of user "bob"'):
        await create_secret(api_with_rule, "bob-password", user)
    await create_secret(api_with_rule, "bob-password", CONTROLLER_USER)
    with pytest.raises(Forbidden):
        await api_with_rule.patch(
            "Secret", "bob-password", lambda secret: secret.update(data=OTHER), WriteOptions(user)
        )


async def test_t45_secret_writers_cannot_assign_a_password_to_another_user(api_with_rule: RegistryFixture) -> None:
    owner = {"apiVersion": "management.service.sh/v1", "kind": "User", "name": "bob", "uid": "1"}
    await create_secret(api_with_rule, "bob-password", CONTROLLER_USER)

    def set_owner(secret: Object) -> None:
        secret["metadata"]["ownerReferences"] = [owner]

    with pytest.raises(Forbidden):
        await api_with_rule.patch("Secret", "bob-password", set_owner, WriteOptions(WRITER))


async def test_impersonate_allows_it_except_for_administrators(api_with_rule: RegistryFixture) -> None:
    await create_secret(api_with_rule, "bob-password", DEPUTY)
    with pytest.raises(Forbidden, match='password of user "root"'):
        await create_secret(api_with_rule, "root-password", DEPUTY)
    await create_secret(api_with_rule, "root-password", ROOT)


async def test_other_secrets_and_namespaces_are_not_checked(api_with_rule: RegistryFixture) -> None:
    await api_with_rule.create("Namespace", "elsewhere")
    await create_secret(api_with_rule, "bob-passwords", WRITER)
    await create_secret(api_with_rule, "bob-password", WRITER, "elsewhere")


async def test_labels_can_change_and_the_secret_can_be_deleted(api_with_rule: RegistryFixture) -> None:
    await create_secret(api_with_rule, "bob-password", CONTROLLER_USER)
    await api_with_rule.patch(
        "Secret", "bob-password", lambda secret: secret["metadata"].update(labels={"a": "b"}), WriteOptions(WRITER)
    )
    deleted = await api_with_rule.resource("Secret").delete(
        NAMESPACE, "bob-password", DeleteOptions(), WriteOptions(WRITER)
    )
    assert deleted.is_removed
