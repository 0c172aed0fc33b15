"""Secrets and Leases of the server: their data is in no reply, and only the server writes them."""

from base64 import b64encode
from collections.abc import Callable

import pytest

from fairlead.admission.protected_fields import protect_server_leases, protect_server_secrets
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.kinds.clusters.cluster import AGENT
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.kinds.core.server_objects import MANAGED_LABEL, MANAGED_VALUE, SERVER_SECRETS
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture

ADMIN = User("root", ("system:masters",))
SCOPED = User("root", ("system:masters",), scope=Scope(projects=("*",)))
CANARY = b64encode(b"canary").decode()
OTHER = b64encode(b"other").decode()


@pytest.fixture
async def api_with_rule(api: RegistryFixture) -> RegistryFixture:
    """The registry with this admission rule and one Secret of the server."""
    fixture = api.with_rules(
        protect_server_secrets(NAMESPACE, (RUNNER_COMPONENT, AGENT)), protect_server_leases(NAMESPACE)
    )
    body = fixture.build_object("Secret", "own", type="service.sh/signing-keys", data={"k": CANARY})
    assert CANARY not in str(await fixture.submit("Secret", body, WriteOptions(CONTROLLER_USER)))
    return fixture


async def test_t26_no_reply_has_the_data_of_a_server_secret(api_with_rule: RegistryFixture) -> None:
    entry = api_with_rule.resource("Secret").get_cached("demo", "own")
    assert entry is not None and CANARY.encode() not in entry.body
    assert (api_with_rule.get("Secret", "own") or {})["data"] == {"k": CANARY}, "the server itself reads it"


def set_labels(secret: Object) -> None:
    secret["metadata"]["labels"] = {"a": "b"}


async def test_t26_a_patch_cannot_copy_the_data(api_with_rule: RegistryFixture) -> None:
    def copy_data(secret: Object) -> None:
        secret["metadata"]["annotations"] = {"x": str(secret.get("data"))}

    with pytest.raises(Forbidden):
        await api_with_rule.patch("Secret", "own", copy_data, WriteOptions(ADMIN))


@pytest.mark.parametrize("user", [ADA, ADMIN, SCOPED])
async def test_t45_users_cannot_create_or_change_server_secrets(api_with_rule: RegistryFixture, user: User) -> None:
    body = api_with_rule.build_object("Secret", "new", type="service.sh/password", data={"k": OTHER})
    with pytest.raises(Forbidden, match="for the server's own use"):
        await api_with_rule.submit("Secret", body, WriteOptions(user))
    with pytest.raises(Forbidden):
        await api_with_rule.patch("Secret", "own", lambda secret: secret.update(data={"k": OTHER}), WriteOptions(user))


@pytest.mark.parametrize("user", [ADA, ADMIN, SCOPED])
async def test_no_user_changes_the_metadata_of_server_secrets(api_with_rule: RegistryFixture, user: User) -> None:
    """An owner reference would have it garbage collected; a finalizer would keep it from being replaced."""
    for change in (
        set_labels,
        lambda secret: secret["metadata"].update(finalizers=["a.example/b"]),
        lambda secret: secret["metadata"].update(
            ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}]
        ),
        lambda secret: secret.update(immutable=True),
    ):
        with pytest.raises(Forbidden, match="only the server writes it"):
            await api_with_rule.patch("Secret", "own", change, WriteOptions(user))


async def test_an_administrator_may_write_server_secrets_back_unchanged(api_with_rule: RegistryFixture) -> None:
    """As `kubectl get secrets -o json | kubectl replace -f -` does, to encrypt all of them with another key."""
    await api_with_rule.patch("Secret", "own", lambda secret: None, WriteOptions(ADMIN))
    assert (api_with_rule.get("Secret", "own") or {})["data"] == {"k": CANARY}, "data that was not sent is kept"
    with pytest.raises(Forbidden):
        await api_with_rule.patch("Secret", "own", lambda secret: None, WriteOptions(ADA))


async def test_only_administrators_delete_server_secrets(api_with_rule: RegistryFixture) -> None:
    secrets = api_with_rule.resource("Secret")
    for user in (ADA, SCOPED):
        with pytest.raises(Forbidden, match="only administrators, with a key without a scope, may delete it"):
            await secrets.delete(NAMESPACE, "own", DeleteOptions(), WriteOptions(user))
    assert (await secrets.delete(NAMESPACE, "own", DeleteOptions(), WriteOptions(ADMIN))).is_removed


@pytest.mark.parametrize("user", [ADA, ADMIN, SCOPED])
@pytest.mark.parametrize("name", [*(each.name for each in SERVER_SECRETS), "runner-one-key", "agent-one-key"])
async def test_no_other_secret_takes_the_name_of_a_server_secret(
    api_with_rule: RegistryFixture, name: str, user: User
) -> None:
    body = api_with_rule.build_object("Secret", name, type="Opaque", data={"k": OTHER})
    with pytest.raises(Forbidden, match="only the server writes it; choose another name"):
        await api_with_rule.submit("Secret", body, WriteOptions(user))
    await api_with_rule.create("Namespace", "elsewhere")
    body = api_with_rule.build_object("Secret", name, "elsewhere", type="Opaque", data={"k": OTHER})
    await api_with_rule.submit("Secret", body, WriteOptions(user))


