"""ReplicaAuthority: one CA for all replicas, from a Secret, and certificates of another one are rejected."""

import asyncio
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fairlead.authn.replica_authority import RENEW_LEAF_AFTER, REPLACE_AFTER, ReplicaAuthority
from fairlead.core.crypto.peer_certificates import PeerContexts, peer_name
from fairlead.core.errors import Unavailable
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.core.server_objects import REPLICA_AUTHORITY
from fairlead.registry.write_options import WriteOptions
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.registry import RegistryFixture, open_registry


class ManualClock:
    """A clock that changes only when a test sets it."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()


def new_authority(api: RegistryFixture, identity: str, folder: Path, clock: ManualClock) -> ReplicaAuthority:
    authority = ReplicaAuthority(api.registry, SYSTEM, identity, folder)
    authority._clock = clock
    return authority


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """A handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=peer_name(name)),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def connect(one: PeerContexts, other: PeerContexts, name: str) -> None:
    shake_hands(one.client, other.server, name)


async def test_replicas_that_start_concurrently_share_a_ca_and_recognise_each_other(tmp_path: Path) -> None:
    async with open_registry() as api:
        clock = ManualClock()
        one, other = (new_authority(api, name, tmp_path, clock) for name in ("one", "other"))
        first, second = await asyncio.gather(one.contexts(), other.contexts())
        connect(first, second, "other")
        connect(second, first, "one")
        assert os.listdir(tmp_path) == [], "the keys of certificates must not stay on disk"


async def test_a_process_with_another_identity_at_the_address_is_rejected(tmp_path: Path) -> None:
    async with open_registry() as api:
        clock = ManualClock()
        one, other = (new_authority(api, name, tmp_path, clock) for name in ("one", "other"))
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            connect(await one.contexts(), await other.contexts(), "third")


async def test_certificates_of_another_installation_are_rejected_by_both_ends(tmp_path: Path) -> None:
    async with open_registry() as api, open_registry() as elsewhere:
        clock = ManualClock()
        own = await new_authority(api, "one", tmp_path, clock).contexts()
        foreign = await new_authority(elsewhere, "one", tmp_path, clock).contexts()
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(own, foreign, "one")
        foreign.client.check_hostname, foreign.client.verify_mode = False, ssl.CERT_NONE
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(foreign, own, "one")


async def test_an_old_ca_is_replaced_once_and_its_certificates_are_rejected_from_then_on(tmp_path: Path) -> None:
    async with open_registry() as api:
        clock = ManualClock()
        one, other = (new_authority(api, name, tmp_path, clock) for name in ("one", "other"))
        before = await one.contexts()
        clock.time += RENEW_LEAF_AFTER - timedelta(seconds=1)
        assert await one.contexts() is before
        clock.time += timedelta(seconds=1)
        renewed = await one.contexts()
        assert renewed is not before
        clock.time += REPLACE_AFTER
        replaced, seen = await asyncio.gather(one.contexts(), other.contexts())
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(before, seen, "other")
        clock.time = datetime.now(UTC)
        assert replaced is not renewed


async def test_a_damaged_secret_is_reported_with_what_to_do(tmp_path: Path) -> None:
    async with open_registry() as api:
        authority = new_authority(api, "one", tmp_path, ManualClock())
        await authority.contexts()
        secrets, options = api.registry.resource("", "secrets"), WriteOptions(user=CONTROLLER_USER)
        damaged = {"authority.json": "eA=="}
        await secrets.modify(SYSTEM, REPLICA_AUTHORITY.name, lambda secret: {**secret, "data": damaged}, options)
        with pytest.raises(Unavailable, match="delete it, and the server creates another one: demo/replica-authority"):
            await authority.contexts()
