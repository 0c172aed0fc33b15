"""What the server keeps for itself: in no answer, and written by the server alone."""

from base64 import b64encode

import pytest

from fairlead.admission import AdmissionChain
from fairlead.admission.protected_fields import protect_server_owned
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import ADA, RegistryFixture

ADMIN = User("root", ("system:masters",))
SCOPED = User("root", ("system:masters",), scope=Scope(projects=("*",)))
CANARY = b64encode(b"canary").decode()
OTHER = b64encode(b"other").decode()


@pytest.fixture
async def ruled(api: RegistryFixture) -> RegistryFixture:
    """A world under the rule, with one of the server's own Secrets in it."""
    chain = AdmissionChain((protect_server_owned,))
    registry = Registry(api.registry.catalog, api.store, api.view, chain, api.clock)
    chain.bind_registry(registry)
    made = RegistryFixture(api.store, api.view, registry, api.clock)
    body = made.body("Secret", "own", type="service.sh/signing-keys", data={"k": CANARY})
    assert CANARY not in str(await made.submit("Secret", body, WriteOptions(CONTROLLER_USER)))
    return made


async def test_t26_no_answer_has_what_the_server_keeps_for_itself(ruled: RegistryFixture) -> None:
    entry = ruled.of("Secret").get_cached("demo", "own")
    assert entry is not None and CANARY.encode() not in entry.body
    assert (ruled.see("Secret", "own") or {})["data"] == {"k": CANARY}, "but the server has it"


def relabel(secret: Object) -> None:
    secret["metadata"]["labels"] = {"a": "b"}


async def test_t26_a_patch_copies_nothing_out_of_it(ruled: RegistryFixture) -> None:
    def copy(secret: Object) -> None:
        secret["metadata"]["annotations"] = {"x": str(secret.get("data"))}

    assert CANARY not in str(await ruled.patch("Secret", "own", copy, WriteOptions(ADMIN)))


@pytest.mark.parametrize("user", [ADA, ADMIN, SCOPED])
async def test_t45_nobody_makes_one_or_changes_what_is_in_it(ruled: RegistryFixture, user: User) -> None:
    body = ruled.body("Secret", "new", type="service.sh/password", data={"k": OTHER})
    with pytest.raises(Forbidden, match="for the server's own use"):
        await ruled.submit("Secret", body, WriteOptions(user))
    with pytest.raises(Forbidden):
        await ruled.patch("Secret", "own", lambda secret: secret.update(data={"k": OTHER}), WriteOptions(user))


async def test_administrators_may_label_it_and_nobody_else(ruled: RegistryFixture) -> None:
    for user in (ADA, SCOPED):
        with pytest.raises(Forbidden):
            await ruled.patch("Secret", "own", relabel, WriteOptions(user))
    await ruled.patch("Secret", "own", relabel, WriteOptions(ADMIN))
    assert (ruled.see("Secret", "own") or {})["data"] == {"k": CANARY}, "what was not sent is kept"


async def test_other_secrets_are_their_owners(ruled: RegistryFixture) -> None:
    body = ruled.body("Secret", "mine", type="Opaque", data={"k": CANARY})
    assert (await ruled.submit("Secret", body, WriteOptions(ADA)))["data"] == {"k": CANARY}