@pytest.mark.parametrize("type", ["Opaque", "example.com/x", "service.sh/password", "service.sh/signing-keys"])
@pytest.mark.parametrize("user", [ADA, ADMIN, SCOPED])
async def test_t45_a_secret_that_had_such_a_name_before_is_changed_by_no_one_and_deleted_by_administrators(
    api_with_rule: RegistryFixture, type: str, user: User
) -> None:
    body = api_with_rule.build_object("Secret", "signing-keys", type=type, data={"k": OTHER})
    await api_with_rule.submit("Secret", body, WriteOptions(CONTROLLER_USER))
    for edit in (set_labels, lambda secret: secret.update(data={"k": CANARY})):
        with pytest.raises(Forbidden, match="only the server writes it"):
            await api_with_rule.patch("Secret", "signing-keys", edit, WriteOptions(user))
    secrets = api_with_rule.resource("Secret")
    if user is ADMIN:
        assert (await secrets.delete(NAMESPACE, "signing-keys", DeleteOptions(), WriteOptions(user))).is_removed
        return
    with pytest.raises(Forbidden, match="only administrators"):
        await secrets.delete(NAMESPACE, "signing-keys", DeleteOptions(), WriteOptions(user))


async def test_t45_no_secret_moves_from_another_namespace_to_such_a_name(api_with_rule: RegistryFixture) -> None:
    moved = api_with_rule.build_object("Secret", "signing-keys", type="Opaque", data={"k": OTHER})
    for user in (ADA, ADMIN, SCOPED):
        with pytest.raises(Forbidden, match="only the server writes it"):
            await api_with_rule.resource("Secret").prepare_move_in(moved, WriteOptions(user))


@pytest.mark.parametrize("name", ["consumed-state-1", "exchanged-1", "fairlead-replica-one", "fairlead-controllers"])
async def test_leases_of_the_server_are_written_by_it_and_administrators(
    api_with_rule: RegistryFixture, name: str
) -> None:
    body = api_with_rule.build_object("Lease", name, spec={"holderIdentity": "x"})
    for user in (ADA, SCOPED):
        with pytest.raises(Forbidden, match="tokens and replicas"):
            await api_with_rule.submit("Lease", body, WriteOptions(user))
    await api_with_rule.submit("Lease", body, WriteOptions(CONTROLLER_USER))
    for user in (ADA, SCOPED):
        with pytest.raises(Forbidden):
            await api_with_rule.patch("Lease", name, set_labels, WriteOptions(user))
        with pytest.raises(Forbidden):
            await api_with_rule.resource("Lease").delete(NAMESPACE, name, DeleteOptions(), WriteOptions(user))
    await api_with_rule.patch("Lease", name, set_labels, WriteOptions(ADMIN))


async def test_other_leases_are_not_restricted(api_with_rule: RegistryFixture) -> None:
    body = api_with_rule.build_object("Lease", "mine", spec={"holderIdentity": "x"})
    await api_with_rule.submit("Lease", body, WriteOptions(ADA))


async def test_other_secrets_are_not_restricted(api_with_rule: RegistryFixture) -> None:
    body = api_with_rule.build_object("Secret", "mine", type="Opaque", data={"k": CANARY})
    assert (await api_with_rule.submit("Secret", body, WriteOptions(ADA)))["data"] == {"k": CANARY}


async def test_only_the_server_changes_a_kubeconfig_that_it_has_stored(api_with_rule: RegistryFixture) -> None:
    """Users who may write Secrets in a project must not send the requests of all users to another server."""
    meta = {"labels": {MANAGED_LABEL: MANAGED_VALUE}}
    body = api_with_rule.build_object("Secret", "vc-v-kubeconfig", data={"config": CANARY}, metadata=meta)
    await api_with_rule.submit("Secret", body, WriteOptions(CONTROLLER_USER))
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}]
    edits: tuple[Callable[[Object], None], ...] = (
        lambda secret: secret.update(data={"config": OTHER}),
        lambda secret: secret.update(immutable=True),
        lambda secret: secret["metadata"].update(ownerReferences=owners),
    )
    for edit in edits:
        with pytest.raises(Forbidden, match="store it in a Secret of your own"):
            await api_with_rule.patch("Secret", "vc-v-kubeconfig", edit, WriteOptions(ADA))
    note = {"annotations": {"a": "b"}}
    await api_with_rule.patch(
        "Secret", "vc-v-kubeconfig", lambda each: each["metadata"].update(note), WriteOptions(ADA)
    )
    new = {"config": OTHER}
    for user in (CONTROLLER_USER, ADMIN):
        await api_with_rule.patch("Secret", "vc-v-kubeconfig", lambda each: each.update(data=new), WriteOptions(user))
    await api_with_rule.resource("Secret").delete(NAMESPACE, "vc-v-kubeconfig", DeleteOptions(), WriteOptions(ADA))
