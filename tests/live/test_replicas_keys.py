"""Keys that several replicas share change while they work: for sealing, for signing, and those that people hold.

What one replica seals or signs under a new key is good at the others, and what was made under the old one stays good.
"""

import asyncio
import base64
import json
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from fairlead.authn.direct_tokens import AUDIENCE
from fairlead.core.crypto import key_file
from fairlead.core.crypto.encryption import is_encrypted, key_id_of
from fairlead.storage.open import open_store
from tests.harness.replicas import STORES, Replicas, eventually, new_secrets, replicas, store_for
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"
PROMISED = 10.0
"""Seconds within which an open watch ends whose key was revoked."""


# --- keys for sealing ------------------------------------------------------------------------------------------------


@pytest.fixture(params=STORES)
def with_files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    """Two replicas whose keys for sealing are in their folders, where `fairlead encryption-key` changes them."""
    variables = {"pepper": new_secrets()["pepper"], "history_seconds": "1", "history_revisions": "1"}
    with ExitStack() as stack:
        group = Replicas(tmp_path, store_for(request.param, tmp_path), stack, variables)
        group.start()
        (tmp_path / "replica2").mkdir(mode=0o700)
        hand_over(group)
        group.start()
        yield group


def hand_over(group: Replicas) -> None:
    """The first replica's keys become the second one's."""
    new = group.folder / "replica2" / "new.keys"
    shutil.copy(group.folder / "replica1" / key_file.KEY_FILE_NAME, new)
    new.replace(group.folder / "replica2" / key_file.KEY_FILE_NAME)


def write(client: httpx.Client, name: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"word": name}}
    client.post(SECRETS, json=secret).raise_for_status()


def read(client: httpx.Client, name: str) -> bool:
    """Whether it is there and right; not there yet, or not to be opened yet, is not wrong."""
    answer = client.get(f"{SECRETS}/{name}")
    if answer.status_code != 200:
        assert answer.status_code >= 500, answer.text
        return False
    assert base64.b64decode(answer.json()["data"]["word"]) == name.encode()
    return True


def test_the_keys_for_sealing_change_while_two_replicas_write_and_read(with_files: Replicas) -> None:
    group, stop = with_files, threading.Event()
    names: list[str] = []

    def work(server: Server, who: str) -> None:
        number = 0
        with server.client() as client:
            while not stop.is_set():
                write(client, f"{who}-{number}")
                names.append(f"{who}-{number}")
                number += 1
                time.sleep(0.05)

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, server, who) for server, who in zip(group.servers, "ab", strict=True)]
        try:
            eventually(lambda: len(names) > 10)
            new = key_file.rotate_key(group.folder / "replica1")[0].id
            hand_over(group)
            done = [group.folder / f"replica{number}" for number in (1, 2)]
            eventually(lambda: any(key_file.reencrypted_key_id(each) == new for each in done), 4 * TIMEOUT_SECONDS)
        finally:
            stop.set()
        for each in working:
            each.result()
    for server in group.servers:
        with server.client() as client:
            for name in names:
                eventually(lambda client=client, name=name: read(client, name))  # type: ignore[misc]
    assert asyncio.run(keys_in_use(group.store)) == {new}


async def keys_in_use(address: str) -> set[str]:
    store = await open_store(address)
    try:
        return {key_id_of(record.value) for record in (await store.scan(())).records if is_encrypted(record.value)}
    finally:
        await store.close()


# --- keys for signing ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=STORES)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicas(request.param, tmp_path_factory.mktemp(request.param), 2) as made:
        yield made


def minted(client: httpx.Client) -> str:
    answer = client.post(f"{M}/directclusterendpointtokens", json={"spec": {"ttl": 600}})
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["status"]["token"]
    return token


def published(server: Server) -> jwt.PyJWKSet:
    """As a stranger finds it who has come to this replica."""
    with server.client(None) as stranger:
        configuration = stranger.get("/.well-known/openid-configuration").json()
        return jwt.PyJWKSet.from_dict(stranger.get(configuration["jwks_uri"]).json())


def verified(token: str, issuer: Server, server: Server) -> dict[str, Any]:
    """A token of one replica with the keys of another one. Without a `public_url` each is an issuer of its own."""
    key = published(server)[key_of(token)]
    return jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=issuer.url)


def key_of(token: str) -> str:
    kid: str = jwt.get_unverified_header(token)["kid"]
    return kid


def test_what_one_replica_signs_is_verified_with_what_another_one_publishes_also_after_a_rotation(
    group: Replicas,
) -> None:
    a, b = group.servers
    with a.client() as at_a, b.client() as at_b:
        before = [minted(at_a), minted(at_b)]
        old = key_of(before[0])
        assert key_of(before[1]) == old
        new = at_a.post(f"{M}/tokenkeyrotations", json={}).json()["status"]["keyID"]
        assert new != old
        after = [minted(at_a), minted(at_b)]
        assert [key_of(token) for token in after] == [new, new]
    for tokens in (before, after):
        for token, issuer in zip(tokens, (a, b), strict=True):
            assert verified(token, issuer, a) == verified(token, issuer, b)
    for server in (a, b):
        assert {key.key_id for key in published(server).keys} == {old, new}


# --- keys that people hold -------------------------------------------------------------------------------------------


def test_a_watch_at_one_replica_ends_when_its_key_is_revoked_at_another(group: Replicas) -> None:
    with group.servers[0].client() as admin:
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "leaver"}}
        key = admin.post(f"{M}/ownedaccesskeys", json={**body, "spec": {"user": "admin"}}).json()["spec"]["key"]
        with group.servers[1].client(key) as leaver:
            eventually(lambda: leaver.get(f"{M}/apps").status_code == 200)
            watching = {"watch": "1", "timeoutSeconds": "300"}
            with leaver.stream("GET", f"{M}/apps", params=watching, timeout=httpx.Timeout(TIMEOUT_SECONDS)) as stream:
                assert stream.status_code == 200
                admin.delete(f"{M}/ownedaccesskeys/leaver").raise_for_status()
                revoked = time.monotonic()
                lines = list(stream.iter_lines())
                # Not a measurement of speed: the promise itself is a time.
                assert time.monotonic() - revoked <= PROMISED
    last = json.loads(lines[-1])
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)
