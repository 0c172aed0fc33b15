"""SshAuthority: its key is created on demand, shared by replicas, and replaced when it is old."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.serialization import SSHCertificate, load_ssh_public_identity

from fairlead.authn.ssh_authority import FORMAT, KEY_LIFETIME, RETIREMENT, SshAuthority
from fairlead.core.crypto.ssh_certificates import (
    encode_public_key,
    find_public_key,
    generate_private_key,
    parse_public_key,
)
from fairlead.core.errors import Unavailable
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.registry import open_registry

PUBLIC_KEY = parse_public_key(find_public_key(generate_private_key()))


async def find_signer(authority: SshAuthority) -> str:
    issued = await authority.issue(PUBLIC_KEY, "uid-1", "ada")
    certificate = load_ssh_public_identity(issued.text.encode())
    assert isinstance(certificate, SSHCertificate)
    certificate.verify_cert_signature()
    assert certificate.serial == issued.serial
    assert certificate.valid_before == int(issued.expires_at.timestamp())
    return encode_public_key(certificate.signature_key())


class ManualClock:
    """A clock that changes only when a test sets it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()


async def test_replicas_that_need_the_first_key_concurrently_get_the_same() -> None:
    async with open_registry() as api:
        replicas = [SshAuthority(api.registry, SYSTEM) for _ in range(3)]
        assert api.get("Secret", FORMAT.secret.name) is None
        signers = await asyncio.gather(*(find_signer(each) for each in replicas for _ in range(3)))
        assert len(set(signers)) == 1
        assert [await each.public_keys() for each in replicas] == [[signers[0]]] * 3


async def test_an_old_key_is_replaced_and_trusted_until_its_certificates_have_expired() -> None:
    async with open_registry() as api:
        one, other = SshAuthority(api.registry, SYSTEM), SshAuthority(api.registry, SYSTEM)
        clock = one._clock = other._clock = ManualClock()
        first = await find_signer(one)
        clock.time += KEY_LIFETIME - timedelta(seconds=1)
        assert await find_signer(one) == first
        clock.time += timedelta(seconds=1)
        second = await find_signer(one)
        assert second != first
        assert await other.public_keys() == [second, first]
        clock.time += RETIREMENT
        assert await other.public_keys() == [second]


async def test_a_damaged_secret_is_reported_and_not_replaced() -> None:
    async with open_registry() as api:
        authority = SshAuthority(api.registry, SYSTEM)
        await find_signer(authority)
        secrets = api.registry.resource("", "secrets")
        options = WriteOptions(user=CONTROLLER_USER)
        await secrets.modify(
            SYSTEM, FORMAT.secret.name, lambda secret: {**secret, "data": {"keys.json": "eA=="}}, options
        )
        with pytest.raises(Unavailable, match="ssh-authority"):
            await authority.public_keys()
