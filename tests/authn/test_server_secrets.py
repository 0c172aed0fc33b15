"""Keys of the server: a Secret that it did not create is not used, whatever its content is."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.authn.replica_authority import ReplicaAuthority
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.ssh_authority import SshAuthority
from fairlead.core.errors import Unavailable
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.core.server_objects import (
    REPLICA_AUTHORITY,
    SERVER_SECRETS,
    SIGN_ON_KEYS,
    SIGNING_KEYS,
    SSH_AUTHORITY,
    ServerSecret,
)
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from fairlead.signin.sso.encryption import SignOnEncryption
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.registry import open_registry

AS_SERVER = WriteOptions(CONTROLLER_USER)
Use = Callable[[Registry, Path], Awaitable[Any]]

USES: tuple[tuple[ServerSecret, Use], ...] = (
    (SIGNING_KEYS, lambda registry, folder: SigningKeyStore(registry, SYSTEM).active_key(60)),
    (SIGN_ON_KEYS, lambda registry, folder: SignOnEncryption(registry, SYSTEM).encrypt({}, "x")),
    (SSH_AUTHORITY, lambda registry, folder: SshAuthority(registry, SYSTEM).public_keys()),
    (REPLICA_AUTHORITY, lambda registry, folder: ReplicaAuthority(registry, SYSTEM, "one", folder).contexts()),
)


def test_all_secrets_of_the_server_are_tested() -> None:
    assert tuple(secret for secret, _ in USES) == SERVER_SECRETS


@pytest.mark.parametrize("type", ["Opaque", "service.sh/password", "service.sh/runner-key"])
@pytest.mark.parametrize(("secret", "use"), USES, ids=[secret.name for secret, _ in USES])
async def test_t45_a_secret_that_was_planted_in_the_place_of_a_key_is_not_used(
    tmp_path: Path, secret: ServerSecret, use: Use, type: str
) -> None:
    async with open_registry() as api:
        await use(api.registry, tmp_path)
        real = api.get("Secret", secret.name) or {}
        assert real["type"] == secret.type
        await api.resource("Secret").delete(SYSTEM, secret.name, DeleteOptions(), AS_SERVER)
        planted = api.build_object("Secret", secret.name, type=type, data=real["data"])
        await api.submit("Secret", planted, AS_SERVER)
        with pytest.raises(Unavailable, match="delete it"):
            await use(api.registry, tmp_path)
        await api.resource("Secret").delete(SYSTEM, secret.name, DeleteOptions(), AS_SERVER)
        await use(api.registry, tmp_path)
        assert (api.get("Secret", secret.name) or {})["data"] != real["data"]
