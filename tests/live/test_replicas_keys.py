"""Rotation of keys that replicas share: encryption keys, signing keys, and access keys.

Data that one replica encrypts or signs with a new key is valid at the others, and data of the old key stays valid.
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
from fairlead.core.crypto import encryption
from fairlead.core.crypto.encryption import is_encrypted, key_id_of
from fairlead.storage.open import open_store
from tests.harness.eventually import BUSY_SECONDS, wait_until
from tests.harness.replicas import STORES, Replicas, new_secrets, running_replicas, store_address
from tests.harness.server_process import MANAGEMENT, TIMEOUT_SECONDS, Server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"
REVOCATION_SECONDS = 10.0
"""Within this time, an open watch ends after its key was revoked."""


# --- encryption keys -------------------------------------------------------------------------------------------------


@pytest.fixture(params=STORES)
def replicas_with_key_files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    """Two replicas with encryption keys in files, which `fairlead encryption-key` changes."""
    variables = {"pepper": new_secrets()["pepper"], "history_seconds": "1", "history_revisions": "1"}
    with ExitStack() as stack:
        group = Replicas(tmp_path, store_address(request.param, tmp_path), stack, variables)
        group.start()
        (tmp_path / "replica2").mkdir(mode=0o700)
        copy_keys(group)
        group.start()
        yield group


def copy_keys(group: Replicas) -> None:
    """Copies the encryption keys of the first replica to the second one."""
    new = group.folder / "replica2" / "new.keys"
    shutil.copy(group.folder / "replica1" / encryption.KEY_FILE_NAME, new)
    new.replace(group.folder / "replica2" / encryption.KEY_FILE_NAME)


def create_secret(client: httpx.Client, name: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"word": name}}
    client.post(SECRETS, json=secret).raise_for_status()


def is_readable(client: httpx.Client, name: str) -> bool:
    """Whether the secret can be read; fails on a wrong value or a client error, but not on a server error."""
    response = client.get(f"{SECRETS}/{name}")
    if response.status_code != 200:
        assert response.status_code >= 500, response.text
        return False
    assert base64.b64decode(response.json()["data"]["word"]) == name.encode()
    return True


@pytest.mark.long
def test_encryption_keys_are_rotated_while_two_replicas_write_and_read(replicas_with_key_files: Replicas) -> None:
    group, stop = replicas_with_key_files, threading.Event()
    names: list[str] = []

    def create_secrets(server: Server, prefix: str) -> None:
        number = 0
        with server.client() as client:
            while not stop.is_set():
                create_secret(client, f"{prefix}-{number}")
                names.append(f"{prefix}-{number}")
                number += 1
                time.sleep(0.05)

    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(create_secrets, server, prefix) for server, prefix in zip(group.servers, "ab", strict=True)
        ]
        try:
            wait_until(lambda: len(names) > 10)
            new = encryption.rotate_key(group.folder / "replica1")[0].id
            copy_keys(group)
            folders = [group.folder / f"replica{number}" for number in (1, 2)]
            wait_until(lambda: any(encryption.reencrypted_key_id(each) == new for each in folders), 4 * TIMEOUT_SECONDS)
        finally:
            stop.set()
        for each in futures:
            each.result()
    for server in group.servers:
        with server.client() as client:
            for name in names:
                wait_until(lambda client=client, name=name: is_readable(client, name))  # type: ignore[misc]
    assert asyncio.run(find_keys_in_use(group.store)) == {new}


async def find_keys_in_use(address: str) -> set[str]:
    store = await open_store(address)
    try:
        return {key_id_of(record.value) for record in (await store.scan(())).records if is_encrypted(record.value)}
    finally:
        await store.close()


# --- signing keys ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=STORES)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with running_replicas(request.param, tmp_path_factory.mktemp(request.param), 2) as group:
        yield group


def create_token(client: httpx.Client) -> str:
    response = client.post(f"{M}/directclusterendpointtokens", json={"spec": {"ttl": 600}})
    assert response.status_code == 201, response.text
    token: str = response.json()["status"]["token"]
    return token


def fetch_jwks(server: Server) -> jwt.PyJWKSet:
    """Returns the published keys of a replica, as an anonymous client reads them."""
    with server.client(None) as anonymous:
        configuration = anonymous.get("/.well-known/openid-configuration").json()
        return jwt.PyJWKSet.from_dict(anonymous.get(configuration["jwks_uri"]).json())


def verify_token(token: str, issuer: Server, server: Server) -> dict[str, Any]:
    """Verifies a token of one replica with the keys of another. Without `public_url`, each has its own issuer."""
    key = fetch_jwks(server)[get_key_id(token)]
    return jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=issuer.url)


def get_key_id(token: str) -> str:
    kid: str = jwt.get_unverified_header(token)["kid"]
    return kid


def test_a_token_of_one_replica_is_verified_with_the_keys_of_another_after_a_rotation(
    group: Replicas,
) -> None:
    a, b = group.servers
    with a.client() as client_a, b.client() as client_b:
        before = [create_token(client_a), create_token(client_b)]
        old = get_key_id(before[0])
        assert get_key_id(before[1]) == old
        new = client_a.post(f"{M}/tokenkeyrotations", json={}).json()["status"]["keyID"]
        assert new != old
        after = [create_token(client_a), create_token(client_b)]
        assert [get_key_id(token) for token in after] == [new, new]
    for tokens in (before, after):
        for token, issuer in zip(tokens, (a, b), strict=True):
            assert verify_token(token, issuer, a) == verify_token(token, issuer, b)
    for server in (a, b):
        assert {key.key_id for key in fetch_jwks(server).keys} == {old, new}


# --- access keys -----------------------------------------------------------------------------------------------------


def test_a_watch_at_one_replica_ends_when_its_key_is_revoked_at_another_one(group: Replicas) -> None:
    with group.servers[0].client() as admin:
        body = {"apiVersion": "management.service.sh/v1", "kind": "OwnedAccessKey", "metadata": {"name": "revoked"}}
        key = admin.post(f"{M}/ownedaccesskeys", json={**body, "spec": {"user": "admin"}}).json()["spec"]["key"]
        with group.servers[1].client(key) as revoked_client:
            wait_until(lambda: revoked_client.get(f"{M}/apps").status_code == 200)
            params = {"watch": "1", "timeoutSeconds": "300"}
            with revoked_client.stream(
                "GET", f"{M}/apps", params=params, timeout=httpx.Timeout(TIMEOUT_SECONDS)
            ) as stream:
                assert stream.status_code == 200
                admin.delete(f"{M}/ownedaccesskeys/revoked").raise_for_status()
                revoked_at = time.monotonic()
                lines = list(stream.iter_lines())
                # Not a performance test: the time itself is guaranteed.
                assert time.monotonic() - revoked_at <= REVOCATION_SECONDS + BUSY_SECONDS
    last = json.loads(lines[-1])
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)
