"""admission/sign_in_settings.py: only administrators repoint a cluster that a trust rule names."""

from base64 import b64encode

import pytest

from fairlead.admission.sign_in_settings import protect_trusted_clusters
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE, RegistryFixture

ADMIN, EDITOR = User("root", ("service:admins",)), User("editor")
SCOPED_ADMIN = User("root", ("service:admins",), scope=Scope.parse({"roles": [{"role": "x"}]}))
OTHERS = pytest.mark.parametrize("user", [EDITOR, SCOPED_ADMIN], ids=["editor", "scoped"])
TRUSTED_WRITERS = pytest.mark.parametrize("user", [ADMIN, CONTROLLER_USER], ids=["admin", "server"])
TRUST: Object = {"audience": "a", "rules": [{"name": "ci", "issuer": "https://ci.example"}, {"cluster": "oslo"}]}


def data(text: str) -> dict[str, str]:
    return {"config": b64encode(text.encode()).decode()}


@pytest.fixture
async def guarded(api: RegistryFixture) -> RegistryFixture:
    for name in ("own", "evil", "other"):
        await api.create("Secret", name, NAMESPACE, data=data(name))
    for cluster, secret in (("oslo", "own"), ("rome", "other")):
        # NAMESPACE is also the default namespace: the reference to the first Secret does not name it.
        await api.create("Cluster", cluster, spec={"config": {"secretName": secret}})
    return api.with_rules(protect_trusted_clusters(GROUP, NAMESPACE, lambda: TRUST))


async def repoint(api: RegistryFixture, cluster: str, user: User) -> None:
    await api.patch("Cluster", cluster, lambda obj: obj["spec"]["config"].update(secretName="evil"), WriteOptions(user))


async def overwrite(api: RegistryFixture, secret: str, user: User) -> None:
    await api.patch("Secret", secret, lambda obj: obj.update(data=data("evil")), WriteOptions(user))


@OTHERS
async def test_others_cannot_repoint_a_trusted_cluster(guarded: RegistryFixture, user: User) -> None:
    with pytest.raises(Forbidden, match=r'trusts tokens of cluster "oslo".* may change spec\.config'):
        await repoint(guarded, "oslo", user)


@OTHERS
async def test_others_cannot_write_the_secret_of_a_trusted_cluster(guarded: RegistryFixture, user: User) -> None:
    with pytest.raises(Forbidden, match=r'trusts tokens of cluster "oslo".* may change the content of this secret'):
        await overwrite(guarded, "own", user)


@TRUSTED_WRITERS
async def test_administrators_and_the_server_can_do_both(guarded: RegistryFixture, user: User) -> None:
    await overwrite(guarded, "own", user)
    await repoint(guarded, "oslo", user)


async def test_others_cannot_create_what_was_deleted_again(guarded: RegistryFixture) -> None:
    await guarded.delete("Secret", "own")
    secret = guarded.build_object("Secret", "own", NAMESPACE, data=data("evil"))
    with pytest.raises(Forbidden):
        await guarded.submit("Secret", secret, WriteOptions(EDITOR))
    await guarded.delete("Cluster", "oslo")
    cluster = guarded.build_object("Cluster", "oslo", spec={"config": {"secretName": "evil"}})
    with pytest.raises(Forbidden):
        await guarded.submit("Cluster", cluster, WriteOptions(EDITOR))


async def test_others_can_change_everything_else(guarded: RegistryFixture) -> None:
    await repoint(guarded, "rome", EDITOR)
    await overwrite(guarded, "other", EDITOR)
    options = WriteOptions(EDITOR)
    await guarded.patch("Cluster", "oslo", lambda obj: obj["spec"].update(displayName="Oslo"), options)
    labels = {"team": "web"}
    await guarded.patch("Secret", "own", lambda obj: obj["metadata"].update(labels=labels), options)
